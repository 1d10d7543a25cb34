//! Where trials have room: the devices of each node that are free, or will be before long.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use saturn_core::{Gang, Placement};

use crate::facts::ids::{DeviceId, NodeId};
use crate::facts::record::Purpose;
use crate::state::run::State;

/// What trials may use of each node: devices that are free, and devices that other trials hold.
#[derive(Debug)]
pub(crate) struct Rooms {
    by_type: BTreeMap<String, Vec<Room>>,
    node_widths: BTreeMap<String, u32>,
    max_nodes: usize,
}

#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) node: NodeId,
    free: Vec<u32>,
    /// Held by trials and by what stops, and so free before long.
    pub(crate) lent: u32,
    /// All that can be used.
    pub(crate) devices: u32,
}

impl Room {
    /// Devices that are free, or will be before long.
    pub(crate) fn soon(&self) -> u32 {
        self.num_free() + self.lent
    }

    fn num_free(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    fn free_devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.free.iter().map(|device| DeviceId { node: self.node, device: *device })
    }
}

impl Rooms {
    pub(crate) fn of(state: &State) -> Self {
        let mut rooms: BTreeMap<String, Vec<Room>> = BTreeMap::new();
        for node in state.present_nodes() {
            let mut room = Room { node, free: Vec::new(), lent: 0, devices: 0 };
            for device in state.usable_devices(node) {
                room.devices += 1;
                let holder = state.device(DeviceId { node, device }).and_then(|one| one.held_by);
                match holder.and_then(|id| state.attempts.get(&id)) {
                    None => room.free.push(device),
                    Some(attempt)
                        if attempt.purpose == Purpose::Trial || attempt.stopping.is_some() =>
                    {
                        room.lent += 1;
                    }
                    Some(_) => {}
                }
            }
            rooms.entry(state.gpu_type(node).to_owned()).or_default().push(room);
        }
        let max_nodes = state.config.policy.max_nodes as usize;
        Self { by_type: rooms, node_widths: state.node_widths.clone(), max_nodes }
    }

    /// At most how many trials of a width fit, and one more that may wait.
    pub(crate) fn most(&self, gpu_type: &str, gpus: u32) -> usize {
        let rooms = self.by_type.get(gpu_type).into_iter().flatten();
        rooms.map(|room| room.free.len() / gpus.max(1) as usize).sum::<usize>() + 1
    }

    /// Whether there is a node that a trial, or its part there, would fit if it had the devices.
    pub(crate) fn can_hold(
        &self,
        gpu_type: &str,
        gpus: u32,
        fits: impl Fn(NodeId, u32) -> bool,
    ) -> bool {
        let is_wide = self.is_wide(gpu_type, gpus);
        let mut rooms = self.by_type.get(gpu_type).into_iter().flatten();
        rooms.any(|room| {
            (is_wide || room.devices >= gpus) && fits(room.node, gpus.min(room.devices))
        })
    }

    /// Whether a trial's devices are free.
    pub(crate) fn has_free(&self, gpu_type: &str, gpus: u32) -> bool {
        self.has(gpu_type, gpus, Room::num_free)
    }

    /// Devices for a trial, where they are free and so many of its ranks fit the node.
    pub(crate) fn take(
        &mut self,
        gpu_type: &str,
        gpus: u32,
        fits: impl Fn(NodeId, u32) -> bool,
    ) -> Option<Gang> {
        if self.is_wide(gpu_type, gpus) {
            let parts = self.spread(gpu_type, gpus, Room::num_free)?;
            if !parts.iter().all(|(node, gpus)| fits(*node, *gpus)) {
                return None;
            }
            let mut gang: Gang =
                parts.into_iter().map(|(node, gpus)| self.take_of(node, gpus)).collect();
            gang.sort_by_key(|part| part.node);
            return Some(gang);
        }
        let rooms = self.by_type.get(gpu_type)?;
        let room = rooms.iter().find(|room| room.num_free() >= gpus && fits(room.node, gpus))?;
        let node = room.node;
        Some(vec![self.take_of(node, gpus)])
    }

    fn take_of(&mut self, node: NodeId, gpus: u32) -> Placement {
        let mut devices = Vec::new();
        if let Some(room) = self.room(node) {
            devices.extend(room.free.drain(..gpus as usize));
            room.lent += gpus;
        }
        Placement { node: node.0, devices }
    }

    /// Devices of a node are free before long.
    pub(crate) fn lend(&mut self, node: NodeId, gpus: u32) {
        if let Some(room) = self.room(node) {
            room.lent += gpus;
        }
    }

    fn room(&mut self, node: NodeId) -> Option<&mut Room> {
        self.by_type.values_mut().flatten().find(|room| room.node == node)
    }

    pub(crate) fn is_wide(&self, gpu_type: &str, gpus: u32) -> bool {
        self.node_widths.get(gpu_type).is_some_and(|width| gpus > *width)
    }

