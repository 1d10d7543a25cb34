//! Questions about the trials and inspections that are still to be run.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;

use saturn_core::StrategyKey;

use crate::facts::config::{DeviceKind, Level};
use crate::facts::ids::{NodeId, TaskId};
use crate::facts::record::Purpose;
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::trial::TrialKey;
use crate::state::vacancies::Vacancies;

/// Seconds after its launch for which, on CPU slots, a trial has no inspection beside it, and an
/// inspection no trial.
pub(crate) const APART_S: f64 = 10.0;
/// An inspection beside less than this part of the time since the last report changes a step's time
/// by too little to matter.
const NEGLIGIBLE: f64 = 0.1;
/// Failed inspections after which a group goes without one.
const MAX_FAILURES: u32 = 2;

impl State {
    /// Trials that have no outcome and are to be run.
    pub fn num_open_trials(&self) -> usize {
        self.open_trials.values().map(BTreeSet::len).sum()
    }

    /// Trials that have no outcome and are to be run, each with its group (an index into
    /// `State::groups`).
    pub fn open_trials(&self) -> impl Iterator<Item = (usize, TrialKey)> + '_ {
        self.open_trials.iter().flat_map(|((gpu_type, Reverse(gpus)), open)| {
            open.iter().map(move |(group, technique)| {
                let strategy = StrategyKey { technique: technique.clone(), gpus: *gpus };
                (*group, TrialKey { strategy, gpu_type: gpu_type.clone() })
            })
        })
    }

    /// Whether a trial of a group has no outcome and is to be run.
    pub fn is_open_trial(&self, group: usize, key: &TrialKey) -> bool {
        // There are few widths: to make a key and look it up takes longer than to look at them all.
        let is_of = |gpu_type: &str, gpus: &Reverse<u32>| {
            gpus.0 == key.strategy.gpus && gpu_type == key.gpu_type
        };
        let mut widths = self.open_trials.iter();
        let open = widths.find(|((gpu_type, gpus), _)| is_of(gpu_type, gpus));
        open.is_some_and(|(_, open)| {
            let mut of_group =
                open.range((group, String::new())..).take_while(|one| one.0 == group);
            of_group.any(|(_, technique)| *technique == key.strategy.technique)
        })
    }

    /// Whether some node may have devices for a trial of a width now or soon. `false` is sure: no
    /// node has as many, or for a trial on several nodes no node has all of its own.
    pub(crate) fn may_have_room(&self, gpu_type: &str, gpus: u32) -> bool {
        if self.is_wide(gpu_type, gpus) {
            self.soon_free.has_whole_node()
        } else {
            self.soon_free.most() >= gpus
        }
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

    /// Whether the outcome of a trial of a group is still to come. A trial that has its outcome
    /// may have processes that are ending, or may have gone on as training.
    pub(crate) fn is_being_measured(&self, group: usize) -> bool {
        let mut trials = self.groups[group].trials.iter();
        trials.any(|(key, trial)| {
            trial.outcome.is_none() && (trial.attempt.is_some() || self.is_open_trial(group, key))
        })
    }

    /// Whether more will be known of a group soon. It will be if its inspection runs or is due. It
    /// will be too if a trial of it runs, or could run without waiting for training to end.
    pub(crate) fn awaits_trials(&self, group: usize, vacancies: &OnceCell<Vacancies>) -> bool {
        if self.groups[group].no_space.is_some() {
            return false;
        }
        if self.groups[group].inspection.attempt.is_some() {
            return true;
        }
        // Where all tasks left are too early, they are measured once others are done.
        if self.is_to_inspect(group) {
            return self.representative(group).is_some();
        }
        self.groups[group].trials.iter().any(|(key, trial)| {
            let has_memory = |node: NodeId, ranks: u32| {
                let needed = self.host_bytes(group, key, ranks);
                self.has_host_memory_beside_training(node, needed)
            };
            let (gpu_type, gpus) = (&key.gpu_type, key.strategy.gpus);
            // In a full pool hardly any node has room, and then the nodes need not be looked at.
            let has_room = || {
                let vacancies = || vacancies.get_or_init(|| Vacancies::of(self));
                self.may_have_room(gpu_type, gpus)
                    && vacancies().has_without_training(gpu_type, gpus, has_memory)
            };
            let may_be_held =
                || !self.has_quotas() || self.representative_for(group, &key.strategy).is_some();
            trial.attempt.is_some()
                || trial.outcome.is_none()
                    && self.is_open_trial(group, key)
                    && may_be_held()
                    && has_room()
        })
    }

    /// Whether a group's trials must wait for its inspection.
    pub(crate) fn awaits_inspection(&self, group: usize) -> bool {
        let inspection = &self.groups[group].inspection;
        inspection.found.is_none()
            && inspection.failures < MAX_FAILURES
            && self.is_for_managed(group)
    }

    /// Whether a group may be tried under a managed technique. The techniques that its tasks allow
    /// are part of its key, so they are the same for all.
    fn is_for_managed(&self, group: usize) -> bool {
        let first = self.groups[group].tasks.first().map(|task| &self.task(*task).spec);
        let is_allowed = |name: &str| first.is_none_or(|spec| spec.allows_technique(name));
        let techniques = &self.config.techniques;
        techniques.iter().any(|one| one.level == Level::Managed && is_allowed(&one.name))
    }

    /// The task whose model is inspected for a group: the first that has not ended and whose
    /// processes can be started, and that comes after no open task if there is such a task.
    pub(crate) fn representative(&self, group: usize) -> Option<TaskId> {
        self.first_to_measure(group, |_| true)
    }

    /// The task that is tried for a group under a strategy, if none can go on from the trial: as
    /// `representative`, but the strategy must not be excluded for it.
    pub(crate) fn representative_for(&self, group: usize, key: &StrategyKey) -> Option<TaskId> {
        self.first_to_measure(group, |task| {
            !self.task(task).excludes_key(key) && self.may_hold_more(task, key.gpus)
        })
    }

    fn first_to_measure(&self, group: usize, may: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let tasks = self.groups[group].tasks.iter().copied();
        let mut tasks = tasks
            .filter(|task| !self.has_ended(*task) && !self.is_measured_later(*task) && may(*task))
            .filter(|task| !self.task(*task).is_owner_away)
            .peekable();
        let first = tasks.peek().copied();
        tasks.find(|task| self.waits_for(*task).next().is_none()).or(first)
    }

    /// Whether a task of a group is left that may be tried under a strategy, now or later.
    pub(crate) fn has_task_for(&self, group: usize, key: &StrategyKey) -> bool {
        let mut tasks = self.groups[group].tasks.iter().copied();
        tasks.any(|task| {
            !self.has_ended(task)
                && !self.task(task).excludes_key(key)
                && self.may_hold(task, key.gpus)
        })
    }

    /// The number of groups whose inspection is to be run.
    pub fn num_to_inspect(&self) -> usize {
        self.to_inspect.len()
    }

    /// Whether the inspection of a group (an index into `State::groups`) is to be run.
    pub fn is_to_inspect(&self, group: usize) -> bool {
        self.to_inspect.contains(&group)
    }

    pub(crate) fn num_inspections(&self) -> usize {
        self.measuring(Purpose::Inspection).count()
    }

    /// Whether training on CPU slots had a young inspection beside it for a good part of the time
    /// since `since_s`. Of several inspections that have ended, the last counts.
    pub(crate) fn was_beside_inspection(&self, since_s: f64, now_s: f64) -> bool {
        let live = self.measuring(Purpose::Inspection).map(|one| young(one, now_s));
        let shared_s = |(from_s, until_s): (f64, f64)| until_s.min(now_s) - from_s.max(since_s);
        let most_s = live.chain(self.last_inspection).map(shared_s).fold(0.0, f64::max);
        self.config.device_kind == DeviceKind::Cpu && most_s > NEGLIGIBLE * (now_s - since_s)
    }

    /// Takes in when an inspection, which has ended, was young.
    pub(crate) fn learn_last_inspection(&mut self, inspection: &Attempt, now_s: f64) {
        self.last_inspection = Some(young(inspection, now_s));
    }

    /// Live inspections, or live trials.
    pub(crate) fn measuring(&self, purpose: Purpose) -> impl Iterator<Item = &Attempt> {
        let measuring = self.measuring.iter().filter_map(|id| self.attempts.get(id));
        measuring.filter(move |one| one.purpose == purpose)
    }
}

/// From when to when an inspection was young, seconds.
fn young(inspection: &Attempt, now_s: f64) -> (f64, f64) {
    (inspection.launched_s, now_s.min(inspection.launched_s + APART_S))
}
