//! The history of a run: the past that decisions no longer need and people want to see.
//!
//! [`State`] forgets ended attempts and replaced plans. A [`History`] is folded from the same
//! records, beside the state, and keeps them. Folding a journal's records gives the same history
//! that the run's own observers have.
//!
//! A history is bounded, though a run is not. If there are very many plans, plans in the middle
//! lose their places. The oldest notes are dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use saturn_core::{ForecastErrors, Strategy};
use saturn_engine::{
    Attempt, AttemptEnd, AttemptId, NodeId, Purpose, Record, RunEnd, RunPlan, State, TaskEnd,
    TaskId, TrialKey,
};

use crate::facts::device_time::DeviceTime;
use crate::facts::errors::{Errors, ErrorsOn};
use crate::facts::past::{
    Move, Note, PastAttempt, PastEnd, PastTask, PastTrial, PoolChange, PoolEvent, Startup,
};
use crate::facts::planned_by::PlannedBy;
use crate::facts::standstills::Standstills;
use crate::facts::trials_took::TrialsTook;

/// The most places kept over all plans. Three plans keep their places in any case: the first, the
/// reference plan and the last.
const MAX_PLACES: usize = 200_000;
/// The most notes kept; older notes are dropped.
const MAX_NOTES: usize = 1000;

/// The past of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Every attempt.
    pub attempts: BTreeMap<AttemptId, PastAttempt>,
    /// Every task, by [`TaskId`].
    pub tasks: Vec<PastTask>,
    /// Every plan that was in force, oldest first, as it was adopted. If there were very many
    /// places, plans in the middle have none.
    pub plans: Vec<Arc<RunPlan>>,
    /// Trials in the order in which they got their outcomes.
    pub trials: Vec<PastTrial>,
    /// Changes of the pool.
    pub pool: Vec<PoolChange>,
    /// The number of usable devices from each time on, wherever it may have changed.
    num_devices: Vec<(f64, usize)>,
    /// Messages for the person who watches the run.
    pub notes: VecDeque<Note>,
    /// When the run was resumed, seconds.
    pub resumed_s: Vec<f64>,
    /// When introspection last kept the plan in force: the time, the seconds that this plan still
    /// needed then, and the seconds of the best other plan.
    pub kept: Option<(f64, f64, f64)>,
    /// When the solver last gave no usable answer, and why.
    pub not_solved: Option<(f64, String)>,
    /// The starts of processes that drove the run.
    pub startups: Vec<Startup>,
    /// When the driver stood still.
    pub(crate) standstills: Standstills,
    /// The driver died without recording an end (see [`without_driver`]).
    pub has_died: bool,
    /// How wrong this run's own forecasts were.
    errors: Errors,
    /// Where the time of devices went.
    pub(crate) device_time: DeviceTime,
    /// Counts and times of trials.
    trials_took: TrialsTook,
    /// How many places `plans` holds.
    num_places: usize,
}

/// Whether other devices may be usable after a record than before it.
fn changes_devices(record: &Record) -> bool {
    matches!(
        record,
        Record::NodeJoined { .. }
            | Record::NodeLeft { .. }
            | Record::SetAside { .. }
            | Record::TakenBack { .. }
            | Record::Resumed { .. }
    )
}

/// What a record says of the pool; `None` if it is about something else.
fn pool_change(record: &Record, at_s: f64) -> Option<PoolChange> {
    let (node, what) = match record {
        Record::NodeJoined { node, spec, .. } => (*node, PoolEvent::Joined(spec.clone())),
        Record::NodeLeft { node, reason } => (*node, PoolEvent::Left(reason.clone())),
        Record::SetAside { node, devices, reason, .. } => {
            (*node, PoolEvent::SetAside(devices.clone(), reason.clone()))
        }
        Record::TakenBack { node, devices, reason } => {
            (*node, PoolEvent::TakenBack(devices.clone(), reason.clone()))
        }
        _ => return None,
    };
    Some(PoolChange { at_s, node, what })
}

