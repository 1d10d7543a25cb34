//! Work for idle devices: a task that can start at once does not wait for the solver.
//!
//! A task that can be planned and has no place in the plan in force gets a place by the next solve.
//! But the engine pauses between solves, and a solve takes time. If such a task could start
//! meanwhile on idle devices, the plan in force is extended (`extend`) and followed at once. The
//! solver improves on the extended plan later.
//!
//! Of the tasks that could start at once, the task with the largest weight is put first, with the
//! strategy that the extended plan would give it. Whether a task could start is asked of the idle
//! devices, of their nodes' host memory and of its owner's quota alone. So a look that starts nothing takes no longer in
//! a plan with many places.
//!
//! A task that is started in this way may have to move when the solver's answer comes, which costs
//! a checkpoint and another launch. If an answer is likely to come sooner than that cost,
//! `following` waits for it, and no longer than that. The first answer is also waited for as long
//! as the solver was given.

use std::sync::Arc;

use saturn_core::WHOLE;

use crate::facts::ids::{NodeId, TaskId};
use crate::facts::plan::Place;
use crate::following::dispatch::follow_plan;
use crate::following::host_memory::{HostMemoryQueue, has_host_memory_beside};
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::planning::adopting::adopt_extended;
use crate::planning::asking::Planning;
use crate::planning::extend::by_device_seconds;
use crate::planning::plannable::Plannable;
use crate::state::breadth::holds;
use crate::state::run::State;
use crate::state::stakes::Stakes;
use crate::state::task::TaskStatus;
use crate::state::trial::TrialKey;
use crate::state::vacancies::Vacancies;

/// Extends the plan in force, if a task without a place could start at once.
pub(crate) fn put_idle_to_work(
    ledger: &mut Ledger,
    planning: &Planning,
    host_memory: &mut HostMemoryQueue,
    now_s: f64,
) {
    if !std::mem::take(&mut ledger.idle.is_to_look)
        || !planning.is_behind(&ledger.agenda.planning)
        || !ledger.idle.devices.iter().any(|device| ledger.is_at_hand(*device))
    {
        return;
    }
    // Nothing else tells that a wait is over, or that a release has come.
    if let Some(next_s) = ledger.idle.next_start_s(&ledger.state, now_s) {
        ledger.timers.set(next_s, Timer::Idle);
    }
    let Some(first) = first_to_start(ledger, host_memory, now_s) else { return };
    let undo_s = undo_s(&ledger.state, first.task);
    if let Some(until_s) = planning.worth_waiting_until_s(undo_s, now_s) {
        ledger.timers.set(until_s, Timer::Idle);
        return;
    }
    let open = ledger.state.open_places().map(|(_, place)| place.clone());
    let places = open.chain([first]).collect();
    adopt_extended(ledger, places, now_s);
    follow_plan(ledger, host_memory, now_s);
}

/// The place of the task that is to start first on idle devices; `None` if no task without a place
/// could start there at once.
fn first_to_start(ledger: &Ledger, host_memory: &HostMemoryQueue, now_s: f64) -> Option<Place> {
    let mut ready = ready(ledger, now_s);
    if ready.is_empty() {
        return None;
    }
    let (state, stakes) = (&ledger.state, Stakes::of(&ledger.state, now_s));
    ready.sort_by(|a, b| stakes.weight(state, *b).total_cmp(&stakes.weight(state, *a)));
    let at_hand = ledger.idle.devices.iter().copied().filter(|one| ledger.is_at_hand(*one));
    let mut vacancies = Vacancies::among(state, at_hand);
    ready
        .into_iter()
        .find_map(|task| place_at_once(ledger, host_memory, &mut vacancies, task, now_s))
}

/// A place of a task on devices that are at hand, with the strategy that the extended plan would
/// give the task; `None` if these devices, their nodes' host memory or its owner's quota are too little.
fn place_at_once(
    ledger: &Ledger,
    host_memory: &HostMemoryQueue,
    vacancies: &mut Vacancies,
    task: TaskId,
    now_s: f64,
) -> Option<Place> {
    let state = &ledger.state;
    let mut choices = by_device_seconds(state, task).into_iter();
    let (time_s, choice) = choices
        .find(|(_, one)| holds(&state.usable_breadths, one.gpu_type, one.trial.strategy.gpus))?;
    let strategy = choice.trial.strategy.clone();
    if !state.may_hold_more(task, strategy.gpus) {
        return None;
    }
    let (group, end_s) = (state.task(task).group, now_s + time_s);
    let key = TrialKey { strategy: strategy.key(), gpu_type: choice.gpu_type.to_owned() };
    let has_memory = |node: NodeId, ranks: u32| {
        let needed = state.host_bytes(group, &key, ranks);
        let asks = (Some(task), group, &key);
        has_host_memory_beside(ledger, host_memory, node, asks, needed, (now_s, end_s))
    };
    let gang = Arc::new(vacancies.take(choice.gpu_type, strategy.gpus, has_memory)?);
    let (share, until_step, is_estimate) = (WHOLE, None, false);
    Some(Place { task, strategy, gang, share, until_step, is_estimate, start_s: now_s, end_s })
}

/// The tasks without a place that nothing but devices keeps from starting, ascending.
fn ready(ledger: &Ledger, now_s: f64) -> Vec<TaskId> {
    let state = &ledger.state;
    let mut find = Plannable::of(state);
    let mut ready = Vec::new();
    for (group, tasks) in ledger.idle.without_place.groups() {
        if find.must_wait(group) {
            continue;
        }
        let is_ready = |task: &TaskId| {
            let of = state.task(*task);
            of.status == TaskStatus::Waiting
                && of.may_start_s() <= now_s
                && state.may_hold_more(*task, 1)
                && state.is_measured(*task)
                && state.waits_for(*task).next().is_none()
                && !state.has_place(*task)
        };
        // They come after no open task, so that it is enough to ask about them alone. All tasks are
        // looked at only where the plan is extended.
        let tasks = tasks.iter().copied().filter(is_ready);
        ready.extend(tasks.filter(|task| find.is_by_itself(*task)));
    }
    ready.sort_unstable();
    ready
}

/// Seconds that a start costs a task at most if the solver then chooses another strategy: a
/// checkpoint and another launch.
fn undo_s(state: &State, task: TaskId) -> f64 {
    let is_going_on = state.task(task).step > 0;
    let load_s = state.choices(task).map(|choice| choice.trial.load_s(is_going_on));
    state.save_s(task).unwrap_or(0.0) + load_s.fold(0.0, f64::max)
}
