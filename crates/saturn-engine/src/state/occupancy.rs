//! What the attempts of a node leave there, kept up for every node.
//!
//! A trial looks for a node with enough devices and host memory whenever an attempt ends or a task
//! comes. It must not go over all attempts of the pool for that, so each node has its figures ready.
//! They follow from the node's devices, its attempts, and the measurements of their groups:
//! `State::occupancy_of` says how, and the room `changes` keeps them up.

use std::sync::Arc;

use crate::facts::ids::NodeId;
use crate::facts::record::Purpose;
use crate::state::device::Occupancy;
use crate::state::run::State;

impl State {
    /// What the attempts of a node leave there, counted anew.
    pub(crate) fn occupancy_of(&self, node: NodeId) -> Occupancy {
        let mut found = Occupancy::default();
        let mut free = Vec::new();
        for device in self.usable_devices(node) {
            found.usable += 1;
            let holder = self.nodes[node.0].devices[device as usize].held_by;
            match holder.and_then(|id| self.attempts.get(&id)) {
                None => free.push(device),
                Some(attempt)
                    if attempt.purpose == Purpose::Trial || attempt.stopping.is_some() =>
                {
                    found.lent += 1;
                }
                Some(_) => {}
            }
        }
        found.free = Arc::new(free);
        if self.host_memory_of(node).is_some() {
            let attempts = self.attempts_on(node);
            let attempts = attempts.into_iter().filter_map(|id| self.attempts.get(&id));
            for attempt in attempts {
                let bytes = self.host_bytes_of(attempt, node);
                found.host_bytes = found.host_bytes.saturating_add(bytes);
                if attempt.purpose == Purpose::Train && attempt.stopping.is_none() {
                    found.trained_bytes = found.trained_bytes.saturating_add(bytes);
                }
            }
        }
        found
    }
}
