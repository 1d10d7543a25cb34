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
use crate::planning::problem::{plannable, plannable_among};
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
    let state = &ledger.state;
    ledger.idle.without_place.retain(|task| !state.has_ended(*task) && !state.has_place(*task));
    let may_start_s = |task: &TaskId| {
        let of = state.task(*task);
        of.not_before_s.max(of.spec.wishes.release_s)
    };
    // Nothing else tells that a wait is over, or that a release has come.
    let later_s = ledger.idle.without_place.iter().map(may_start_s).filter(|at_s| *at_s > now_s);
    let next_s = later_s.min_by(f64::total_cmp);
    let is_ready = |task: &TaskId| {
        state.task(*task).status == TaskStatus::Waiting
            && may_start_s(task) <= now_s
            && state.is_measured(*task)
            && state.waits_for(*task).next().is_none()
    };
    let ready = ledger.idle.without_place.iter().copied().filter(is_ready);
    // They come after no open task, so that it is enough to ask about them alone. All tasks are
    // looked at only where the plan is extended.
    let ready = plannable_among(state, ready);
    if let Some(next_s) = next_s {
        ledger.timers.set(next_s, Timer::Idle);
    }
    let state = &ledger.state;
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

/// Seconds that a start costs a task at most if the solver then chooses another strategy: a
/// checkpoint and another launch.
fn undo_s(state: &State, task: TaskId) -> f64 {
    let is_going_on = state.task(task).step > 0;
    let load_s = state.choices(task).map(|choice| choice.trial.load_s(is_going_on));
    state.save_s(task).unwrap_or(0.0) + load_s.fold(0.0, f64::max)
}
