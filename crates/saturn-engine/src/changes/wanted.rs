//! Which trials are wanted: the policy of what to measure, over the facts of the state.
//!
//! What could be measured of a group is every technique on every type of device in the pool, at the
//! device counts of `wide`. With a full budget all of it is. Else a group is measured once, so that
//! its tasks can train, and then where `experiment` expects that to pay; and once more where a task is
//! left with no strategy that it may run under. A group's model is looked at before (`inspections`),
//! and what that rules out is not tried.
//!
//! What is wanted is worked out anew whenever tasks or nodes come and go; outcomes are facts and stay,
//! whatever is wanted.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use saturn_core::{Knobs, Strategy, StrategyKey, TrialOutcome};

use crate::facts::config::{Level, TaskSpec};
use crate::facts::ids::TaskId;
use crate::interfaces::launcher::Widths;
use crate::knowledge::scaling::rank_before;
use crate::state::breadth::{Breadth, holds};
use crate::state::group::{TrialKey, TrialState};
use crate::state::run::{State, TaskState, TaskStatus};

impl State {
    /// The pool has changed: brings the open trials up to date, where that makes a difference.
    pub(crate) fn want_trials_of_pool(&mut self) {
        self.learn_node_widths();
        self.learn_usable_breadths();
        let breadths = self.breadths(|node| self.cluster.nodes[node.0].gpus);
        if breadths == self.breadths {
            return;
        }
        self.breadths = breadths;
        self.open_trials.clear();
        self.to_inspect.clear();
        for task in self.task_ids() {
            self.want_trials_for(task);
        }
    }

    /// Opens the trials that a task needs, that have no outcome and do not run; what the look at its
    /// model has ruled out gets its outcome instead. Where that is still to be taken, it comes first.
    pub(crate) fn want_trials_for(&mut self, task: TaskId) {
        let TaskState { status, group, spec, .. } = &self.tasks[task.0];
        if matches!(status, TaskStatus::Ended(_)) {
            return;
        }
        let group = *group;
        let must_wait = self.awaits_inspection(group);
        let mut is_wanted = false;
        let found = self.groups[group].inspection.found.clone();
        for breadth in &self.breadths {
            let gpu_type = &breadth.gpu_type;
            for gpus in breadth.counts() {
                let is_wide = gpus > breadth.node_width;
                for technique in &self.config.techniques {
                    if is_wide && technique.level != Level::Managed {
                        continue; // its one process holds devices of one machine
                    }
                    let strategy = StrategyKey { technique: technique.name.clone(), gpus };
                    if !spec.allows_key(&strategy) {
                        continue;
                    }
                    let key = TrialKey { strategy, gpu_type: gpu_type.clone() };
                    let trial = self.groups[group]
                        .trials
                        .entry(Arc::new(key))
                        .or_insert_with_key(|key| TrialState::unknown(&key.strategy));
                    if trial.outcome.is_some() || trial.attempt.is_some() {
                        continue;
                    }
                    is_wanted = true;
                    let way = (group, technique.name.clone());
                    let open = self.open_trials.get(&(gpu_type.clone(), Reverse(gpus)));
                    if !must_wait && !open.is_some_and(|open| open.contains(&way)) {
                        let found = found.as_ref();
                        trial.outcome = found
                            .and_then(|found| found.outcome_of(&technique.name, gpus, gpu_type));
                    }
                }
            }
        }
        if must_wait {
            if is_wanted && self.groups[group].inspection.attempt.is_none() {
                self.to_inspect.insert(group);
            }
        } else if self.chooses_trials() {
            self.open_chosen(group);
            self.open_first(task);
        } else {
            let allowed: Vec<Arc<TrialKey>> = self.groups[group]
                .trials
                .keys()
                .filter(|key| self.may_be_tried(task, key))
                .cloned()
                .collect();
            for key in allowed {
                self.open_trial(group, &key);
            }
        }
    }

    /// The same for all tasks of a group.
    pub(crate) fn want_trials_of_group(&mut self, group: usize) {
        for task in self.groups[group].tasks.clone() {
            self.want_trials_for(task);
        }
    }

    /// Opens the trials that a group needs beside those that are open, now that more is known of it.
    pub(crate) fn want_more_trials_of(&mut self, group: usize) {
        if self.chooses_trials() && !self.awaits_inspection(group) {
            self.open_chosen(group);
            for task in self.groups[group].tasks.clone() {
                if !self.has_ended(task) {
                    self.open_first(task);
                }
            }
        }
    }

    /// Opens the trials of a group that were chosen for what they may save.
    fn open_chosen(&mut self, group: usize) {
        for key in self.groups[group].chosen.clone() {
            if self.is_in_pool(&key) && !self.is_ruled_out(group, &key) {
                self.open_trial(group, &key);
            } else {
                self.close_trial(group, &key.strategy, &key.gpu_type);
            }
        }
    }