impl History {
    /// Applies a record; `state` is the state after it.
    pub fn record(&mut self, state: &State, record: &Record, now_s: f64) {
        self.device_time.record(state, record, now_s);
        self.errors.record(state, record);
        if changes_devices(record) {
            self.num_devices.push((now_s, state.num_devices()));
        }
        match record {
            Record::TaskAdded { .. } => {
                self.tasks.resize(state.tasks.len(), PastTask::default());
            }
            Record::Launched { attempt, task, purpose, strategy, gang, .. } => {
                let past = PastAttempt {
                    task: *task,
                    purpose: *purpose,
                    strategy: strategy.clone(),
                    gang: gang.clone(),
                    launched_s: now_s,
                    forecast_s: None,
                    started: None,
                    clocked: (0, 0.0),
                    stopping: None,
                    ended: None,
                };
                self.launched(state, *attempt, past);
            }
            Record::Started { attempt, step, .. } => {
                self.with_attempt(*attempt, |one| one.started = Some((*step, now_s)));
            }
            Record::WentOn { attempt, .. } => self.went_on(state, *attempt, now_s),
            Record::Clocked { attempt, trained } => {
                self.with_attempt(*attempt, |one| one.add_clocked(*trained));
            }
            Record::Stopping { attempt, reason } => {
                self.with_attempt(*attempt, |one| one.stopping = Some((*reason, now_s)));
            }
            Record::Until { attempt, .. } => {
                self.with_attempt(*attempt, |one| one.forecast_s = None);
            }
            Record::Ended { attempt, end, step, .. } => {
                self.attempt_ended(*attempt, end, *step, now_s);
            }
            Record::TaskEnded { task, end } => {
                self.with_task(*task, |task| task.ended_s = Some(now_s));
                self.errors.task_ended(*task, matches!(end, TaskEnd::Done { .. }), now_s);
            }
            Record::Paused { task } => self.paused(*task, Some(now_s)),
            Record::Unpaused { task } => self.paused(*task, None),
            Record::Tried { group, gpu_type, strategy, outcome } => {
                self.trials.push(PastTrial {
                    at_s: now_s,
                    group: group.clone(),
                    gpu_type: gpu_type.clone(),
                    strategy: strategy.clone(),
                    outcome: outcome.clone(),
                });
            }
            Record::Planned { plan } => {
                self.errors.planned(state, plan);
                self.planned(state, plan);
            }
            Record::PlanKept { time_left_s, best_s } => {
                self.kept = Some((now_s, *time_left_s, *best_s));
            }
            Record::NotSolved { reason } => self.not_solved = Some((now_s, reason.clone())),
            Record::NodeJoined { .. }
            | Record::NodeLeft { .. }
            | Record::SetAside { .. }
            | Record::TakenBack { .. } => self.pool.extend(pool_change(record, now_s)),
            Record::Noted { task, text } => {
                self.noted(Note { at_s: now_s, task: *task, text: text.clone() });
            }
            Record::Began { config } => self.errors.on(&config.policy.hardware),
            Record::Resumed { adopted, .. } => {
                self.resumed_s.push(now_s);
                self.errors.on(&state.config.policy.hardware);
                self.errors.adopted(state, adopted);
            }
            Record::DriverStarted { startup_s } => {
                self.startups.push(Startup { at_s: now_s, took_s: *startup_s });
            }
            Record::StoodStill { for_s } => self.stood_still(*for_s, now_s),
            Record::RunEnded { end: RunEnd::Complete } => self.errors.run_ended(now_s),
            // The state keeps what these records say.
            Record::Inspected { .. }
            | Record::Closed
            | Record::Wished { .. }
            | Record::Judged { .. }
            | Record::Checkpointed { .. }
            | Record::Evaluated { .. }
            | Record::TrialsChosen { .. }
            | Record::Observed { .. }
            | Record::Solved { .. }
            | Record::Retrying { .. }
            | Record::Excluded { .. }
            | Record::OwnerLeft { .. }
            | Record::OwnerCame { .. }
            | Record::Shared { .. }
            | Record::Guaranteed { .. }
            | Record::Interrupted { .. }
            | Record::RunEnded { .. } => {}
        }
    }

    /// A task is paused since then, or not any more.
    fn paused(&mut self, task: TaskId, since_s: Option<f64>) {
        self.with_task(task, |task| task.paused_s = since_s);
    }

    fn noted(&mut self, note: Note) {
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }

