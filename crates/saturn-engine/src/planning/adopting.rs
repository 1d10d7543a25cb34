//! Which plan is adopted.
//!
//! One forecast (`forecast`) judges every plan that may be adopted, from the present state and by
//! the rules by which plans are followed. The candidates are the solver's answer, and the same
//! answer with running tasks left where they are. Both must beat the plan in force with new tasks
//! put behind it (`extend`). Where running tasks are moved, the gain must be `min_gain` of the time
//! left, and `min_gain_s`. Where none is moved, a little is enough. Deadlines come before any gain,
//! if the solver was told to keep them. So a plan promises the times that following it gives, and
//! a solve that fails costs a better plan, never a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Assignment, Objective, PlanStatus, WHOLE};

use crate::facts::event::SolveAnswer;
use crate::facts::ids::{DeviceId, NodeId, TaskId, devices};
use crate::facts::plan::{Place, PlanSource, RunPlan};
use crate::facts::record::Record;
use crate::forecast::follow::{Forecast, follow};
use crate::ledger::book::Ledger;
use crate::planning::extend::{extended, without_place};
use crate::planning::idle_switches::{switches_idly, without_idle_switches};
use crate::planning::problem::{Remaining, RemainingTask, plannable};
use crate::planning::taking_up::take_up_plan;
use crate::planning::validity::{stale, too_early};
use crate::state::run::State;
use crate::state::trial::TrialState;

