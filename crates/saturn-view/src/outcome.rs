//! What came of a run, in numbers: the realised makespan and times, against the plan.
//!
//! Times are on the run's clock; nothing is counted while no process drove the run.

use saturn_core::TrialOutcome;
use saturn_engine::{Purpose, RunPlan, Stage, State, TaskId};

use crate::history::History;

/// Tasks by where they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TaskCounts {
    /// All of them.
    pub all: usize,
    /// No strategy of them has been measured yet, and nothing that would be runs.
    #[serde(default)]
    pub unmeasured: usize,
    /// Their models, or models like theirs, are looked at.
    #[serde(default)]
    pub inspecting: usize,
    /// No strategy of them has been measured yet, and one is.
    pub measuring: usize,
    /// They could train, and wait.
    pub waiting: usize,
    /// Training.
    pub running: usize,
    /// Paused.
    pub paused: usize,
    /// Held by the stopper.
    #[serde(default)]
    pub held: usize,
    /// Trained to the end.
    pub done: usize,
    /// Trained to the end, where the loss was no finite number.
    #[serde(default)]
    pub diverged: usize,
    /// Given up.
    pub failed: usize,
    /// Not wanted any more.
    pub cancelled: usize,
    /// Ended by the stopper.
    #[serde(default)]
    pub stopped: usize,
}

impl TaskCounts {
    /// Counts the tasks of a run.
    pub fn of(state: &State) -> Self {
        let mut counts = Self { all: state.tasks.len(), ..Self::default() };
        for task in state.task_ids() {
            *match state.stage(task) {
                Stage::Unmeasured => &mut counts.unmeasured,
                Stage::Inspecting => &mut counts.inspecting,
                Stage::Measuring => &mut counts.measuring,
                Stage::Waiting => &mut counts.waiting,
                Stage::Running => &mut counts.running,
                Stage::Paused => &mut counts.paused,
                Stage::Done => &mut counts.done,
                Stage::Diverged => &mut counts.diverged,
                Stage::Failed => &mut counts.failed,
                Stage::Cancelled => &mut counts.cancelled,
                Stage::Held => &mut counts.held,
                Stage::Stopped => &mut counts.stopped,
            } += 1;
        }
        counts
    }

    /// Tasks that have not ended.
    pub fn open(&self) -> usize {
        let unmeasured = self.unmeasured + self.inspecting + self.measuring;
        unmeasured + self.waiting + self.running + self.paused + self.held
    }
}

/// Trials by what came of them. Those whose type of device is gone count too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TrialCounts {
    /// Measured.
    pub measured: usize,
    /// Refused by their technique.
    pub not_applicable: usize,
    /// Out of memory.
    pub out_of_memory: usize,
    /// Raised.
    pub failed: usize,
    /// Of all of these, known from an earlier search.
    pub reused: usize,
    /// Of all of these, never run: a look at the model has told.
    #[serde(default)]
    pub ruled_out: usize,
    /// Running.
    pub running: usize,
    /// To be run.
    pub open: usize,
}

impl TrialCounts {
    /// Counts the trials of a run.
    pub fn of(state: &State) -> Self {
        let mut counts = Self { open: state.num_open_trials(), ..Self::default() };
        let trials = state
            .groups
            .iter()
            .flat_map(|group| group.trials.iter().map(move |(key, trial)| (group, key, trial)));
        for (group, key, trial) in trials {
            let Some(outcome) = &trial.outcome else {
                counts.running += usize::from(trial.attempt.is_some());
                continue;
            };
            counts.reused += usize::from(trial.reused);
            counts.ruled_out += usize::from(!trial.reused && group.is_ruled_out(key));
            *match outcome {
                TrialOutcome::Measured { .. } => &mut counts.measured,
                TrialOutcome::NotApplicable { .. } => &mut counts.not_applicable,
                TrialOutcome::OutOfMemory { .. } => &mut counts.out_of_memory,
                TrialOutcome::Failed { .. } => &mut counts.failed,
            } += 1;
        }
        counts
    }

    /// Trials with an outcome, from an earlier search or this run's; without those never run.
    pub fn known(&self) -> usize {
        self.measured + self.not_applicable + self.out_of_memory + self.failed - self.ruled_out
    }

    /// Of this run's own trials: those with an outcome, and all.
    pub fn progress(&self) -> (usize, usize) {
        let known = self.known() - self.reused;
        (known, known + self.running + self.open)
    }
}

/// The plan that the run is judged by (see [`History::reference_plan`]).
pub fn reference_plan(history: &History) -> Option<&RunPlan> {
    history.plans.get(history.reference_plan()?)
}