    /// Opens the cheapest trial that may give a task a strategy, where it has none and none is being
    /// sought: on the fewest devices, by the technique that is tried first.
    fn open_first(&mut self, task: TaskId) {
        let group = self.task(task).group;
        let is_sought = |(key, trial): (&Arc<TrialKey>, &TrialState)| {
            self.may_be_tried(task, key)
                && trial.outcome.is_none()
                && (trial.attempt.is_some() || self.is_open(group, key))
        };
        let trials = &self.groups[group].trials;
        if self.fits_pool_of_types(task) || trials.iter().any(is_sought) {
            return;
        }
        let candidates = trials.iter().filter(|(key, trial)| {
            trial.outcome.is_none()
                && self.may_be_tried(task, key)
                && !self.is_ruled_out(group, key)
        });
        let cheapest = candidates.map(|(key, _)| key).min_by(|a, b| {
            let by_count = a.strategy.gpus.cmp(&b.strategy.gpus);
            let (rank_a, rank_b) =
                (rank_before(&a.strategy.technique), rank_before(&b.strategy.technique));
            by_count.then(rank_a.total_cmp(&rank_b)).then(a.cmp(b))
        });
        if let Some(cheapest) = cheapest.cloned() {
            self.open_trial(group, &cheapest);
        }
    }

    /// Whether a task has a strategy that nodes of the pool are wide enough for, were all of their
    /// devices usable.
    pub(crate) fn fits_pool_of_types(&self, task: TaskId) -> bool {
        self.choices(task)
            .any(|choice| holds(&self.breadths, choice.gpu_type, choice.trial.strategy.gpus))
    }

    /// What is wrong with a task's device counts, where the nodes of the pool allow none of them:
    /// ``its `gpu_range` is 64, and what the nodes of this pool allow is 1, 2``. `None` without any node.
    pub fn out_of_range(&self, spec: &TaskSpec) -> Option<String> {
        let range = spec.gpu_range.as_ref()?;
        let tried: BTreeSet<u32> = self.breadths.iter().flat_map(Breadth::counts).collect();
        if tried.is_empty() || range.iter().any(|gpus| tried.contains(gpus)) {
            return None;
        }
        Some(format!(
            "its `gpu_range` is {}, and what the nodes of this pool allow is {}",
            listed(range.iter().copied()),
            listed(tried.into_iter())
        ))
    }

    fn is_in_pool(&self, key: &TrialKey) -> bool {
        holds(&self.breadths, &key.gpu_type, key.strategy.gpus)
    }

    /// Whether a trial says something of what a task may run under here.
    fn may_be_tried(&self, task: TaskId, key: &TrialKey) -> bool {
        let breadth = self.breadths.iter().find(|one| one.gpu_type == key.gpu_type);
        self.may_run(task, key)
            && self.config.technique(&key.strategy.technique).is_some()
            && breadth.is_some_and(|one| one.counts().contains(&key.strategy.gpus))
    }

    /// Whether a trial was chosen for what it may save.
    pub(crate) fn is_chosen(
        &self,
        group: usize,
        technique: &str,
        gpus: u32,
        gpu_type: &str,
    ) -> bool {
        self.groups[group].chosen.iter().any(|key| {
            key.strategy.gpus == gpus
                && key.strategy.technique == technique
                && key.gpu_type == gpu_type
        })
    }

    fn open_trial(&mut self, group: usize, key: &TrialKey) {
        let trial = self.groups[group].trials.get(key);
        if trial.is_some_and(|trial| trial.outcome.is_none() && trial.attempt.is_none())
            && self.why_too_large_for_host(group, key).is_none()
        {
            let place = (key.gpu_type.clone(), Reverse(key.strategy.gpus));
            let open = self.open_trials.entry(place).or_default();
            open.insert((group, key.strategy.technique.clone()));
        }
    }

    /// The device counts for which it is asked what can run.
    pub(crate) fn asked_widths(&self) -> Vec<Widths> {
        let asked = self.breadths.iter().map(|one| Widths {
            gpu_type: one.gpu_type.clone(),
            gpus: one.counts(),
            node_gpus: one.nodes.clone(),
        });
        asked.collect()
    }

    /// Whether a trial of a group is to be run and does not run.
    pub(crate) fn is_open(&self, group: usize, key: &TrialKey) -> bool {
        let place = (key.gpu_type.clone(), Reverse(key.strategy.gpus));
        let open = self.open_trials.get(&place);
        open.is_some_and(|open| open.contains(&(group, key.strategy.technique.clone())))
    }

    /// No task of a group is left to train: its open trials need not be run.
    pub(crate) fn close_trials(&mut self, group: usize) {
        self.to_inspect.remove(&group);
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
    /// of memory; a narrower one reopens what needed more than it leaves. What the look at the model
    /// said is asked anew. Everything else stays: a strategy that fits less often than its trial says
    /// is excluded when it fails, as always.
    pub(crate) fn limit_device_memory(&mut self, limit: Option<u64>) {
        let before = std::mem::replace(&mut self.config.device_memory_bytes, limit);
        if before == limit {
            return;
        }
        let is_wider = before.is_some_and(|before| limit.is_none_or(|limit| limit > before));
        for group in &mut self.groups {
            let ruled_out: Vec<Arc<TrialKey>> =
                group.trials.keys().filter(|key| group.is_ruled_out(key)).cloned().collect();
            group.inspection.found = None;
            for (key, trial) in &mut group.trials {
                let is_in_doubt = match &trial.outcome {
                    _ if ruled_out.contains(key) => true,
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
            estimate: None,
            has_knobs: false,
            trained_step_s: None,
            trained: None,
            trained_evaluation_s: None,
            trained_load_s: None,
        }
    }
}

/// Counts in a sentence: the first of them where they are many.
fn listed(counts: impl Iterator<Item = u32>) -> String {
    const MAX_LISTED: usize = 12;
    let mut words: Vec<String> = counts.map(|count| count.to_string()).collect();
    if words.len() > MAX_LISTED {
        words.truncate(MAX_LISTED);
        words.push("…".to_owned());
    }
    words.join(", ")
}
