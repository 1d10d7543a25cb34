//! The plan in force, with tasks that have no place in it put behind it one by one.
//!
//! An extended plan needs no solver. It is the plan that a new plan must beat, and the plan that
//! steps in where the solver gives none. Of the strategies that the pool can hold now, each task
//! gets the one with the least devices times seconds. It gets the devices that are free first by
//! the forecast, on a node with enough host memory for it alone. Tasks that the stopper has let go on come first: behind running tasks, before all
//! others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Gang, Placement, WHOLE};

use crate::facts::ids::{DeviceId, NodeId, TaskId};
use crate::facts::plan::Place;
use crate::forecast::follow::{Forecast, follow, staying};
use crate::knowledge::host_needs::HostNeeds;
use crate::knowledge::strategies::Choice;
use crate::state::run::State;
use crate::state::stakes::Stakes;

/// Adds places for the `tasks` that have no place, behind the given `places`.
pub(crate) fn extended(
    state: &State,
    mut places: Vec<Place>,
    tasks: &[TaskId],
    now_s: f64,
) -> Vec<Place> {
    let mut missing = without_place(state, tasks, &places);
    // Tasks that train without a place go on: they come before all others.
    let training: Vec<Place> =
        missing.iter().filter_map(|task| as_it_trains(state, *task, now_s)).collect();
    missing.retain(|task| state.attempt_of(*task).is_none());
    places.splice(0..0, training);
    let stakes = Stakes::of(state, now_s);
    missing.sort_by(|a, b| stakes.weight(state, *b).total_cmp(&stakes.weight(state, *a)));
    if !stakes.are_shared() {
        places = with_let_go_on_first(state, places, &mut missing, now_s);
    }
    if missing.is_empty() {
        return places;
    }
    let mut back = Back::of(state, &follow(state, &places, now_s), now_s);
    // A task that waits for another must come behind it in the order.
    while !missing.is_empty() {
        let num_before = missing.len();
        missing.retain(|task| {
            let is_ready = state.waits_for(*task).all(|one| back.ends.contains_key(&one));
            if is_ready {
                places.extend(back.put(state, *task));
            }
            !is_ready
        });
        if missing.len() == num_before {
            break;
        }
    }
    places
}

