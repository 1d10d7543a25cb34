//! How many nodes have how many devices free now or soon, kept up as the nodes' occupancy changes.
//!
//! In a full pool trials wait, and hardly any node has room for them. Whether any node could have is
//! asked whenever an attempt ends: from these counts it is answered without a look at the nodes.

use std::collections::BTreeMap;

use crate::state::device::Occupancy;

/// The counts, over all nodes and types of devices.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SoonFree {
    /// For each number of devices that are free or will be soon, but 0: how many nodes have it.
    nodes: BTreeMap<u32, usize>,
    /// How many of these nodes have all their devices free or soon free.
    num_whole: usize,
}

impl SoonFree {
    /// Takes in what the attempts of a node leave there.
    pub(crate) fn add(&mut self, of_node: &Occupancy) {
        let soon = of_node.soon();
        if soon > 0 {
            *self.nodes.entry(soon).or_default() += 1;
            self.num_whole += usize::from(soon == of_node.usable);
        }
    }

    /// Takes out what was taken in of a node.
    pub(crate) fn remove(&mut self, of_node: &Occupancy) {
        let soon = of_node.soon();
        if let Some(number) = self.nodes.get_mut(&soon) {
            *number -= 1;
            if *number == 0 {
                self.nodes.remove(&soon);
            }
            self.num_whole -= usize::from(soon == of_node.usable);
        }
    }

    /// The most devices that are free or soon free on one node.
    pub(crate) fn most(&self) -> u32 {
        self.nodes.last_key_value().map_or(0, |(devices, _)| *devices)
    }

    /// Whether some node has all its devices free or soon free.
    pub(crate) fn has_whole_node(&self) -> bool {
        self.num_whole > 0
    }
}
