//! What a trial would cost, and which of the wanted trials tell most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::facts::ids::{DeviceId, NodeId};
use crate::state::attempt::Attempt;
use crate::state::breadth::{Breadth, holds};
use crate::state::run::State;
use crate::state::trial::{TrialKey, TrialState};

impl State {
    /// Strategies of a group that have only an estimate, and that its tasks could run under in such
    /// a pool, as far as their own wishes and failures go. To find them takes the square of the
    /// group's strategies, so nobody asks for each task.
    pub(crate) fn unmeasured(&self, group: usize, pool: &[Breadth]) -> Vec<Arc<TrialKey>> {
        let has_room = |key: &TrialKey| holds(pool, &key.gpu_type, key.strategy.gpus);
        let is_estimated = |trial: &TrialState| !trial.is_known() && trial.estimate.is_some();
        self.groups[group]
            .trials
            .iter()
            .filter(|(key, trial)| {
                trial.outcome.is_none()
                    && is_estimated(trial)
                    && has_room(key)
                    && !self.is_ruled_out(group, key)
            })
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }

    /// Whether at least half of the groups that have something to do have a measured strategy.
    /// Before that, devices look free that other groups will need.
    pub(crate) fn is_half_known(&self) -> bool {
        let open = self.groups.iter().filter(|group| group.num_open > 0);
        let (known, all) = open.fold((0, 0), |(known, all), group| {
            let is_known = group.trials.values().any(|trial| trial.measured_step_s().is_some());
            (known + usize::from(is_known), all + 1)
        });
        2 * known >= all
    }

    /// A technique that is new to a group is tried at its least device count first: that is cheap,
    /// and bounds the others.
    pub(crate) fn narrowest_first(&self, group: usize, key: &Arc<TrialKey>) -> Arc<TrialKey> {
        let same = |other: &&Arc<TrialKey>| {
            other.gpu_type == key.gpu_type && other.strategy.technique == key.strategy.technique
        };
        let trials = &self.groups[group].trials;
        if trials.iter().any(|(other, one)| same(&other) && one.measured_step_s().is_some()) {
            return Arc::clone(key);
        }
        trials
            .iter()
            .filter(|(other, trial)| {
                same(other) && trial.outcome.is_none() && !self.is_ruled_out(group, other)
            })
            .map(|(other, _)| other)
            .min_by_key(|other| other.strategy.gpus)
            .filter(|other| 2 * other.strategy.gpus <= key.strategy.gpus)
            .map_or_else(|| Arc::clone(key), Arc::clone)
    }

    /// Device-seconds that it costs to stop training for trials, where there is no room for them:
    /// to save, and to launch again.
    pub(crate) fn cost_of_room_s(&self, wanted: &BTreeSet<(usize, Arc<TrialKey>)>) -> f64 {
        let is_free = |node: NodeId, device: u32| self.is_free(DeviceId { node, device });
        let free: usize = self
            .present_nodes()
            .map(|node| self.usable_devices(node).filter(|one| is_free(node, *one)).count())
            .sum();
        let gpus: u32 = wanted.iter().map(|(_, key)| key.strategy.gpus).sum();
        let short = f64::from(gpus) - free as f64;
        let moves = self.running().map(|(_, attempt)| self.interruption_s(attempt));
        short.max(0.0) * moves.fold(0.0, f64::max)
    }

    /// Seconds that it costs an attempt to be stopped and launched again.
    pub(crate) fn interruption_s(&self, attempt: &Attempt) -> f64 {
        let gpu_type = self.gang_type(&attempt.gang);
        let load_s = self.load_s(attempt.task, &attempt.strategy, gpu_type);
        self.save_s(attempt.task).unwrap_or(0.0) + load_s
    }

    /// The wanted trials that tell most.
    ///
    /// For each technique of a group, that is the widest trial: the ends of a curve tell more of
    /// its middle than the middle tells of the ends. For a technique that was never measured, it is
    /// the cheapest trial in any group, since it tells something for all groups.
    pub(crate) fn most_informative(
        &self,
        wanted: BTreeSet<(usize, Arc<TrialKey>)>,
    ) -> BTreeSet<(usize, Arc<TrialKey>)> {
        let mut widest: BTreeMap<(usize, String, String), Arc<TrialKey>> = BTreeMap::new();
        for (group, key) in wanted {
            let of = (group, key.strategy.technique.clone(), key.gpu_type.clone());
            // The trials come in ascending order of device counts, so the widest is last.
            widest.insert(of, key);
        }
        let is_new = |technique: &str| {
            let trials = self.groups.iter().flat_map(|group| &group.trials);
            let mut same = trials.filter(|(key, _)| key.strategy.technique == technique);
            !same.any(|(_, trial)| trial.measured_step_s().is_some())
        };
        let mut cheapest: BTreeMap<String, (f64, (usize, Arc<TrialKey>))> = BTreeMap::new();
        let mut telling = BTreeSet::new();
        for ((group, technique, _), key) in widest {
            if is_new(&technique) {
                let cost_s = self.trial_cost_s(group, &key);
                let known = cheapest.get(&technique);
                if known.is_none_or(|(known_s, _)| cost_s < *known_s) {
                    cheapest.insert(technique, (cost_s, (group, key)));
                }
            } else {
                telling.insert((group, key));
            }
        }
        telling.extend(cheapest.into_values().map(|(_, one)| one));
        telling
    }

    /// Device-seconds that a trial is expected to take. Its first knob set is timed until it is
    /// known, the others until they are seen to be slower.
    pub(crate) fn trial_cost_s(&self, group: usize, key: &TrialKey) -> f64 {
        let Some(expected) = self.groups[group].trials[key].estimate else { return 0.0 };
        let found = self.groups[group].inspection.found.as_ref();
        let TrialKey { strategy, gpu_type } = key;
        let num_others = found.map_or(0, |found| {
            found.knob_sets_of(&strategy.technique, strategy.gpus, gpu_type) - 1
        });
        let policy = &self.config.policy;
        let least_s = f64::from(policy.trial_steps()) * expected.step_s;
        let most_s = f64::from(policy.warmup_steps + policy.max_timed_steps) * expected.step_s;
        let first_s = expected.setup_s + least_s.max(most_s.min(TIMED_S));
        let each_s = expected.setup_s + f64::from(policy.warmup_steps + 1) * expected.step_s;
        f64::from(strategy.gpus) * (first_s + f64::from(num_others) * each_s)
    }
}

/// Seconds of timed steps after which a worker times no more than the least number of steps:
/// `ENOUGH_S` in `worker/step_times.py`.
const TIMED_S: f64 = 2.0;
