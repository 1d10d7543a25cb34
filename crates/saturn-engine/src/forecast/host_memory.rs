//! Waiting for host memory, by the rules by which tasks start (`following/host_memory`).
//!
//! A gang takes its bytes from its start to its end, and starts only if they are free or if nothing
//! else takes any. Each node keeps memory for the place that has waited longest among those that are
//! first in all their queues. Another may start before it only if it ends before the oldest could
//! start, or if both fit then. So places are not followed in their order, but in the order of their starts.
//!
//! Where the gangs that can meet on a node never take more than it has, none of this is looked at.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::Gang;

use crate::facts::ids::{DeviceId, NodeId, TaskId, devices};
use crate::facts::plan::Place;
use crate::knowledge::host_needs::HostNeeds;
use crate::state::attempt::Attempt;
use crate::state::by_device::ByDevice;
use crate::state::host_memory::num_devices;
use crate::state::places::is_over;
use crate::state::run::State;

/// A moment, as a number that is ordered as moments are. The bits of floats from 0 on are.
pub(super) type Moment = u64;

/// The moment of a time.
pub(super) fn moment(time_s: f64) -> Moment {
    time_s.max(0.0).to_bits()
}

/// The nodes whose host memory may run short, and what places take of it.
pub(super) struct HostMemory {
    nodes: BTreeMap<usize, NodeMemory>,
    /// For each place, the nodes among these that it takes some of, and bytes.
    needs: Vec<Vec<(usize, u64)>>,
}

/// One such node.
struct NodeMemory {
    total: u64,
    /// Ends and bytes of the gangs that have started.
    taken: Vec<(f64, u64)>,
    /// Places that wait for memory here, those that have waited longest first.
    waiters: BTreeSet<(Moment, usize)>,
}

impl NodeMemory {
    fn taken_at(&self, at_s: f64) -> u64 {
        let there = self.taken.iter().filter(|(end_s, _)| *end_s > at_s);
        there.fold(0, |taken, (_, bytes)| taken.saturating_add(*bytes))
    }

    /// The first time from `at_s` on at which no more than `most` bytes are taken.
    fn free_s(&self, most: Option<u64>, at_s: f64) -> f64 {
        let is_free = |at_s: &f64| {
            let taken = self.taken_at(*at_s);
            taken == 0 || most.is_some_and(|most| taken <= most)
        };
        if is_free(&at_s) {
            return at_s;
        }
        let mut ends: Vec<f64> =
            self.taken.iter().map(|(end_s, _)| *end_s).filter(|end_s| *end_s > at_s).collect();
        ends.sort_by(f64::total_cmp);
        // When the last has ended, nothing is taken.
        ends.into_iter().find(is_free).unwrap_or(at_s)
    }
}

impl HostMemory {
    /// `None` if host memory runs short nowhere. The attempts that hold devices are given with their
    /// ends.
    pub(super) fn of(state: &State, places: &[Place], live: &[(&Attempt, f64)]) -> Option<Self> {
        let mut of_strategies = HostNeeds::of(state)?;
        let mut needs: Vec<Vec<(usize, u64)>> = Vec::with_capacity(places.len());
        let mut most: ByDevice<u64> = ByDevice::of(&state.nodes);
        for place in places {
            let mut on_nodes = Vec::new();
            if !is_over(state, place) {
                let group = state.task(place.task).group;
                for part in place.gang.iter() {
                    let gpu_type = state.gpu_type(NodeId(part.node));
                    let ranks = num_devices(part);
                    let bytes = of_strategies.on_node(group, &place.strategy, gpu_type, ranks);
                    on_nodes.push((part.node, bytes));
                }
                note_most(&mut most, &place.gang, &on_nodes);
            }
            needs.push(on_nodes);
        }
        let mut taken: BTreeMap<usize, Vec<(f64, u64)>> = BTreeMap::new();
        for (attempt, end_s) in live {
            let nodes = attempt.gang.iter().map(|part| part.node);
            let on_nodes: Vec<(usize, u64)> =
                nodes.map(|node| (node, state.host_bytes_of(attempt, NodeId(node)))).collect();
            note_most(&mut most, &attempt.gang, &on_nodes);
            for (node, bytes) in on_nodes {
                taken.entry(node).or_default().push((*end_s, bytes));
            }
        }
        let mut together: BTreeMap<usize, u64> = BTreeMap::new();
        for device in most.devices() {
            let of_node = together.entry(device.node.0).or_default();
            *of_node = of_node.saturating_add(most.get(device).unwrap_or(0));
        }
        let nodes: BTreeMap<usize, NodeMemory> = together
            .into_iter()
            .filter_map(|(node, together)| {
                let total = state.host_memory_of(NodeId(node))?;
                let taken = taken.remove(&node).unwrap_or_default();
                let memory = NodeMemory { total, taken, waiters: BTreeSet::new() };
                (together > total).then_some((node, memory))
            })
            .collect();
        if nodes.is_empty() {
            return None;
        }
        for on_nodes in &mut needs {
            on_nodes.retain(|(node, bytes)| *bytes > 0 && nodes.contains_key(node));
        }
        Some(Self { nodes, needs })
    }

