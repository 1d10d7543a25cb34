//! The outcome of a run in numbers: the realised makespan and times, compared with the plan.
//!
//! Times are on the run's clock, which stands still while no process drives the run.

use saturn_core::Lateness;
use saturn_engine::{Purpose, RunPlan, Stage, State, TaskId};

use crate::facts::history::History;
use crate::facts::standstills::MOST_UNHEARD;

/// The plan that the run is judged by (see [`History::reference_plan`]).
pub fn reference_plan(history: &History) -> Option<&RunPlan> {
    history.plans.get(history.reference_plan()?).map(AsRef::as_ref)
}

/// Seconds from the reference plan to the end of the last training attempt; `None` if none has
/// ended after that plan.
pub fn realised_makespan_s(history: &History) -> Option<f64> {
    let at_s = reference_plan(history)?.at_s;
    let last_s = trained_until_s(history)?;
    (last_s > at_s).then_some(last_s - at_s)
}

/// Seconds from the run's start, or from the first task's arrival if that was later, to the end of
/// the last training attempt. Trials and the starts of drivers count, but the time between two
/// drivers does not. `None` before an attempt has ended.
pub fn total_s(state: &State, history: &History) -> Option<f64> {
    let first_s = state.tasks.iter().map(|task| task.added_s).reduce(f64::min)?;
    Some(trained_until_s(history)? - first_s + startup_s(state, history))
}

/// The part of [`total_s`] in which drivers started (prepared tasks, imported torch) and the run's
/// clock stood still, seconds.
pub fn startup_s(state: &State, history: &History) -> f64 {
    let first_s = state.tasks.iter().map(|task| task.added_s).reduce(f64::min);
    let range = first_s.zip(trained_until_s(history));
    let within = |at_s: f64| range.is_some_and(|(from_s, to_s)| (from_s..=to_s).contains(&at_s));
    let startups = history.startups.iter().filter(|startup| within(startup.at_s));
    startups.fold(0.0, |sum, startup| sum + startup.took_s) // `sum` of nothing is -0.0
}

/// Seconds that current practice would take from its start to its end. Current practice starts
/// once, which takes as long as the start of the run's first driver, and needs no trials. Training
/// before the reference plan counts as it happened.
pub fn practice_total_s(history: &History) -> Option<f64> {
    let plan = reference_plan(history)?;
    let trained = history.attempts.values().filter(|attempt| attempt.purpose == Purpose::Train);
    let first_s = trained.map(|attempt| attempt.launched_s).fold(plan.at_s, f64::min);
    let startup_s = history.startups.first().map_or(0.0, |startup| startup.took_s);
    Some(startup_s + plan.at_s - first_s + plan.current_practice_s?)
}

/// Whether all steps of every planned task were trained. If not, as in a search, the run did less
/// work than its plans and bounds assume.
pub fn did_all_that_was_planned(state: &State, history: &History) -> bool {
    state.task_ids().all(|task| {
        let was_planned = history.task(task).is_some_and(|past| past.first_plan.is_some());
        !was_planned || has_all_steps(state, task)
    })
}

/// Whether all steps of a task are trained: the task is done, and its own code did not end it
/// early.
fn has_all_steps(state: &State, task: TaskId) -> bool {
    let is_trained = matches!(state.stage(task), Stage::Done | Stage::Diverged);
    is_trained && state.task(task).steps.is_none_or(|all| state.task(task).step >= all)
}

/// When the last ended training attempt ended, seconds.
pub fn trained_until_s(history: &History) -> Option<f64> {
    let trained = history.attempts.values().filter(|attempt| attempt.purpose == Purpose::Train);
    trained.filter_map(|attempt| Some(attempt.ended.as_ref()?.at_s)).reduce(f64::max)
}

/// How late tasks are after their deadlines: tasks that ended by themselves, by the end of their
/// training, and open tasks whose deadline has passed, by now. A task that failed or was cancelled
/// does not count. `None` if no task counts.
pub fn lateness(state: &State, history: &History) -> Option<Lateness> {
    Lateness::of(state.task_ids().filter_map(|task| {
        let due_s = state.task(task).spec.wishes.deadline_s?;
        let end_s = match state.stage(task) {
            Stage::Done | Stage::Diverged | Stage::Stopped => {
                let ends =
                    history.training(task).filter_map(|(_, one)| Some(one.ended.as_ref()?.at_s));
                ends.reduce(f64::max)
            }
            Stage::Failed | Stage::Cancelled => None,
            _ => Some(state.now_s).filter(|now_s| *now_s > due_s),
        };
        Some((due_s, end_s?))
    }))
}

/// Seconds in which a task trained, until `now_s`: the sum over its training attempts, from launch
/// to end. Waiting between attempts does not count. `None` for a task that never trained.
pub fn train_s(history: &History, task: TaskId, now_s: f64) -> Option<f64> {
    let taken_s = history.training(task).map(|(_, attempt)| attempt.taken_s(now_s));
    taken_s.reduce(|sum, one| sum + one)
}

/// The part of [`train_s`] in which the driver stood still and heard nothing, seconds; 0 if that
/// was too short to matter. The task may have trained then, or have ended long before the driver
/// heard of its end.
pub(crate) fn unheard_s(history: &History, task: TaskId, now_s: f64) -> f64 {
    let unheard = history.training(task).map(|(_, attempt)| {
        let launched_s = attempt.launched_s;
        history.standstills.seconds(launched_s, launched_s + attempt.taken_s(now_s))
    });
    let unheard_s = unheard.fold(0.0, |sum, one| sum + one);
    let taken_s = train_s(history, task, now_s).unwrap_or(0.0);
    if unheard_s > MOST_UNHEARD * taken_s { unheard_s } else { 0.0 }
}

/// Seconds that a task's first place planned for it. `None` unless the task trained in one attempt
/// as planned there, as only then plan and training cover the same work; and unless the driver
/// listened, as only then it is known how long the task took.
pub fn planned_s(history: &History, task: TaskId, now_s: f64) -> Option<f64> {
    let place = history.task(task)?.first_place.as_ref()?;
    let mut attempts = history.training(task);
    let (_, only) = attempts.next()?;
    let is_as_planned = attempts.next().is_none() && only.strategy.is_of(&place.strategy.key());
    let planned_s = place.end_s - place.start_s;
    let was_heard = unheard_s(history, task, now_s) <= 0.0;
    (is_as_planned && was_heard && planned_s > 0.0).then_some(planned_s)
}

/// The ratio of realised to planned seconds of a task, less one. `None` unless all its steps are
/// trained and [`planned_s`] has a value.
pub fn estimate_error(state: &State, history: &History, task: TaskId) -> Option<f64> {
    has_all_steps(state, task)
        .then(|| {
            Some(
                train_s(history, task, state.now_s)? / planned_s(history, task, state.now_s)? - 1.0,
            )
        })
        .flatten()
}