/// Share of the time left that a new plan must save where it moves no running task. Such a plan
/// costs nothing, but the forecasts that are compared are not exact.
const MIN_GAIN_IN_PLACE: f64 = 0.005;
/// Makespans that differ by less, as a share, are equal: the forecasts of two plans differ by a step
/// where a task is cut.
const EQUAL: f64 = 1e-4;
/// A planned start that is this close to the present counts as the present, seconds.
const AT_ONCE_S: f64 = 1e-6;

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
    let objective = remaining.objective;
    let open: Vec<Place> = state.open_places().map(|(_, place)| place.clone()).collect();
    let is_complete = without_place(state, tasks, &open).is_empty();
    let value = |rival: &Rival| rival.forecast.value(state, objective, now_s);
    // Deadlines come first, if the solver was told to keep them.
    let lateness = |rival: &Rival| {
        if remaining.keeps_deadlines { rival.forecast.lateness_s(state, now_s) } else { 0.0 }
    };
    // The mean end decides only between plans of equal makespans.
    let ends = |rival: &Rival| match objective {
        Objective::Makespan => rival.forecast.value(state, Objective::Completion, now_s),
        _ => 0.0,
    };
    let standing = Rival::new(state, extended(state, open, tasks, now_s), now_s);
    let standing_value = value(&standing);
    let standing_ends = ends(&standing);
    let standing_late = lateness(&standing);
    let (answer, places) = solved.unzip();
    let rivals = places.into_iter().flat_map(|places| {
        let in_place = keep_in_place(state, places);
        let left = moves_any(state, &in_place).then(|| leave_running(state, &in_place));
        let whole = switches_idly(&in_place).then(|| without_idle_switches(&in_place));
        left.into_iter().chain(whole).chain([in_place])
    });
    let min_gain_s = ledger.state.config.policy.min_gain_s;
    let best = rivals
        .map(|places| extended(state, places, tasks, now_s))
        .filter(|places| is_followable(state, places))
        .map(|places| Rival::new(state, places, now_s))
        .filter(|rival| {
            // Attempts that could not be resumed are not stopped, so a plan that moves one would
            // not be followed.
            let mut moved = rival.forecast.moved.iter();
            moved.all(|id| !state.is_to_stay(&state.attempts[id]))
        })
        .map(|rival| (lateness(&rival), value(&rival), rival))
        .min_by(|(late, a, one), (later, b, other)| {
            if (late - later).abs() > EQUAL * standing_value {
                return late.total_cmp(later);
            }
            // A plan that stops tasks must gain its cost also over a plan that leaves them running.
            let bar = |rival: &Rival| {
                let stops = !rival.forecast.moved.is_empty() || switches_idly(&rival.places);
                if stops { min_gain_s } else { 0.0 }
            };
            let (a, b) = (a + bar(one), b + bar(other));
            let are_equal = (a - b).abs() <= EQUAL * standing_value;
            if are_equal { ends(one).total_cmp(&ends(other)) } else { a.total_cmp(&b) }
        });
    let best_s = best.as_ref().map(|(.., best)| best.forecast.end_s - now_s);
    let min_gain = ledger.state.config.policy.min_gain;
    let better = best.filter(|(late, value, best)| {
        if (late - standing_late).abs() > EQUAL * standing_value {
            return *late < standing_late;
        }
        let is_moving = best.forecast.moved.len() > standing.forecast.moved.len();
        let needed = if is_moving { min_gain } else { min_gain.min(MIN_GAIN_IN_PLACE) };
        // If some tasks have no place in the plan in force, any better plan will do.
        let needed = if is_complete { needed * standing_value } else { 0.0 };
        let needed = if is_moving { needed.max(min_gain_s) } else { needed };
        let ends_needed = if is_complete { MIN_GAIN_IN_PLACE * standing_ends } else { 0.0 };
        let ends_earlier = !is_moving
            && *value <= standing_value * (1.0 + EQUAL)
            && standing_ends - ends(best) > ends_needed;
        standing_value - value > needed || ends_earlier
    });
    let instead_of_s =
        (ledger.state.plan.is_some() && is_complete).then_some(standing.forecast.end_s - now_s);
    match (better, answer) {
        (Some((.., best)), Some(answer)) => {
            let plan = best.into_plan(Some(answer), PlanSource::Solver, now_s);
            adopt(ledger, of_all(RunPlan { instead_of_s, ..plan }, remaining), now_s);
        }
        (None, answer) if !is_complete && !standing.places.is_empty() => {
            let is_new = ledger.state.plan.is_none();
            let source = match (answer, reason) {
                // The run has no plan yet that could be extended, so people are told that this one
                // is the solver's.
                (Some(_), None) if is_new => PlanSource::Solver,
                (_, reason) => PlanSource::Extended { reason },
            };
            let plan = standing.into_plan(answer, source, now_s);
            adopt(ledger, of_all(plan, remaining), now_s);
        }
        (None, Some(_)) => {
            let time_left_s = standing.forecast.end_s - now_s;
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
    let plan = Rival::new(state, places, now_s).into_plan(None, source, now_s);
    adopt(ledger, plan, now_s);
    ledger.agenda.ask_again();
}

pub(crate) fn adopt(ledger: &mut Ledger, plan: RunPlan, now_s: f64) {
    ledger.commit(Record::Planned { plan: Arc::new(plan) }, now_s);
    take_up_plan(ledger, now_s);
}

/// The plan without the figure of current practice, if tasks have come into the plan since that
/// figure was worked out.
fn of_all(plan: RunPlan, asked: &Remaining) -> RunPlan {
    let known: BTreeSet<_> = asked.tasks.iter().map(|task| task.id).collect();
    let is_of_all = plan.places.iter().all(|place| known.contains(&place.task));
    RunPlan { current_practice_s: plan.current_practice_s.filter(|_| is_of_all), ..plan }
}

/// A plan that might be adopted, and its forecast.
pub(crate) struct Rival {
    pub(crate) places: Vec<Place>,
    pub(crate) forecast: Forecast,
}

impl Rival {
    pub(crate) fn new(state: &State, mut places: Vec<Place>, now_s: f64) -> Self {
        for place in &mut places {
            place.is_estimate = is_estimate(state, place);
        }
        let forecast = follow(state, &places, now_s);
        Self { places, forecast }
    }

    /// The plan with the times that the forecast promises.
    pub(crate) fn into_plan(
        self,
        answer: Option<&SolveAnswer>,
        source: PlanSource,
        now_s: f64,
    ) -> RunPlan {
        let Self { mut places, forecast } = self;
        for (place, times) in places.iter_mut().zip(&forecast.places) {
            if let Some((start_s, end_s)) = times {
                (place.start_s, place.end_s) = (*start_s, *end_s);
            }
        }
        let makespan_s = (forecast.end_s - now_s).max(0.0);
        let lower_bound_s = answer.map_or(0.0, |answer| answer.plan.lower_bound_s).min(makespan_s);
        let is_optimal = lower_bound_s > 0.0 && makespan_s <= lower_bound_s * (1.0 + 1e-6);
        RunPlan {
            at_s: now_s,
            source,
            status: if is_optimal { PlanStatus::Optimal } else { PlanStatus::Feasible },
            makespan_s,
            lower_bound_s,
            solve_s: answer.map_or(0.0, |answer| answer.plan.solve_s),
            current_practice_s: answer.and_then(|answer| answer.current_practice_s),
            practice_is_estimate: answer.is_some_and(|answer| answer.practice_is_estimate),
            instead_of_s: None,
            places,
        }
    }
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
            gang,
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

/// Whether a place's times rest on an estimate alone.
fn is_estimate(state: &State, place: &Place) -> bool {
    place.gang.first().is_some_and(|part| {
        let gpu_type = state.gpu_type(NodeId(part.node));
        let trial = state.trial_of(place.task, &place.strategy, gpu_type);
        trial.is_some_and(TrialState::is_estimate)
    })
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

/// Whether the places can be followed. Every place must have as many devices as its strategy says,
/// each once. All must be usable, on as many nodes as the strategy may take. No task may stand
/// before a task that it must come after. The engine checks this itself, whatever the solver's own
/// checker said.
fn is_followable(state: &State, places: &[Place]) -> bool {
    too_early(state, places).is_empty()
        && places.iter().all(|place| {
            let mut parts = place.gang.iter();
            parts.all(|part| part.devices.windows(2).all(|pair| pair[0] < pair[1]))
                && state.has_shape_for(&place.gang, place.strategy.gpus)
                && state.can_hold(&place.gang)
        })
}

/// Whether any running task would not go on to its end as it trains now.
fn moves_any(state: &State, places: &[Place]) -> bool {
    let mut staying = BTreeSet::new();
    for place in places {
        let Some((_, attempt)) = state.attempt_of(place.task) else { continue };
        if place.start_s > AT_ONCE_S
            || place.until_step.is_some()
            || place.strategy != attempt.strategy
            || place.gang != attempt.gang
        {
            return true;
        }
        staying.insert(place.task);
    }
    state.running().any(|(task, _)| !staying.contains(&task))
}

/// The same places, with running tasks first, as they train now, and all others behind them in
/// order.
fn leave_running(state: &State, places: &[Place]) -> Vec<Place> {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for place in places {
        let attempt = state.attempt_of(place.task).map(|(_, attempt)| attempt);
        let attempt = attempt.filter(|one| one.stopping.is_none() && !one.is_dying());
        let Some(attempt) = attempt else {
            others.push(place.clone());
            continue;
        };
        if seen.insert(place.task) {
            first.push(Place {
                strategy: attempt.strategy.clone(),
                gang: attempt.gang.clone(),
                share: WHOLE,
                until_step: None,
                ..place.clone()
            });
        }
    }
    first.extend(others);
    first
}

/// Renames devices of each node, so that tasks that train stay where they are. They must start
/// first in the new plan, under their present strategy. Devices of a node are interchangeable, so
/// the plan stays valid.
fn keep_in_place(state: &State, mut places: Vec<Place>) -> Vec<Place> {
    if !moves_any(state, &places) {
        return places;
    }
    let mut renamed: BTreeMap<DeviceId, DeviceId> = BTreeMap::new();
    let mut targets = BTreeSet::new();
    // On all other nodes the devices are right already.
    let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
    for place in places.iter().filter(|place| place.start_s <= AT_ONCE_S) {
        let Some((_, attempt)) = state.attempt_of(place.task) else { continue };
        let same_nodes = place.gang.len() == attempt.gang.len()
            && place
                .gang
                .iter()
                .zip(&attempt.gang)
                .all(|(a, b)| a.node == b.node && a.devices.len() == b.devices.len());
        if attempt.strategy == place.strategy && same_nodes {
            for (from, to) in devices(&place.gang).zip(devices(&attempt.gang)) {
                renamed.insert(from, to);
                targets.insert(to);
                if from != to {
                    nodes.insert(from.node);
                }
            }
        }
    }
    for node in nodes {
        let all: Vec<_> =
            state.usable_devices(node).map(|device| DeviceId { node, device }).collect();
        let free_targets: Vec<_> =
            all.iter().filter(|one| !targets.contains(one)).copied().collect();
        let sources: Vec<_> =
            all.iter().filter(|one| !renamed.contains_key(one)).copied().collect();
        renamed.extend(sources.into_iter().zip(free_targets));
    }
    for place in &mut places {
        for placement in &mut place.gang {
            let node = NodeId(placement.node);
            for device in &mut placement.devices {
                let from = DeviceId { node, device: *device };
                *device = renamed.get(&from).map_or(*device, |to| to.device);
            }
            placement.devices.sort_unstable();
        }
    }
    places
}
