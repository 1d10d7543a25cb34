//! The solver's answer, and plans like it that stop fewer tasks.
//!
//! The solver doesn't know everything that a stop costs. So its answer is judged beside the same
//! answer with running tasks left where they are, and without switches that make no task faster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::WHOLE;

use crate::facts::ids::{DeviceId, NodeId, devices};
use crate::facts::plan::Place;
use crate::state::run::State;

/// A planned start that is this close to the present counts as the present, seconds.
const AT_ONCE_S: f64 = 1e-6;

/// The plans that are judged for an answer of the solver; the answer itself is the last of them.
pub(crate) fn variants(state: &State, places: Vec<Place>) -> Vec<Vec<Place>> {
    let in_place = keep_in_place(state, places);
    let left = moves_any(state, &in_place).then(|| leave_running(state, &in_place));
    let whole = switches_idly(&in_place).then(|| without_idle_switches(&in_place));
    left.into_iter().chain(whole).chain([in_place]).collect()
}

/// Whether any running task would not go on to its end as it trains now.
fn moves_any(state: &State, places: &[Place]) -> bool {
    let mut staying = BTreeSet::new();
    for place in places {
        let Some((_, attempt)) = state.attempt_of(place.task) else { continue };
        if place.start_s > AT_ONCE_S
            || place.until_step.is_some()
            || place.strategy != attempt.strategy
            || *place.gang != attempt.gang
        {
            return true;
        }
        staying.insert(place.task);
    }
    state.running().any(|(task, _)| !staying.contains(&task))
}

/// Whether a task is to be switched between places under the same strategy. Such a switch only
/// makes room for others; the task itself becomes no faster.
pub(crate) fn switches_idly(places: &[Place]) -> bool {
    num_idle_switches(places) > 0
}

/// The number of such switches.
pub(crate) fn num_idle_switches(places: &[Place]) -> usize {
    let mut last = BTreeMap::new();
    let idle = places.iter().filter(|place| {
        let before = last.insert(place.task, &place.strategy);
        before.is_some_and(|before| *before == place.strategy)
    });
    idle.count()
}

/// The same places, but each task stays in one place for as long as its strategy is the same.
fn without_idle_switches(places: &[Place]) -> Vec<Place> {
    let mut kept: Vec<Place> = Vec::new();
    for place in places {
        let before = kept.iter_mut().rev().find(|one| one.task == place.task);
        match before {
            Some(before) if before.strategy == place.strategy => {
                before.share += place.share;
                before.until_step = place.until_step;
            }
            _ => kept.push(place.clone()),
        }
    }
    kept
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
                gang: Arc::new(attempt.gang.clone()),
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
        for placement in Arc::make_mut(&mut place.gang) {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use saturn_core::{Knobs, Placement, Strategy};

    use super::*;
    use crate::facts::ids::TaskId;

    /// Half of a task on one device.
    fn half(task: usize, technique: &str, device: u32, until_step: Option<u64>) -> Place {
        let (technique, knobs) = (technique.into(), Knobs::new());
        Place {
            task: TaskId(task),
            strategy: Arc::new(Strategy { technique, gpus: 1, knobs }),
            gang: Arc::new(vec![Placement { node: 0, devices: vec![device] }]),
            share: 0.5,
            until_step,
            is_estimate: false,
            start_s: 0.0,
            end_s: 0.0,
        }
    }

    #[test]
    fn a_switch_from_device_to_device_under_one_strategy_is_left_out() {
        let idle = [half(0, "ddp", 0, Some(50)), half(1, "ddp", 2, None), half(0, "ddp", 1, None)];
        assert!(switches_idly(&idle));
        let kept = without_idle_switches(&idle);
        let whole = Place { share: 1.0, ..half(0, "ddp", 0, None) };
        assert_eq!(kept, [whole, half(1, "ddp", 2, None)]);
    }

    #[test]
    fn a_switch_to_another_strategy_is_kept() {
        let real = [half(0, "ddp", 0, Some(50)), half(0, "offload", 1, None)];
        assert!(!switches_idly(&real));
        assert_eq!(without_idle_switches(&real), real);
    }
}
