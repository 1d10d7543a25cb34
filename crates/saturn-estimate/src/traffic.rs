//! Seconds of collective operations.
//!
//! A ring of r ranks moves (r−1)/r of the buffer for a gather or a reduce-scatter, and twice as
//! much for an all-reduce (nccl-tests). Its slowest link decides its pace. A node offers only those
//! network cards that are near the devices in use. So two devices on each of two nodes are slower
//! than four.

use crate::constants::Constants;
use crate::device::Device;
use crate::strategy::Strategy;

/// A ring: its ranks, their nodes, and the other rings that leave each node beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ring {
    ranks: u32,
    on_node: u32,
    nodes: u32,
    beside: u32,
}

impl Ring {
    /// The ring of data ranks, which hold the same part of the model.
    pub(crate) fn of_data(strategy: &Strategy) -> Self {
        let (fewest, nodes) = (strategy.fewest(), num_nodes(strategy));
        let is_inside = strategy.data * strategy.tensor <= fewest;
        Self {
            ranks: strategy.data,
            on_node: strategy.data.min(fewest / strategy.tensor).max(1),
            nodes: if is_inside { 1 } else { nodes },
            beside: strategy.tensor,
        }
    }

    /// The ring of a tensor group.
    pub(crate) fn of_tensor(strategy: &Strategy) -> Self {
        let fewest = strategy.fewest();
        let is_inside = strategy.tensor <= fewest;
        Self {
            ranks: strategy.tensor,
            on_node: strategy.tensor.min(fewest),
            nodes: if is_inside { 1 } else { num_nodes(strategy) },
            beside: 1,
        }
    }

    /// Seconds in which `share` times `bytes` go round. `share` is 1 for a gather and 2 for an
    /// all-reduce.
    pub(crate) fn seconds(
        self,
        bytes: f64,
        share: f64,
        device: &Device,
        constants: &Constants,
    ) -> f64 {
        if self.ranks < 2 {
            return 0.0;
        }
        let ranks = f64::from(self.ranks);
        let inside = device.link_bytes_s.value * constants.link;
        let pace = if self.nodes == 1 {
            inside
        } else {
            let outside = outward(self.on_node * self.beside, device, constants);
            let outside = outside / f64::from(self.beside);
            if self.on_node > 1 { inside.min(outside) } else { outside }
        };
        share * (ranks - 1.0) / ranks * bytes / pace + constants.latency_s * ranks
    }
}

/// The bytes a second that `devices` devices of a node together send to other nodes.
fn outward(devices: u32, device: &Device, constants: &Constants) -> f64 {
    let cards = device.network_cards.value;
    let near = (f64::from(devices) * cards / device.devices.value).ceil().clamp(1.0, cards);
    near * device.card_bytes_s.value * constants.network
}

/// Seconds in which a stage passes `bytes` to the next.
pub(crate) fn hand_over(
    bytes: f64,
    strategy: &Strategy,
    device: &Device,
    constants: &Constants,
) -> f64 {
    let pace = if num_nodes(strategy) > 1 {
        outward(strategy.tensor.min(strategy.fewest()), device, constants)
    } else {
        device.link_bytes_s.value * constants.link
    };
    bytes / pace + constants.latency_s
}

fn num_nodes(strategy: &Strategy) -> u32 {
    u32::try_from(strategy.placement.len()).unwrap_or(u32::MAX).max(1)
}
