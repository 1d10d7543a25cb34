//! What is known of each group's strategies, beside what was measured: estimates, and what memory
//! rules out.
//!
//! Estimates are worked out from a group's measurements (`scaling`) whenever one of them comes, and
//! are kept beside them, so that all who plan see the same. An estimate may stand in for a
//! measurement where it is as sure as a trial would be (`SURE_SD`), and where the technique's knobs
//! are known from another device count.
//!
//! Where every strategy is measured anyway (`TrialBudget::Full`) there are none.

use std::collections::BTreeMap;
use std::sync::Arc;

use saturn_core::{Inspection, Strategy, TrialOutcome};

use crate::facts::config::{Mode, TrialBudget};
use crate::knowledge::scaling::{Cell, Guess, Offsets, Seen, guesses};
use crate::state::group::{Group, TrialKey, TrialState};
use crate::state::run::State;

/// An estimate this sure stands in for a trial, whose own noise is about as large: standard deviation
/// of the logarithm.
const SURE_SD: f64 = 0.06;
/// What a trial's few steps are off by, as a part, where it doesn't say.
pub(crate) const TRIAL_SD: f64 = 0.04;
/// No trial is surer than this, however steady its steps: another launch would differ.
const LEAST_TRIAL_SD: f64 = 0.02;
/// What training's many steps are off by, as a part.
pub(crate) const TRAINED_SD: f64 = 0.02;
/// Groups with open tasks of which this many others learn at most, so that a measurement's cost does
/// not grow with the workload.
const MAX_GROUPS_TO_LEARN_FROM: usize = 64;

/// What a strategy that was not measured is expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Seconds a step: as likely more as less.
    pub step_s: f64,
    /// How far off it may be: the standard deviation of its logarithm.
    pub sd: f64,
    /// Seconds from launch to the first step, as measured of the group's other strategies.
    pub setup_s: f64,
}

impl Estimate {
    /// Whether it may stand in for a trial.
    pub fn is_sure(&self) -> bool {
        self.sd <= SURE_SD
    }

    /// Seconds a step, `sds` standard deviations below or above the middle.
    pub fn step_s_at(&self, sds: f64) -> f64 {
        self.step_s * (self.sd * sds).exp()
    }
}

impl State {
    /// Whether trials are chosen by what they are expected to save.
    pub fn chooses_trials(&self) -> bool {
        self.config.mode == Mode::Orchestrate
            && self.config.policy.trial_budget != TrialBudget::Full
    }

    /// A measurement of a group is new: estimates of it, and of others that learn from it, too.
    pub(crate) fn learn(&mut self, group: usize) {
        if !self.chooses_trials() {
            return;
        }
        let open = self.groups.iter().enumerate().filter(|(_, group)| group.num_open > 0);
        let open: Vec<usize> =
            open.map(|(index, _)| index).take(MAX_GROUPS_TO_LEARN_FROM).collect();
        let measured = open.iter().map(|index| seen(&self.groups[*index], &self.node_widths));
        let offsets = Offsets::learnt(measured);
        if !open.contains(&group) {
            self.groups[group].estimate(&offsets, &self.node_widths);
        }
        for index in open {
            self.groups[index].estimate(&offsets, &self.node_widths);
        }
    }

    /// Whether memory rules a strategy out that was not tried: the technique ran out of it on as many
    /// devices or more, or has never fitted in a trial and would have more room on more.
    pub fn is_ruled_out(&self, group: usize, key: &TrialKey) -> bool {
        let same = self.groups[group].trials.iter().filter(|(other, _)| {
            other.gpu_type == key.gpu_type && other.strategy.technique == key.strategy.technique
        });
        // What the look at the model rules out says nothing of wider gangs, which it did not rule out.
        let found = self.groups[group].inspection.found.as_ref();
        let was_tried = |key: &TrialKey| {
            let strategy = &key.strategy;
            let outcome = |found: &Inspection| {
                found.outcome_of(&strategy.technique, strategy.gpus, &key.gpu_type)
            };
            found.and_then(|found| outcome(found)).is_none()
        };
        let (mut has_fitted, mut ran_out, mut least, mut widest) = (false, false, 0, 0);
        for (other, trial) in same {
            widest = widest.max(other.strategy.gpus);
            match trial.outcome {
                Some(TrialOutcome::Measured { .. }) => has_fitted = true,
                Some(TrialOutcome::OutOfMemory { .. }) => {
                    least = least.max(other.strategy.gpus);
                    ran_out |= was_tried(other);
                }
                _ => {}
            }
        }
        key.strategy.gpus <= least || ran_out && !has_fitted && key.strategy.gpus < widest
    }
}

