//! What a group's measurements say of strategies beyond those that were measured.
//!
//! Plain data, kept beside the measurements so that every reader sees the same; the room
//! `knowledge` works it out.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::config::DeviceKind;

/// An estimate as sure as this stands in for a trial, whose own noise is about as large: standard
/// deviation of the logarithm.
const SURE_SD: f64 = 0.06;

/// What a strategy that was not measured is expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Seconds a step: the true figure is as likely more as less.
    pub step_s: f64,
    /// How far off it may be: the standard deviation of its logarithm.
    pub sd: f64,
    /// Seconds from launch to the first step, as measured of the group's other strategies.
    pub setup_s: f64,
}

impl Estimate {
    /// Whether plans may use it in place of a trial.
    pub fn is_sure(&self) -> bool {
        self.sd <= SURE_SD
    }

    /// Seconds a step, `sds` standard deviations below or above the middle.
    pub fn step_s_at(&self, sds: f64) -> f64 {
        self.step_s * (self.sd * sds).exp()
    }
}

/// The factors by which the seconds a step of trials are multiplied, for strategies of a group that
/// have not trained.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Correction {
    /// The factor for a technique of which nothing was seen.
    pub(crate) shared: f64,
    pub(crate) of_technique: BTreeMap<String, f64>,
}

impl Default for Correction {
    fn default() -> Self {
        Self { shared: 1.0, of_technique: BTreeMap::new() }
    }
}

impl Correction {
    /// The factor for a technique's strategies.
    pub(crate) fn of(&self, technique: &str) -> f64 {
        self.of_technique.get(technique).copied().unwrap_or(self.shared)
    }
}

/// What a group's trials and training say of all its strategies together.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Lesson {
    /// By which factors training differs from trials.
    pub(crate) correction: Correction,
    /// What the correction was learnt from: the technique of each strategy that was tried and has
    /// trained, trained over tried seconds a step, and the standard deviation of their logarithm.
    pub(crate) seen: Vec<(String, f64, f64)>,
    /// Some strategy was measured, has trained or is estimated. Otherwise no strategy is known.
    pub(crate) has_figures: bool,
    /// The most seconds that a checkpoint took in a trial.
    pub(crate) save_s: Option<f64>,
    /// The duration of an evaluation, in steps.
    pub(crate) evaluation_in_steps: Option<f64>,
}

/// How much slower each technique is than the first choice, over all groups: the logarithm.
///
/// The prior is the order in which a practitioner would try the techniques; every measurement that
/// can be compared corrects it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Offsets {
    /// The kind of device that they hold for.
    pub(crate) kind: DeviceKind,
    /// Number, sum of what was seen of each technique.
    pub(crate) seen: BTreeMap<String, (f64, f64)>,
}

impl Offsets {
    /// The offsets before anything is measured.
    pub(crate) fn before(kind: DeviceKind) -> Self {
        Self { kind, seen: BTreeMap::new() }
    }
}

/// What a group's estimates rest on. They are worked out anew only where that has changed: a run
/// measures all the time, and each measurement concerns up to 64 groups.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Footing {
    /// What is told of each strategy, in the order of the group's trials.
    pub(crate) told: Vec<Told>,
    /// The strategies, or what is told of them, have changed since `shown` was worked out.
    pub(crate) has_changed: bool,
    /// The offsets of techniques that the group's measurements show.
    pub(crate) shown: Vec<(String, f64)>,
    /// The offsets by which the estimates were worked out; `None` while they are to be worked out.
    pub(crate) offsets: Option<Arc<Offsets>>,
}

/// What is told of a strategy that estimates of others, or its own, rest on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Told {
    /// It has no outcome, so it is estimated.
    pub(crate) is_open: bool,
    /// Seconds a step, and the standard deviation of their logarithm.
    pub(crate) step_s: Option<(f64, f64)>,
    /// Seconds from launch to the first step, as measured.
    pub(crate) setup_s: Option<f64>,
}