    fn launched(&mut self, state: &State, attempt: AttemptId, mut past: PastAttempt) {
        let now_s = past.launched_s;
        match past.purpose {
            Purpose::Trial => self.trials_took.began(now_s),
            Purpose::Train => {
                let live = state.attempts.get(&attempt);
                let live = live.filter(|_| state.task(past.task).steps.is_some());
                past.forecast_s = live.map(|live| state.time_left_s(live, live.until_step, now_s));
                if let (Some(Attempt { until_step: None, .. }), Some(left_s)) =
                    (live, past.forecast_s)
                {
                    self.errors.launched(past.task, now_s, left_s);
                }
                self.with_task(past.task, |task| task.attempts.push(attempt));
            }
            Purpose::Inspection => {}
        }
        self.attempts.insert(attempt, past);
    }

    fn stood_still(&mut self, for_s: f64, now_s: f64) {
        self.standstills.add(for_s, now_s);
        self.errors.stood_still(for_s);
    }

    /// A task's training attempts, oldest first.
    pub fn training(
        &self,
        task: TaskId,
    ) -> impl DoubleEndedIterator<Item = (AttemptId, &PastAttempt)> {
        let ids = self.tasks.get(task.0).map_or(&[][..], |task| &task.attempts);
        ids.iter().filter_map(|id| Some((*id, self.attempts.get(id)?)))
    }

    /// The past of a task; `None` for an unknown task.
    pub fn task(&self, task: TaskId) -> Option<&PastTask> {
        self.tasks.get(task.0)
    }

