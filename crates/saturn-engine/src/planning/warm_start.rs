//! What is left of the plan in force, as an answer to the problem of what is left of the run.
//!
//! The solver starts from this plan. A plan counts its times on the run's clock, and a problem from
//! when it is asked for. A task that trains as the plan says starts at 0: so the solver knows that
//! it stays. All other places start later, in the plan's order. Beyond that, only the order, the
//! gangs and the shares of this plan mean anything: it may lack tasks.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Assignment, Plan};

use crate::facts::ids::TaskId;
use crate::facts::plan::Place;
use crate::planning::problem::{LEAST_RUNTIME_S, Remaining};
use crate::state::run::State;

/// The open places of the plan in force as a plan of this problem. A task is left out if one of its
/// places doesn't fit the problem.
pub(crate) fn warm_start(remaining: &Remaining, state: &State) -> Option<Plan> {
    let tasks = remaining.tasks.iter().enumerate();
    let index_of: BTreeMap<TaskId, usize> = tasks.map(|(index, task)| (task.id, index)).collect();
    let known = state.open_places().filter_map(|(_, place)| {
        let index = *index_of.get(&place.task)?;
        (!place.is_done_at(remaining.tasks[index].step)).then_some((index, place))
    });
    let known: Vec<(usize, &Place)> = known.collect();
    let stays = |index: usize, place: &Place| {
        let attempt = state.attempt_of(place.task).map(|(_, attempt)| attempt);
        remaining.problem.tasks[index].running.is_some()
            && attempt.is_some_and(|one| one.strategy == place.strategy && one.gang == *place.gang)
    };
    let waiting = known.iter().filter(|(index, place)| !stays(*index, place));
    let first_s = waiting.map(|(_, place)| place.start_s).fold(f64::INFINITY, f64::min);
    // The first of them may be late by now.
    let zero_s = remaining.asked_s.min(first_s - LEAST_RUNTIME_S);
    let mut reached: Vec<u64> = remaining.tasks.iter().map(|task| task.step).collect();
    let mut without_place = BTreeSet::new();
    let mut assignments = Vec::with_capacity(known.len());
    for (index, place) in known {
        let steps = state.task(place.task).steps.unwrap_or(0);
        let left = steps.saturating_sub(remaining.tasks[index].step).max(1) as f64;
        let until = place.until_step.unwrap_or(steps);
        let is_first = reached[index] == remaining.tasks[index].step;
        let start_s = if is_first && stays(index, place) { 0.0 } else { place.start_s - zero_s };
        let strategy = candidate(remaining, state, index, place)
            .filter(|_| state.has_shape_for(&place.gang, place.strategy.gpus));
        let assignment = strategy.and_then(|strategy| {
            Some(Assignment {
                task: index,
                strategy,
                gang: remaining.problem_gang(&place.gang)?,
                share: until.saturating_sub(reached[index]) as f64 / left,
                start_s,
                end_s: (place.end_s - zero_s).max(start_s),
            })
        });
        reached[index] = until;
        match assignment {
            Some(assignment) => assignments.push(assignment),
            None => _ = without_place.insert(index),
        }
    }
    assignments.retain(|one| !without_place.contains(&one.task));
    (!assignments.is_empty()).then(|| Plan { assignments, ..Plan::none(remaining.objective) })
}

/// Which candidate of its task a place is: its strategy on devices of its type.
fn candidate(remaining: &Remaining, state: &State, index: usize, place: &Place) -> Option<usize> {
    let gpu_type = state.gang_type(&place.gang);
    let candidates = &remaining.problem.tasks[index].strategies;
    let mut both = remaining.tasks[index].strategies.iter().zip(candidates);
    both.position(|(strategy, candidate)| {
        *strategy == place.strategy && candidate.gpu_type.as_deref() == Some(gpu_type)
    })
}
