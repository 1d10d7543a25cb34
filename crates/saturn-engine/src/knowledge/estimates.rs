//! Estimates of strategies that were not measured.
//!
//! Estimates are worked out from a group's measurements (`scaling`) whenever a measurement comes,
//! and are kept beside them, so that every reader sees the same. An estimate may stand in for a
//! measurement if it is as sure as a trial would be. The technique's knobs must also be known from
//! another number of devices.
//!
//! If every strategy is measured anyway (`TrialBudget::Full`), there are no estimates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::Strategy;

use crate::facts::config::DeviceKind;
use crate::knowledge::scaling::{Cell, Guess, Seen, guesses};
use crate::state::group::Group;
use crate::state::lesson::{Estimate, Footing, Offsets};
use crate::state::run::State;
use crate::state::trial::{TrialKey, TrialState};

/// At most so many groups with open tasks learn from one another, so that the cost of a measurement
/// does not grow with the workload.
const MAX_GROUPS_TO_LEARN_FROM: usize = 64;

impl State {
    /// Works out anew the estimates of a group with a new measurement, and of the groups that learn
    /// from it. Estimates that rest on the same numbers as before stay as they are.
    pub(crate) fn learn(&mut self, group: usize) {
        self.estimate(&[group]);
    }

    /// Works out anew the estimates of every group, after strategies have come that no group knew.
    pub(crate) fn learn_all(&mut self) {
        let groups: Vec<usize> = self.open_groups().collect();
        self.estimate(&groups);
    }

    fn open_groups(&self) -> impl Iterator<Item = usize> + '_ {
        let groups = self.groups.iter().enumerate();
        groups.filter(|(_, group)| group.num_open > 0).map(|(index, _)| index)
    }

    /// Works out the estimates of these groups, and of those that learn from one another.
    fn estimate(&mut self, groups: &[usize]) {
        if !self.chooses_trials() {
            return;
        }
        let learns_from: Vec<usize> = self.open_groups().take(MAX_GROUPS_TO_LEARN_FROM).collect();
        let others = groups.iter().filter(|group| !learns_from.contains(group));
        let concerned: BTreeSet<usize> = learns_from.iter().chain(others).copied().collect();
        let kind = self.config.device_kind;
        let mut may_differ = learns_from != self.learns_from;
        for index in &concerned {
            may_differ |= self.groups[*index].show_offsets(kind, &self.node_widths);
        }
        if may_differ {
            let shown = learns_from.iter().map(|index| &self.groups[*index].footing.shown[..]);
            self.offsets = Arc::new(Offsets::learnt(kind, shown));
        }
        for index in &concerned {
            self.groups[*index].estimate(&self.offsets, &self.node_widths);
        }
        self.learns_from = learns_from;
    }

    /// Whether the estimates that rest on the same numbers as before are those that these numbers
    /// give. For tests.
    pub(crate) fn are_estimates_kept_up(&self) -> bool {
        self.groups.iter().filter(|group| !group.footing.has_changed).all(|group| {
            let Some(offsets) = group.footing.offsets.clone() else { return true };
            if group.num_open > 0 && offsets.kind != self.config.device_kind {
                return false;
            }
            let mut anew = group.clone();
            anew.footing = Footing { has_changed: true, ..Footing::default() };
            anew.learn();
            anew.show_offsets(offsets.kind, &self.node_widths);
            anew.estimate(&offsets, &self.node_widths);
            anew == *group
        })
    }
}

impl Group {
    /// The least possible seconds a step: the technique's step time on fewer devices, scaled by a
    /// little more than linear speed-up.
    pub(crate) fn least_step_s(&self, key: &TrialKey) -> f64 {
        /// Only caches make two devices more than twice as fast as one.
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

    /// Works out anew what the group's measurements show of techniques, if the measurements or the
    /// kind of device have changed. Returns whether they have.
    fn show_offsets(&mut self, kind: DeviceKind, node_widths: &BTreeMap<String, u32>) -> bool {
        let offsets = self.footing.offsets.as_ref();
        if !self.footing.has_changed && offsets.is_none_or(|offsets| offsets.kind == kind) {
            return false;
        }
        let shown = Offsets::shown(kind, &seen(self, node_widths));
        // Strategies may have come since it was last worked out.
        let told = self.told().collect();
        self.footing = Footing { told, shown, has_changed: false, offsets: None };
        true
    }

    /// Works out the group's estimates, if they rest on other numbers than before.
    fn estimate(&mut self, offsets: &Arc<Offsets>, node_widths: &BTreeMap<String, u32>) {
        let is_by = |by: &Arc<Offsets>| Arc::ptr_eq(by, offsets) || **by == **offsets;
        if self.footing.offsets.as_ref().is_some_and(is_by) {
            return;
        }
        self.footing.offsets = Some(Arc::clone(offsets));
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
        let lacks_knobs = |key: &&Arc<TrialKey>| !self.trials[*key].has_knobs;
        let nearest = |key: &Arc<TrialKey>| {
            Some(key).filter(lacks_knobs).and_then(|key| self.nearest_measured(key))
        };
        let knobs: Vec<_> = asked.iter().map(nearest).collect();
        for ((key, Guess { mean, sd }), nearest) in asked.iter().zip(guesses).zip(knobs) {
            let Some(trial) = self.trials.get_mut(key) else { continue };
            trial.estimate = Some(Estimate { step_s: mean.exp(), sd, setup_s });
            // Knobs stay once they are set: an attempt that trains under an estimate goes on as it
            // is.
            if let Some(nearest) = nearest {
                trial.strategy = Arc::new(Strategy { gpus: key.strategy.gpus, ..nearest });
                trial.has_knobs = true;
            }
        }
    }

    /// The measured strategy of the same technique and type of device with the nearest device
    /// count.
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
    let told = group.trials.iter().filter_map(|(key, trial)| {
        let (step_s, sd) = group.told_step_s(key, trial)?;
        Some(Seen { cell: cell_of(key, node_widths), step_s, sd })
    });
    told.collect()
}

fn cell_of<'a>(key: &'a TrialKey, node_widths: &BTreeMap<String, u32>) -> Cell<'a> {
    let TrialKey { strategy, gpu_type } = key;
    let is_wide = node_widths.get(gpu_type).is_some_and(|width| strategy.gpus > *width);
    Cell { technique: &strategy.technique, gpus: strategy.gpus, gpu_type, is_wide }
}