    /// Whether a place that has been ready since a moment can start at `at_s`, to end at `end_s`;
    /// otherwise when to look again.
    pub(super) fn ready_or_later(
        &mut self,
        (index, since): (usize, Moment),
        at_s: f64,
        end_s: f64,
    ) -> Result<(), f64> {
        let mut later_s = at_s;
        for (node, bytes) in &self.needs[index] {
            let memory = &self.nodes[node];
            let free_s = memory.free_s(memory.total.checked_sub(*bytes), at_s);
            later_s = later_s.max(free_s);
            if free_s <= at_s && self.delays_oldest((since, index), (*node, *bytes), at_s, end_s) {
                let given_back = memory.taken.iter().map(|(end_s, _)| *end_s);
                let next_s = given_back.filter(|end_s| *end_s > at_s).min_by(f64::total_cmp);
                later_s = later_s.max(next_s.unwrap_or(at_s));
            }
        }
        for (node, _) in &self.needs[index] {
            let Some(memory) = self.nodes.get_mut(node) else { continue };
            if later_s > at_s {
                memory.waiters.insert((since, index));
            } else {
                memory.waiters.remove(&(since, index));
            }
        }
        if later_s > at_s { Err(later_s) } else { Ok(()) }
    }

    /// A place waits for something else: no memory is kept for it. Returns whether memory was.
    pub(super) fn leave(&mut self, (index, since): (usize, Moment)) -> bool {
        let mut has_waited = false;
        for (node, _) in &self.needs[index] {
            if let Some(memory) = self.nodes.get_mut(node) {
                has_waited |= memory.waiters.remove(&(since, index));
            }
        }
        has_waited
    }

    /// Whether a place would delay the place that has waited longest on a node, if that has waited longer
    /// than itself. It does not if both fit once that place can start, or if it ends by then.
    fn delays_oldest(
        &self,
        own: (Moment, usize),
        (node, bytes): (usize, u64),
        at_s: f64,
        end_s: f64,
    ) -> bool {
        let memory = &self.nodes[&node];
        let oldest = memory.waiters.first().filter(|oldest| **oldest < own);
        let Some((_, oldest)) = oldest else { return false };
        let kept = self.needs[*oldest].iter().find(|(of, _)| *of == node).map_or(0, |(_, it)| *it);
        let free_s = memory.free_s(memory.total.checked_sub(kept), at_s);
        let both = memory.taken_at(free_s).saturating_add(kept).saturating_add(bytes);
        both > memory.total && end_s > free_s
    }

    /// A place has started, and ends at `end_s`.
    pub(super) fn hold(&mut self, index: usize, at_s: f64, end_s: f64) {
        for (node, bytes) in &self.needs[index] {
            if let Some(memory) = self.nodes.get_mut(node) {
                memory.taken.retain(|(end_s, _)| *end_s > at_s);
                memory.taken.push((end_s, *bytes));
            }
        }
    }
}

/// Notes on each device of a gang its share of what the gang takes of the node. Gangs that meet on a
/// node take no more together than the largest shares of all its devices.
fn note_most(most: &mut ByDevice<u64>, gang: &Gang, on_nodes: &[(usize, u64)]) {
    for (part, (_, bytes)) in gang.iter().zip(on_nodes) {
        let share = bytes.div_ceil(u64::from(num_devices(part)).max(1));
        for device in part.devices.iter().copied() {
            if let Some(most) = most.slot(DeviceId { node: NodeId(part.node), device }) {
                *most = Some(most.unwrap_or(0).max(share));
            }
        }
    }
}

/// Which places must be settled before others: the place before it on each device, the place before
/// it of the same task, and the last place of each task that it comes after.
pub(super) struct Order {
    /// How many places each still waits for.
    pub(super) num_before: Vec<usize>,
    /// The places that wait for each.
    pub(super) behind: Vec<Vec<usize>>,
}

impl Order {
    pub(super) fn of(state: &State, places: &[Place]) -> Self {
        let mut order =
            Self { num_before: vec![0; places.len()], behind: vec![Vec::new(); places.len()] };
        let mut on_device: ByDevice<usize> = ByDevice::of(&state.nodes);
        let mut of_task: BTreeMap<TaskId, usize> = BTreeMap::new();
        for (index, place) in places.iter().enumerate() {
            let mut before: BTreeSet<usize> =
                of_task.get(&place.task).copied().into_iter().collect();
            before.extend(state.waits_for(place.task).filter_map(|one| of_task.get(&one).copied()));
            for device in devices(&place.gang) {
                if let Some(last) = on_device.slot(device) {
                    before.extend(last.replace(index));
                }
            }
            of_task.insert(place.task, index);
            order.num_before[index] = before.len();
            for one in before {
                order.behind[one].push(index);
            }
        }
        order
    }

    /// A place is settled: the places that waited for it alone.
    pub(super) fn settled(&mut self, index: usize) -> Vec<usize> {
        let behind = std::mem::take(&mut self.behind[index]);
        let open = |one: &usize| {
            self.num_before[*one] -= 1;
            self.num_before[*one] == 0
        };
        behind.into_iter().filter(open).collect()
    }
}