    /// A task's moves, oldest first.
    pub fn moves(&self, task: TaskId) -> impl Iterator<Item = Move<'_>> {
        let ids = self.tasks.get(task.0).map_or(&[][..], |task| &task.attempts);
        ids.windows(2).filter_map(|pair| {
            let (from, to) = (self.attempts.get(&pair[0])?, self.attempts.get(&pair[1])?);
            (from.strategy != to.strategy || from.gang != to.gang).then_some(Move { from, to })
        })
    }

    /// The index of the plan that the run is judged by: the first plan that covers every task that
    /// ever got a place, unless it had ended. Earlier plans could not know all tasks, or left some
    /// out that waited for another trial. If no plan covers all, the first after which no new task
    /// got a place.
    pub fn reference_plan(&self) -> Option<usize> {
        let known = self.tasks.iter().filter_map(|task| task.first_plan).max()?;
        let later = self.plans.iter().enumerate().skip(known);
        let mut covering = later.filter(|(_, plan)| self.is_covered_by(plan));
        Some(covering.next().map_or(known, |(index, _)| index))
    }

    /// Whether a plan has a place for each task that ever got one and had not ended by then.
    fn is_covered_by(&self, plan: &RunPlan) -> bool {
        let placed: BTreeSet<usize> = plan.places.iter().map(|place| place.task.0).collect();
        self.tasks.iter().enumerate().all(|(index, task)| {
            let has_ended = task.ended_s.is_some_and(|ended_s| ended_s <= plan.at_s);
            task.first_plan.is_none() || has_ended || placed.contains(&index)
        })
    }

    /// Mean seconds of a trial from launch to end; `None` before a trial has ended.
    pub fn mean_trial_s(&self) -> Option<f64> {
        self.trials_took.mean_s()
    }

    /// The mean number of devices that trials held while any trial ran. `running_s` is the
    /// device-seconds of trials that run now. `None` before a trial has run for a while.
    pub(crate) fn trial_devices(&self, running_s: f64, now_s: f64) -> Option<f64> {
        self.trials_took.devices(running_s, now_s)
    }

    /// Device-seconds of the usable devices from one time to another.
    fn usable_device_s(&self, from_s: f64, to_s: f64) -> f64 {
        let ends_s = self.num_devices.iter().skip(1).map(|(at_s, _)| *at_s).chain([f64::INFINITY]);
        let spans = self.num_devices.iter().zip(ends_s);
        let within = spans.map(|((at_s, number), end_s)| {
            (end_s.min(to_s) - at_s.max(from_s)).max(0.0) * *number as f64
        });
        within.sum()
    }

    /// Device-seconds of the usable devices from one time to another, standstills of the driver left
    /// out.
    pub(crate) fn heard_device_s(&self, from_s: f64, to_s: f64) -> f64 {
        let spans = self.standstills.within(from_s, to_s);
        let unheard = spans.map(|(since_s, until_s)| self.usable_device_s(since_s, until_s));
        self.usable_device_s(from_s, to_s) - unheard.sum::<f64>()
    }

    /// The most devices that a node ever had.
    pub fn most_devices(&self, node: NodeId) -> u32 {
        let specs = self.pool.iter().filter(|change| change.node == node);
        let devices = specs.filter_map(|change| match &change.what {
            PoolEvent::Joined(spec) => Some(spec.gpus),
            _ => None,
        });
        devices.max().unwrap_or(0)
    }

    fn with_attempt(&mut self, id: AttemptId, change: impl FnOnce(&mut PastAttempt)) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            change(attempt);
        }
    }

    fn with_task(&mut self, id: TaskId, change: impl FnOnce(&mut PastTask)) {
        if let Some(task) = self.tasks.get_mut(id.0) {
            change(task);
        }
    }

    /// Turns a trial into training, counted from the trial's beginning.
    fn went_on(&mut self, state: &State, id: AttemptId, now_s: f64) {
        let Some(live) = state.attempts.get(&id) else { return };
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.purpose = Purpose::Train;
        attempt.strategy = Strategy::clone(&live.strategy);
        attempt.started = Some((state.task(live.task).checkpoint_step, now_s));
        let left_s = state.time_left_s(live, live.until_step, now_s);
        attempt.forecast_s = Some(now_s - attempt.launched_s + left_s);
        if live.until_step.is_none() {
            self.errors.launched(live.task, now_s, left_s);
        }
        if let Some(task) = self.tasks.get_mut(live.task.0) {
            task.attempts.push(id);
        }
    }

    fn attempt_ended(&mut self, id: AttemptId, end: &AttemptEnd, step: u64, now_s: f64) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let mut end = end.clone();
        if let AttemptEnd::Failed { failure } = &mut end {
            // Tracebacks are long, and the task's own end holds the one that matters.
            failure.traceback = String::new();
        }
        attempt.ended = Some(PastEnd { end, at_s: now_s, step });
        if attempt.purpose == Purpose::Trial {
            self.trials_took.ended(attempt.strategy.gpus, now_s - attempt.launched_s, now_s);
        }
    }

    /// How wrong this run's own forecasts on its present devices were, each list ascending.
    pub fn forecast_errors(&self) -> &ForecastErrors {
        self.errors.found()
    }

    /// The ratio of trained to tried seconds a step of a strategy that a trial of this run has measured
    /// on its present devices; `None` if it was not trained since. `group` is a profile key.
    pub fn trial_ratio(&self, group: &str, key: &TrialKey) -> Option<f64> {
        self.errors.trial_ratio(group, key)
    }

    /// How wrong its forecasts and trials were on each set of devices that it was driven on, by the
    /// description of each type of device.
    pub fn errors_by_hardware(&self) -> BTreeMap<BTreeMap<String, String>, ErrorsOn> {
        self.errors.by_hardware()
    }

    fn planned(&mut self, state: &State, plan: &Arc<RunPlan>) {
        let index = self.plans.len();
        for place in &plan.places {
            let Some(task) = self.tasks.get_mut(place.task.0) else { continue };
            match (&mut task.first_plan, &mut task.first_place) {
                (None, _) => {
                    task.first_plan = Some(index);
                    task.first_place = Some(place.clone());
                    task.planned_by = PlannedBy::of(state, place);
                }
                (Some(first), Some(known)) if *first == index => known.end_s = place.end_s,
                _ => {}
            }
        }
        self.num_places += plan.places.len();
        self.plans.push(Arc::clone(plan));
        if self.num_places > MAX_PLACES {
            self.thin_plans();
        }
    }

    /// Drops the places of the older half of those plans that may lose them.
    fn thin_plans(&mut self) {
        let reference = self.reference_plan();
        let last = self.plans.len() - 1;
        let older = (1..last)
            .filter(|index| Some(*index) != reference && !self.plans[*index].places.is_empty());
        let older: Vec<usize> = older.collect();
        for index in &older[..older.len().div_ceil(2)] {
            let plan = &mut self.plans[*index];
            self.num_places -= plan.places.len();
            *plan = Arc::new(plan.without_places());
        }
    }
}
