//! The plan in force, with tasks that have no place in it put behind it one by one.
//!
//! It needs no solver: it is what a new plan must beat, and what steps in where the solver gives
//! nothing. Each task gets the strategy with the least devices times seconds that the pool can hold
//! now, on the devices that are free first by the forecast.

use std::collections::BTreeSet;

use saturn_core::{Placement, WHOLE};

use crate::estimate::Choice;
use crate::forecast::{Forecast, follow};
use crate::ids::{DeviceId, NodeId, TaskId};
use crate::record::Place;
use crate::state::State;

/// The open places of the plan in force, and places behind them for those of `tasks` that have none.
pub(crate) fn extended(
    state: &State,
    mut places: Vec<Place>,
    tasks: &[TaskId],
    now_s: f64,
) -> Vec<Place> {
    let placed: BTreeSet<TaskId> = places.iter().map(|place| place.task).collect();
    // What trains without a place goes on: it is before all others.
    let without = tasks.iter().filter(|task| !placed.contains(task));
    places.splice(0..0, without.filter_map(|task| as_it_trains(state, *task, now_s)));
    let placed: BTreeSet<TaskId> = places.iter().map(|place| place.task).collect();
    let mut forecast = follow(state, &places, now_s);
    let mut missing: Vec<TaskId> =
        tasks.iter().copied().filter(|task| !placed.contains(task)).collect();
    missing.sort_by_key(|task| -state.task(*task).spec.wishes.priority);
    // Whoever waits for another must come behind it in the order.
    while !missing.is_empty() {
        let num_before = missing.len();
        missing.retain(|task| {
            let is_ready = state.waits_for(*task).all(|one| forecast.tasks.contains_key(&one));
            if !is_ready {
                return true;
            }
            if let Some(place) = put_behind(state, &forecast, *task, now_s) {
                forecast.hold(&place.gang, place.end_s);
                forecast.tasks.insert(*task, (place.start_s, place.end_s));
                places.push(place);
            }
            false
        });
        if missing.len() == num_before {
            break;
        }
    }
    places
}

/// The place of a task that trains and goes on as it does.
fn as_it_trains(state: &State, task: TaskId, now_s: f64) -> Option<Place> {
    let (_, attempt) = state.attempt_of(task)?;
    Some(Place {
        task,
        strategy: attempt.strategy.clone(),
        gang: attempt.gang.clone(),
        share: WHOLE,
        until_step: None,
        start_s: now_s,
        end_s: now_s + state.time_left_s(attempt, None, now_s),
    })
}

/// A place for a task behind all others.
fn put_behind(state: &State, forecast: &Forecast, task: TaskId, now_s: f64) -> Option<Place> {
    let pace = state.pace_of_waiting(task);
    let mut choices: Vec<(f64, Choice<'_>)> = state
        .choices(task)
        .filter_map(|choice| {
            let gpus = f64::from(choice.trial.strategy.gpus);
            Some((pace.time_s(choice.trial)? * gpus, choice))
        })
        .collect();
    choices.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (choice, (placement, free_s)) = choices.into_iter().find_map(|(_, choice)| {
        let place = soonest(state, forecast, &choice, now_s)?;
        Some((choice, place))
    })?;
    let strategy = choice.trial.strategy.clone();
    let state_of = state.task(task);
    let after = state.waits_for(task).filter_map(|one| forecast.tasks.get(&one));
    let start_s = after
        .map(|(_, end_s)| *end_s)
        .chain([free_s, state_of.not_before_s, state_of.spec.wishes.release_s])
        .fold(now_s, f64::max);
    let time_s = state.time_under_s(task, &strategy, choice.gpu_type)?;
    Some(Place {
        task,
        strategy,
        gang: vec![placement],
        share: WHOLE,
        until_step: None,
        start_s,
        end_s: start_s + time_s,
    })
}

/// The devices that are free first for a choice, all on one node, and when.
fn soonest(
    state: &State,
    forecast: &Forecast,
    choice: &Choice<'_>,
    now_s: f64,
) -> Option<(Placement, f64)> {
    let gpus = choice.trial.strategy.gpus as usize;
    let on = |node: NodeId| {
        let mut devices: Vec<(f64, u32)> = state
            .usable_devices(node)
            .map(|device| {
                let free_s = forecast.free_at.get(&DeviceId { node, device }).copied();
                (free_s.unwrap_or(now_s), device)
            })
            .collect();
        devices.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        devices.truncate(gpus);
        let free_s = devices.last()?.0;
        let mut devices: Vec<u32> = devices.into_iter().map(|(_, device)| device).collect();
        devices.sort_unstable();
        (devices.len() == gpus).then_some((Placement { node: node.0, devices }, free_s))
    };
    state
        .present_nodes()
        .filter(|node| state.gpu_type(*node) == choice.gpu_type)
        .filter_map(on)
        .min_by(|a, b| a.1.total_cmp(&b.1))
}
