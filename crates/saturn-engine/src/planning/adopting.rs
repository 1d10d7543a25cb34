//! Which plan is adopted.
//!
//! The candidates are the solver's answer and its `variants`. The best of them by the forecast is
//! set against the plan in force with new tasks put behind it (`incumbent`), and adopted if it is
//! enough better. A solve that fails costs a better plan, never a task.

use std::collections::BTreeSet;
use std::sync::Arc;

use saturn_core::Assignment;

use crate::facts::event::SolveAnswer;
use crate::facts::ids::TaskId;
use crate::facts::plan::{Place, PlanSource, RunPlan};
use crate::facts::record::Record;
use crate::ledger::book::Ledger;
use crate::planning::extend::{extended, without_place};
use crate::planning::incumbent::{ForecastPlan, Incumbent};
use crate::planning::plannable::plannable;
use crate::planning::problem::{Remaining, RemainingTask};
use crate::planning::taking_up::take_up_plan;
use crate::planning::validity::stale;
use crate::planning::variants::variants;
use crate::state::run::State;

/// Adopts the plan that is best by the forecast, if it is enough better than the plan in force.
/// `tasks` are those that must have a place in it.
pub(crate) fn choose(
    ledger: &mut Ledger,
    solved: Option<(&SolveAnswer, Vec<Place>)>,
    remaining: &Remaining,
    tasks: &[TaskId],
    reason: Option<String>,
    now_s: f64,
) {
    let state = &ledger.state;
    let open: Vec<Place> = state.open_places().map(|(_, place)| place.clone()).collect();
    let is_complete = without_place(state, tasks, &open).is_empty();
    let open = extended(state, open, tasks, now_s);
    let incumbent = Incumbent::new(state, open, is_complete, remaining, now_s);
    let (answer, places) = solved.unzip();
    let best = places.and_then(|places| incumbent.best_of(variants(state, places), tasks));
    let best_s = best.as_ref().map(|best| best.forecast.end_s - now_s);
    let better = best.filter(|best| incumbent.is_enough_better(best));
    let incumbent = incumbent.plan;
    let instead_of_s =
        (ledger.state.plan.is_some() && is_complete).then_some(incumbent.forecast.end_s - now_s);
    match (better, answer) {
        (Some(best), Some(answer)) => {
            let plan = best.into_plan(Some((answer, remaining)), PlanSource::Solver, now_s);
            adopt(
                ledger,
                without_stale_practice(RunPlan { instead_of_s, ..plan }, remaining),
                now_s,
            );
        }
        (None, answer) if !is_complete && !incumbent.places.is_empty() => {
            let is_new = ledger.state.plan.is_none();
            let source = match (answer, reason) {
                // The run has no plan yet that could be extended, so people are told that this one
                // is the solver's.
                (Some(_), None) if is_new => PlanSource::Solver,
                (_, reason) => PlanSource::Extended { reason },
            };
            let answer = answer.map(|answer| (answer, remaining));
            let plan = incumbent.into_plan(answer, source, now_s);
            adopt(ledger, without_stale_practice(plan, remaining), now_s);
        }
        (None, Some(_)) => {
            let time_left_s = incumbent.forecast.end_s - now_s;
            let best_s = best_s.unwrap_or(time_left_s);
            ledger.commit(Record::PlanKept { time_left_s, best_s }, now_s);
        }
        (_, None) => {}
    }
}

/// Adopts these places, with places behind them for tasks that have none, without the solver. The
/// solver is asked next.
pub(crate) fn adopt_extended(ledger: &mut Ledger, places: Vec<Place>, now_s: f64) {
    let state = &ledger.state;
    let places = extended(state, places, &plannable(state), now_s);
    let source = PlanSource::Extended { reason: None };
    let plan = ForecastPlan::new(state, places, now_s).into_plan(None, source, now_s);
    adopt(ledger, plan, now_s);
    ledger.agenda.ask_again();
}

pub(crate) fn adopt(ledger: &mut Ledger, plan: RunPlan, now_s: f64) {
    ledger.commit(Record::Planned { plan: Arc::new(plan) }, now_s);
    take_up_plan(ledger, now_s);
}

/// The plan without the figure of current practice, if tasks have come into the plan since that
/// figure was worked out.
fn without_stale_practice(plan: RunPlan, asked: &Remaining) -> RunPlan {
    let known: BTreeSet<_> = asked.tasks.iter().map(|task| task.id).collect();
    let is_of_all = plan.places.iter().all(|place| known.contains(&place.task));
    let current_practice_s = plan.current_practice_s.filter(|_| is_of_all);
    let practice_is_estimate = plan.practice_is_estimate && current_practice_s.is_some();
    RunPlan { current_practice_s, practice_is_estimate, ..plan }
}

/// The places of the solver's answer, by start, on the run's devices. Tasks that have ended
/// meanwhile are left out.
pub(crate) fn places(
    state: &State,
    remaining: &Remaining,
    answer: &SolveAnswer,
) -> Result<Vec<Place>, String> {
    let wrong = || "the solver planned what it was not asked for, a fault in Saturn".to_owned();
    let mut assignments: Vec<&Assignment> = answer.plan.assignments.iter().collect();
    assignments.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.task.cmp(&b.task)));
    let mut done: Vec<f64> = vec![0.0; remaining.tasks.len()];
    let mut reached: Vec<u64> = remaining.tasks.iter().map(|task| task.step).collect();
    let mut num_left = vec![0usize; remaining.tasks.len()];
    for one in &assignments {
        *num_left.get_mut(one.task).ok_or_else(wrong)? += 1;
    }
    let mut places = Vec::new();
    for assignment in assignments {
        let index = assignment.task;
        let RemainingTask { id, strategies, step, .. } = &remaining.tasks[index];
        done[index] += assignment.share;
        num_left[index] -= 1;
        let until_step = state.task(*id).steps.filter(|_| num_left[index] > 0).map(|steps| {
            let left = steps.saturating_sub(*step);
            // Every segment trains at least a step.
            let last = steps.saturating_sub(num_left[index] as u64);
            reached[index] =
                (step + rounded(done[index] * left as f64)).max(reached[index] + 1).min(last);
            reached[index]
        });
        let strategy = strategies.get(assignment.strategy).ok_or_else(wrong)?.clone();
        let gang = remaining.real_gang(&assignment.gang).ok_or_else(wrong)?;
        if state.has_ended(*id) {
            continue;
        }
        places.push(Place {
            task: *id,
            strategy,
            gang: Arc::new(gang),
            share: assignment.share,
            until_step,
            is_estimate: false,
            start_s: assignment.start_s,
            end_s: assignment.end_s,
        });
    }
    // Tasks that have changed since the solver was asked lose their places; the other places may
    // still be good.
    let mut changed = stale(state, &places);
    // The solver knows no limit to the nodes of a gang.
    let most = state.config.policy.max_nodes as usize;
    let too_many = places.iter().filter(|place| place.gang.len() > most);
    changed.extend(too_many.map(|place| place.task));
    places.retain(|place| !changed.contains(&place.task));
    Ok(places)
}

fn rounded(steps: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of steps"
    )]
    let steps = steps.max(0.0).round() as u64;
    steps
}