    /// The nodes for a wide gang, with how many devices of each: whole ones, the largest first, and of
    /// one more what is left to take, where there is just enough. `has` says how many devices of a
    /// node there are for it.
    pub(crate) fn spread(
        &self,
        gpu_type: &str,
        gpus: u32,
        has: impl Fn(&Room) -> u32,
    ) -> Option<Vec<(NodeId, u32)>> {
        let mut rooms: Vec<&Room> = self.by_type.get(gpu_type)?.iter().collect();
        rooms.sort_by_key(|room| (Reverse(room.devices), room.node));
        let (mut parts, mut left) = (Vec::new(), gpus);
        rooms.retain(|room| {
            // The last of the nodes that it may take must have all that is left.
            let is_enough = room.devices == left || parts.len() + 1 < self.max_nodes;
            let is_whole =
                room.devices > 0 && has(room) == room.devices && room.devices <= left && is_enough;
            if is_whole {
                parts.push((room.node, room.devices));
                left -= room.devices;
            }
            !is_whole
        });
        if left > 0 {
            let enough = rooms.into_iter().filter(|room| has(room) >= left);
            parts.push((enough.min_by_key(|room| has(room))?.node, left));
        }
        (parts.len() <= self.max_nodes).then_some(parts)
    }

    /// The devices that are free already on a node where a trial will fit once other trials end.
    /// Narrower trials may still take them.
    pub(crate) fn keep(&self, gpu_type: &str, gpus: u32) -> Vec<DeviceId> {
        if self.is_wide(gpu_type, gpus) {
            let parts = self.spread(gpu_type, gpus, Room::soon).unwrap_or_default();
            let rooms = self.by_type.get(gpu_type).into_iter().flatten();
            let rooms = rooms.filter(|room| parts.iter().any(|(node, _)| *node == room.node));
            return rooms.flat_map(Room::free_devices).collect();
        }
        let rooms = self.by_type.get(gpu_type).into_iter().flatten();
        let wide_enough =
            |room: &&Room| room.lent > 0 && room.free.len() + room.lent as usize >= gpus as usize;
        rooms
            .filter(wide_enough)
            .max_by_key(|room| room.free.len())
            .map(|room| room.free_devices().collect())
            .unwrap_or_default()
    }

    /// The node of a type that has the most devices free or free before long, where a trial would fit
    /// if training stopped.
    pub(crate) fn nearest(&mut self, gpu_type: &str, gpus: u32) -> Option<&mut Room> {
        let rooms = self.by_type.get_mut(gpu_type)?.iter_mut();
        rooms.filter(|room| room.devices >= gpus).max_by_key(|room| room.soon())
    }

    /// Whether there is room for a trial beside what trains.
    pub(crate) fn has_without_training(&self, gpu_type: &str, gpus: u32) -> bool {
        self.has(gpu_type, gpus, Room::soon)
    }

    /// Whether a trial fits where each node has so many devices for it.
    fn has(&self, gpu_type: &str, gpus: u32, has: impl Fn(&Room) -> u32) -> bool {
        if self.is_wide(gpu_type, gpus) {
            return self.spread(gpu_type, gpus, has).is_some();
        }
        let mut rooms = self.by_type.get(gpu_type).into_iter().flatten();
        rooms.any(|room| has(room) >= gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up to four nodes of up to four devices, all free.
    fn pools() -> impl Iterator<Item = Vec<u32>> {
        (0..625u32).map(|number| {
            let digits = [number % 5, number / 5 % 5, number / 25 % 5, number / 125];
            digits.into_iter().filter(|devices| *devices > 0).collect()
        })
    }

    #[test]
    fn a_wide_gang_that_an_idle_pool_holds_finds_its_nodes_there() {
        for (devices, max_nodes) in
            pools().flat_map(|pool| (1..5).map(move |max| (pool.clone(), max)))
        {
            let room = |(node, devices)| Room {
                node: NodeId(node),
                free: (0..devices).collect(),
                lent: 0,
                devices,
            };
            let rooms = devices.iter().copied().enumerate().map(room).collect();
            let width = devices.iter().copied().max().unwrap_or(0);
            let gpu_type = "fast".to_owned();
            let rooms = Rooms {
                by_type: BTreeMap::from([(gpu_type.clone(), rooms)]),
                node_widths: BTreeMap::from([(gpu_type.clone(), width)]),
                max_nodes,
            };
            let mut nodes = devices.clone();
            nodes.sort_unstable_by_key(|devices| Reverse(*devices));
            nodes.truncate(max_nodes);
            for gpus in width + 1..18 {
                let found = rooms.spread(&gpu_type, gpus, Room::num_free);
                let most: u32 = nodes.iter().sum();
                assert_eq!(
                    found.is_some(),
                    gpus <= most,
                    "{gpus} of {devices:?}, {max_nodes} nodes"
                );
                let parts = found.unwrap_or_default();
                let held: u32 = parts.iter().map(|(_, devices)| devices).sum();
                assert!(parts.is_empty() || held == gpus && parts.len() <= max_nodes);
                let cut = parts.iter().filter(|(node, held)| devices[node.0] != *held);
                assert!(cut.count() <= 1, "{parts:?} of {devices:?}: whole nodes but for one");
            }
        }
    }
}