impl Group {
    /// Seconds a step that no more devices than linear speed-up allows for, with some to spare: what
    /// the technique takes on fewer of them bounds it.
    pub(crate) fn least_step_s(&self, key: &TrialKey) -> f64 {
        /// Two devices are faster than one by more than their number only through caches.
        const SUPERLINEAR: f64 = 0.85;
        let gpus = f64::from(key.strategy.gpus);
        self.trials
            .iter()
            .filter(|(other, _)| {
                other.gpu_type == key.gpu_type
                    && other.strategy.technique == key.strategy.technique
                    && other.strategy.gpus <= key.strategy.gpus
            })
            .filter_map(|(other, trial)| {
                Some(trial.measured_step_s()? * f64::from(other.strategy.gpus))
            })
            .fold(0.0, |least: f64, seconds| {
                let bound = SUPERLINEAR * seconds / gpus;
                if least == 0.0 { bound } else { least.min(bound) }
            })
    }

    fn estimate(&mut self, offsets: &Offsets, node_widths: &BTreeMap<String, u32>) {
        let seen = seen(self, node_widths);
        if seen.is_empty() {
            return;
        }
        let asked: Vec<Arc<TrialKey>> = self
            .trials
            .iter()
            .filter(|(_, trial)| trial.outcome.is_none())
            .map(|(key, _)| Arc::clone(key))
            .collect();
        let cells: Vec<Cell<'_>> = asked.iter().map(|key| cell_of(key, node_widths)).collect();
        let guesses = guesses(&seen, &cells, offsets);
        let setup_s = self.trials.values().filter_map(TrialState::measured_setup_s);
        let setup_s = setup_s.fold(0.0, f64::max);
        let knobs: Vec<_> = asked.iter().map(|key| self.nearest_measured(key)).collect();
        for ((key, Guess { mean, sd }), nearest) in asked.iter().zip(guesses).zip(knobs) {
            let Some(trial) = self.trials.get_mut(key) else { continue };
            trial.estimate = Some(Estimate { step_s: mean.exp(), sd, setup_s });
            // Once told, they stay: what trains under an estimate goes on as it is.
            if let Some(nearest) = nearest.filter(|_| !trial.has_knobs) {
                trial.strategy = Arc::new(Strategy { gpus: key.strategy.gpus, ..nearest });
                trial.has_knobs = true;
            }
        }
    }

    /// The measured strategy of the same technique and type of device with the nearest device count.
    fn nearest_measured(&self, key: &TrialKey) -> Option<Strategy> {
        let away = |gpus: u32| f64::from(gpus).ln() - f64::from(key.strategy.gpus).ln();
        self.trials
            .iter()
            .filter(|(other, trial)| {
                other.gpu_type == key.gpu_type
                    && other.strategy.technique == key.strategy.technique
                    && trial.measured_step_s().is_some()
            })
            .min_by(|(a, _), (b, _)| {
                away(a.strategy.gpus).abs().total_cmp(&away(b.strategy.gpus).abs())
            })
            .map(|(_, trial)| Strategy::clone(&trial.strategy))
    }
}

/// What a group's measurements say of seconds a step.
fn seen<'a>(group: &'a Group, node_widths: &BTreeMap<String, u32>) -> Vec<Seen<'a>> {
    let correction = &group.lesson.correction;
    group
        .trials
        .iter()
        .filter_map(|(key, trial)| {
            let (step_s, sd) = match (trial.measured_step_s(), trial.trained_step_s) {
                (Some(step_s), _) => (step_s, trial.relative_error().max(LEAST_TRIAL_SD)),
                // What training takes is more than what trials measure by as much as elsewhere.
                (None, Some(step_s)) => {
                    (step_s / correction.of(&key.strategy.technique), TRAINED_SD)
                }
                (None, None) => return None,
            };
            (step_s > 0.0 && step_s.is_finite()).then(|| Seen {
                cell: cell_of(key, node_widths),
                step_s,
                sd,
            })
        })
        .collect()
}

fn cell_of<'a>(key: &'a TrialKey, node_widths: &BTreeMap<String, u32>) -> Cell<'a> {
    let TrialKey { strategy, gpu_type } = key;
    let is_wide = node_widths.get(gpu_type).is_some_and(|width| strategy.gpus > *width);
    Cell { technique: &strategy.technique, gpus: strategy.gpus, gpu_type, is_wide }
}