/// These places, in another order: the tasks that the stopper has let go on come behind running
/// tasks and before all others. Such tasks of `missing` get places there. Nothing changes where a
/// task of a higher priority waits.
fn with_let_go_on_first(
    state: &State,
    places: Vec<Place>,
    missing: &mut Vec<TaskId>,
    now_s: f64,
) -> Vec<Place> {
    let priority = |task: TaskId| state.task(task).spec.wishes.priority;
    let waiting = || places.iter().map(|place| place.task).chain(missing.iter().copied());
    let let_go_on = waiting().filter(|task| state.task(*task).is_let_go_on);
    let Some(highest) = let_go_on.map(priority).max() else { return places };
    if waiting().any(|task| state.attempt_of(task).is_none() && priority(task) > highest) {
        return places;
    }
    let is_first = |task: TaskId| {
        let of = state.task(task);
        of.is_let_go_on
            && priority(task) == highest
            && of.spec.wishes.release_s <= now_s
            && state.waits_for(task).next().is_none()
    };
    let staying: BTreeSet<usize> = staying(state, &places).into_values().collect();
    let (mut first, mut let_go_on, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (index, place) in places.into_iter().enumerate() {
        if staying.contains(&index) {
            first.push(place);
        } else if is_first(place.task) {
            let_go_on.push(place);
        } else {
            others.push(place);
        }
    }
    first.extend(let_go_on);
    let mut back = Back::of(state, &follow(state, &first, now_s), now_s);
    missing.retain(|task| {
        if is_first(*task) {
            first.extend(back.put(state, *task));
        }
        !is_first(*task)
    });
    first.extend(others);
    first
}

/// The tasks among `tasks` that have no place among `places`.
pub(crate) fn without_place(state: &State, tasks: &[TaskId], places: &[Place]) -> Vec<TaskId> {
    let mut has_place = vec![false; state.tasks.len()];
    for place in places {
        has_place[place.task.0] = true;
    }
    tasks.iter().copied().filter(|task| !has_place[task.0]).collect()
}

/// The strategies that a task may run under, each with the seconds that it would take from launch to
/// end, those first that take the least devices times seconds.
pub(crate) fn by_device_seconds(state: &State, task: TaskId) -> Vec<(f64, Choice<'_>)> {
    let pace = state.pace(task);
    let choices = state.choices(task);
    let mut choices: Vec<(f64, Choice<'_>)> =
        choices.filter_map(|choice| Some((pace.time_s(choice)?, choice))).collect();
    let device_s =
        |(time_s, choice): &(f64, Choice<'_>)| time_s * f64::from(choice.trial.strategy.gpus);
    choices.sort_by(|a, b| device_s(a).total_cmp(&device_s(b)));
    choices
}

/// A place for a task that goes on as it trains now.
fn as_it_trains(state: &State, task: TaskId, now_s: f64) -> Option<Place> {
    let (_, attempt) = state.attempt_of(task).filter(|(_, attempt)| !attempt.is_lost)?;
    Some(Place {
        task,
        strategy: attempt.strategy.clone(),
        gang: Arc::new(attempt.gang.clone()),
        share: WHOLE,
        until_step: None,
        is_estimate: false,
        start_s: now_s,
        end_s: now_s + state.time_left_s(attempt, None, now_s),
    })
}

/// The end of a plan: when each device is free for good.
struct Back<'a> {
    now_s: f64,
    /// What strategies take of host memory, where nodes have only so much.
    needs: Option<HostNeeds<'a>>,
    /// Usable devices of each node, in the order in which they become free.
    free: BTreeMap<NodeId, Vec<(Time, u32)>>,
    /// For each type and number of devices, when each node has so many free.
    soonest: BTreeMap<(String, u32), BTreeSet<(Time, NodeId)>>,
    /// When each task ends.
    ends: BTreeMap<TaskId, f64>,
}

/// A time from 0 on, which can be ordered: the bits of such floats are ordered as the floats are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Time(u64);

impl Time {
    fn of(time_s: f64) -> Self {
        Self(time_s.max(0.0).to_bits())
    }

    fn s(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl<'a> Back<'a> {
    fn of(state: &'a State, forecast: &Forecast, now_s: f64) -> Self {
        let mut free = BTreeMap::new();
        for node in state.present_nodes() {
            let mut devices: Vec<(Time, u32)> = state
                .usable_devices(node)
                .map(|device| {
                    let free_s = forecast.free_at.get(DeviceId { node, device });
                    (Time::of(free_s.unwrap_or(now_s)), device)
                })
                .collect();
            devices.sort_unstable();
            free.insert(node, devices);
        }
        let ends = forecast.tasks.iter().map(|(task, (_, end_s))| (*task, *end_s)).collect();
        Self { now_s, needs: HostNeeds::of(state), free, soonest: BTreeMap::new(), ends }
    }

    /// A place for a task behind all others.
    fn put(&mut self, state: &'a State, task: TaskId) -> Option<Place> {
        let choices = by_device_seconds(state, task);
        let (time_s, choice, (free_s, parts)) =
            choices.into_iter().find_map(|(time_s, choice)| {
                let (gpu_type, gpus) = (choice.gpu_type, choice.trial.strategy.gpus);
                let first = if state.is_wide(gpu_type, gpus) {
                    self.first_across(state, gpu_type, gpus)?
                } else {
                    let group = state.task(task).group;
                    let bytes = self
                        .needs
                        .as_mut()
                        .map_or(0, |needs| needs.planned(group, &choice.trial.strategy, gpu_type));
                    let (free_s, node) = self.first(state, gpu_type, gpus, bytes)?;
                    (free_s, vec![(node, gpus)])
                };
                Some((time_s, choice, first))
            })?;
        let strategy = choice.trial.strategy.clone();
        let of = state.task(task);
        let after = state.waits_for(task).filter_map(|one| self.ends.get(&one).copied());
        let start_s = after
            .chain([free_s.s(), of.not_before_s, of.spec.wishes.release_s])
            .fold(self.now_s, f64::max);
        let end_s = start_s + time_s;
        self.ends.insert(task, end_s);
        let mut gang: Gang = parts
            .into_iter()
            .map(|(node, gpus)| Placement {
                node: node.0,
                devices: self.hold(state, node, gpus, end_s),
            })
            .collect();
        gang.sort_by_key(|part| part.node);
        let (gang, share) = (Arc::new(gang), WHOLE);
        let (until_step, is_estimate) = (None, false);
        Some(Place { task, strategy, gang, share, until_step, is_estimate, start_s, end_s })
    }

    /// The node of a type that has so many free devices first, and when, among the nodes with so many
    /// bytes of host memory.
    fn first(
        &mut self,
        state: &State,
        gpu_type: &str,
        gpus: u32,
        bytes: u64,
    ) -> Option<(Time, NodeId)> {
        let free = &self.free;
        let nodes = self.soonest.entry((gpu_type.to_owned(), gpus)).or_insert_with(|| {
            free.iter()
                .filter(|(node, _)| state.gpu_type(**node) == gpu_type)
                .filter_map(|(node, devices)| Some((devices.get(gpus as usize - 1)?.0, *node)))
                .collect()
        });
        let has = |node: NodeId| state.host_memory_of(node).is_none_or(|has| has >= bytes);
        nodes.iter().find(|(_, node)| has(*node)).or_else(|| nodes.first()).copied()
    }

    /// Nodes of a type for a wide gang, with how many devices of each, and when they are free. They
    /// are whole nodes, those that are free first, and a part of one more node.
    fn first_across(
        &self,
        state: &State,
        gpu_type: &str,
        gpus: u32,
    ) -> Option<(Time, Vec<(NodeId, u32)>)> {
        let of_type = self.free.iter().filter(|(node, _)| state.gpu_type(**node) == gpu_type);
        let mut nodes: Vec<(Time, NodeId, usize)> = of_type
            .filter_map(|(node, devices)| Some((devices.last()?.0, *node, devices.len())))
            .collect();
        // If a gang may not take all nodes that there are, only the largest can hold it.
        let most = state.config.policy.max_nodes as usize;
        if most < nodes.len() {
            nodes.sort_unstable_by_key(|(_, node, num_devices)| (Reverse(*num_devices), *node));
            nodes.truncate(most);
        }
        nodes.sort_unstable();
        let (mut parts, mut left, mut free) = (Vec::new(), gpus as usize, Time::of(self.now_s));
        for (whole, node, num_devices) in nodes {
            let num_taken = num_devices.min(left);
            free = free.max(if num_taken == num_devices {
                whole
            } else {
                self.free[&node][num_taken - 1].0
            });
            parts.push((node, u32::try_from(num_taken).unwrap_or(u32::MAX)));
            left -= num_taken;
            if left == 0 {
                return Some((free, parts));
            }
        }
        None
    }

    /// Holds the devices of a node that become free first; returns them, ascending.
    fn hold(&mut self, state: &State, node: NodeId, gpus: u32, until_s: f64) -> Vec<u32> {
        let Some(free) = self.free.get_mut(&node) else { return Vec::new() };
        let before = free.clone();
        let mut devices = Vec::new();
        for (time, device) in free.iter_mut().take(gpus as usize) {
            *time = Time::of(until_s);
            devices.push(*device);
        }
        free.sort_unstable();
        let gpu_type = state.gpu_type(node);
        let widths = self.soonest.iter_mut().filter(|((of, _), _)| of == gpu_type);
        for ((_, width), nodes) in widths {
            let last = *width as usize - 1;
            if let (Some(old), Some(new)) = (before.get(last), free.get(last)) {
                nodes.remove(&(old.0, node));
                nodes.insert((new.0, node));
            }
        }
        devices.sort_unstable();
        devices
    }
}
