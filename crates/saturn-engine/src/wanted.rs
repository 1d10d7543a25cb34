//! Which trials are wanted: the policy of what to measure, over the facts of the state.
//!
//! Each group of tasks is measured under every technique on every type of device in the pool, at
//! the device counts of `widths`. What is wanted is worked out anew whenever tasks or nodes come and
//! go; outcomes are facts and stay, whatever is wanted.

use std::cmp::Reverse;
use std::sync::Arc;

use saturn_core::{Knobs, Strategy, StrategyKey, TrialOutcome};

use crate::ids::{NodeId, TaskId};
use crate::state::{State, TaskState, TaskStatus, TrialKey, TrialState};

impl State {
    /// The pool has changed: brings the open trials up to date, where that makes a difference.
    pub(crate) fn want_trials_of_pool(&mut self) {
        let widest = self.widest_by_type();
        if widest == self.widest {
            return;
        }
        self.widest = widest;
        self.open_trials.clear();
        for task in self.task_ids() {
            self.want_trials_for(task);
        }
    }

    /// Opens the trials that a task needs, that have no outcome and do not run.
    pub(crate) fn want_trials_for(&mut self, task: TaskId) {
        let TaskState { status, group, spec, .. } = &self.tasks[task.0];
        if matches!(status, TaskStatus::Ended(_)) {
            return;
        }
        let group = *group;
        for (gpu_type, widest) in &self.widest {
            let allowed = |gpus: &u32| spec.gpu_range.as_ref().is_none_or(|all| all.contains(gpus));
            for gpus in widths(*widest).filter(allowed) {
                for technique in &self.config.techniques {
                    let key = TrialKey {
                        strategy: StrategyKey { technique: technique.name.clone(), gpus },
                        gpu_type: gpu_type.clone(),
                    };
                    let trial = self.groups[group]
                        .trials
                        .entry(Arc::new(key))
                        .or_insert_with_key(|key| TrialState::unknown(&key.strategy));
                    if trial.outcome.is_none() && trial.attempt.is_none() {
                        let place = (gpu_type.clone(), Reverse(gpus));
                        let open = self.open_trials.entry(place).or_default();
                        open.insert((group, technique.name.clone()));
                    }
                }
            }
        }
    }

    /// Whether a trial of a group is to be run and does not run.
    pub(crate) fn is_open(&self, group: usize, key: &TrialKey) -> bool {
        let place = (key.gpu_type.clone(), Reverse(key.strategy.gpus));
        let open = self.open_trials.get(&place);
        open.is_some_and(|open| open.contains(&(group, key.strategy.technique.clone())))
    }

    /// No task of a group is left to train: its open trials need not be run.
    pub(crate) fn close_trials(&mut self, group: usize) {
        let keys: Vec<Arc<TrialKey>> = self.groups[group].trials.keys().cloned().collect();
        for key in keys {
            self.close_trial(group, &key.strategy, &key.gpu_type);
        }
    }

    /// A trial is open no more: it runs, has its outcome, or is not wanted.
    pub(crate) fn close_trial(&mut self, group: usize, key: &StrategyKey, gpu_type: &str) {
        let place = (gpu_type.to_owned(), Reverse(key.gpus));
        if let Some(open) = self.open_trials.get_mut(&place) {
            open.remove(&(group, key.technique.clone()));
            if open.is_empty() {
                self.open_trials.remove(&place);
            }
        }
    }

    /// Takes over a limit of the devices' memory, and forgets the outcomes that it puts in doubt.
    ///
    /// An outcome speaks for the limit under which it was found. A wider limit reopens what ran out
    /// of memory; a narrower one reopens what needed more than it leaves. Everything else stays: a
    /// strategy that fits less often than its trial says is excluded when it fails, as always.
    pub(crate) fn limit_device_memory(&mut self, limit: Option<u64>) {
        let before = std::mem::replace(&mut self.config.device_memory_bytes, limit);
        if before == limit {
            return;
        }
        let is_wider = before.is_some_and(|before| limit.is_none_or(|limit| limit > before));
        for group in self.groups.iter_mut().filter(|group| group.num_open > 0) {
            for trial in group.trials.values_mut() {
                let is_in_doubt = match &trial.outcome {
                    Some(TrialOutcome::OutOfMemory { .. }) => is_wider,
                    Some(TrialOutcome::Measured { peak_memory_bytes, .. }) => {
                        limit.is_some_and(|limit| *peak_memory_bytes > limit)
                    }
                    _ => false,
                };
                if is_in_doubt {
                    trial.outcome = None;
                    trial.reused = false;
                }
            }
            group.learn();
        }
        if is_wider {
            for task in &mut self.tasks {
                task.excluded.clear();
            }
        }
    }

    /// Types of devices in the pool, each with the devices of its largest node.
    fn widest_by_type(&self) -> Vec<(String, u32)> {
        let mut widest: Vec<(String, u32)> = Vec::new();
        for NodeId(node) in self.present_nodes() {
            let spec = &self.cluster.nodes[node];
            match widest.iter_mut().find(|(gpu_type, _)| *gpu_type == spec.gpu_type) {
                Some((_, gpus)) => *gpus = (*gpus).max(spec.gpus),
                None => widest.push((spec.gpu_type.clone(), spec.gpus)),
            }
        }
        widest
    }
}

impl TrialState {
    /// A strategy of which nothing is known.
    pub(crate) fn unknown(key: &StrategyKey) -> Self {
        let strategy =
            Strategy { technique: key.technique.clone(), gpus: key.gpus, knobs: Knobs::new() };
        Self {
            strategy: Arc::new(strategy),
            outcome: None,
            reused: false,
            failures: 0,
            attempt: None,
            trained_step_s: None,
            trained_load_s: None,
        }
    }
}

/// Device counts to try on nodes of `widest` devices: all of them up to 8, then powers of two and
/// the whole node, since neighbours differ little there and every trial costs time.
fn widths(widest: u32) -> impl Iterator<Item = u32> {
    (1..=widest).filter(move |gpus| *gpus <= 8 || gpus.is_power_of_two() || *gpus == widest)
}