/// Seconds from the reference plan to the end of the last training attempt; `None` before any has
/// ended since.
pub fn realised_makespan_s(history: &History) -> Option<f64> {
    let at_s = reference_plan(history)?.at_s;
    let last_s = trained_until_s(history)?;
    (last_s > at_s).then_some(last_s - at_s)
}

/// Seconds from the run's start, or the first task's arrival where that was later, to the end of the
/// last training attempt: trials and the starts of drivers included, the time between two drivers
/// not. `None` before any attempt has ended.
pub fn total_s(state: &State, history: &History) -> Option<f64> {
    let first_s = state.tasks.iter().map(|task| task.added_s).reduce(f64::min)?;
    Some(trained_until_s(history)? - first_s + startup_s(state, history))
}

/// Of [`total_s`], the seconds in which drivers started (preparing tasks, importing torch), while
/// the run's clock stood still.
pub fn startup_s(state: &State, history: &History) -> f64 {
    let first_s = state.tasks.iter().map(|task| task.added_s).reduce(f64::min);
    let range = first_s.zip(trained_until_s(history));
    let within = |at_s: f64| range.is_some_and(|(from_s, to_s)| (from_s..=to_s).contains(&at_s));
    let startups = history.startups.iter().filter(|startup| within(startup.at_s));
    startups.fold(0.0, |sum, startup| sum + startup.took_s) // `sum` of nothing is -0.0
}

/// Seconds that current practice would take from its start to its end. It starts once, as long as
/// the run's first driver did, and needs no trials; what had trained before the plan that it is
/// worked out with is taken as it was.
pub fn practice_total_s(history: &History) -> Option<f64> {
    let plan = reference_plan(history)?;
    let trained = history.attempts.values().filter(|attempt| attempt.purpose == Purpose::Train);
    let first_s = trained.map(|attempt| attempt.launched_s).fold(plan.at_s, f64::min);
    let startup_s = history.startups.first().map_or(0.0, |startup| startup.took_s);
    Some(startup_s + plan.at_s - first_s + plan.current_practice_s?)
}

/// Whether all steps were trained of every task that was ever planned. Where some were not, as in a
/// search, the run did less than any plan or bound speaks of.
pub fn did_all_that_was_planned(state: &State, history: &History) -> bool {
    state.task_ids().all(|task| {
        let was_planned = history.task(task).is_some_and(|past| past.first_plan.is_some());
        !was_planned || has_all_steps(state, task)
    })
}

/// Whether all steps of a task are trained: it is done, and its own code didn't end it earlier.
fn has_all_steps(state: &State, task: TaskId) -> bool {
    let is_trained = matches!(state.stage(task), Stage::Done | Stage::Diverged);
    is_trained && state.task(task).steps.is_none_or(|all| state.task(task).step >= all)
}

/// When the last training attempt that is over ended, seconds.
fn trained_until_s(history: &History) -> Option<f64> {
    let trained = history.attempts.values().filter(|attempt| attempt.purpose == Purpose::Train);
    trained.filter_map(|attempt| Some(attempt.ended.as_ref()?.at_s)).reduce(f64::max)
}

/// Seconds in which a task's gangs trained until `now_s`: the sum over its training attempts, from
/// launch to end. What it waited between them doesn't count. `None` of a task that never trained.
pub fn train_s(history: &History, task: TaskId, now_s: f64) -> Option<f64> {
    let taken_s = history.training(task).map(|(_, attempt)| attempt.taken_s(now_s));
    taken_s.reduce(|sum, one| sum + one)
}

/// Seconds that a task's first place gave it, where its training was one attempt as planned there:
/// only then do plan and training speak of the same thing.
pub fn planned_s(history: &History, task: TaskId) -> Option<f64> {
    let place = history.task(task)?.first_place.as_ref()?;
    let mut attempts = history.training(task);
    let (_, only) = attempts.next()?;
    let is_as_planned = attempts.next().is_none() && only.strategy.is_of(&place.strategy.key());
    let planned_s = place.end_s - place.start_s;
    (is_as_planned && planned_s > 0.0).then_some(planned_s)
}

/// Realised over planned seconds of a task, less one; `None` unless all its steps are trained and
/// [`planned_s`] holds.
pub fn estimate_error(state: &State, history: &History, task: TaskId) -> Option<f64> {
    has_all_steps(state, task)
        .then(|| Some(train_s(history, task, state.now_s)? / planned_s(history, task)? - 1.0))
        .flatten()
}
