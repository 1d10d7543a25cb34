//! Work for idle devices: a task that can start at once does not wait for the solver.
//!
//! A task that can be planned and has no place in the plan in force gets a place by the next solve.
//! But the engine pauses between solves, and a solve takes time. If such a task could start
//! meanwhile on an idle device, the plan in force is extended (`extend`) and followed at once. The
//! solver improves on the extended plan later.
//!
//! A task that is started in this way may have to move when the solver's answer comes, which costs
//! a checkpoint and another launch. If an answer is likely to come sooner than that cost,
//! `following` waits for it, and no longer than that. The first answer is also waited for as long
//! as the solver was given.

use crate::facts::ids::TaskId;
use crate::facts::plan::PlanSource;
use crate::following::dispatch::follow_plan;
use crate::following::host_memory::HostMemoryQueue;
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::planning::adopting::adopt;
use crate::planning::asking::Planning;
use crate::planning::extend::extended;
use crate::planning::incumbent::ForecastPlan;
use crate::planning::plannable::{Plannable, plannable};
use crate::state::run::State;
use crate::state::task::TaskStatus;

/// Extends the plan in force, if a task without a place would start at once.
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
    let state = &ledger.state;
    let ready = ready(ledger, now_s);
    if ready.is_empty() {
        return;
    }
    let undo_s = ready.iter().map(|task| undo_s(state, *task)).fold(0.0, f64::max);
    if let Some(until_s) = planning.worth_waiting_until_s(undo_s, now_s) {
        ledger.timers.set(until_s, Timer::Idle);
        return;
    }
    let tasks = plannable(state);
    let open = state.open_places().map(|(_, place)| place.clone()).collect();
    let places = extended(state, open, &tasks, now_s);
    let standing = ForecastPlan::new(state, places, now_s);
    let mut times = standing.places.iter().zip(&standing.forecast.places);
    let starts_one = times.any(|(place, times)| {
        times.is_some_and(|(start_s, _)| start_s <= now_s)
            && ready.binary_search(&place.task).is_ok()
            && ledger.are_at_hand(&place.gang)
    });
    if starts_one {
        let source = PlanSource::Extended { reason: None };
        let plan = standing.into_plan(None, source, now_s);
        adopt(ledger, plan, now_s);
        ledger.agenda.ask_again();
        follow_plan(ledger, host_memory, now_s);
    }
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
