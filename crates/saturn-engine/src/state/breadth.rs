//! Which gangs the nodes of a type of device can hold, and which device counts are tried.
//!
//! A gang of at most `node_width` devices is for one node, and waits for such a node where none is
//! there. A gang of more is *wide*: it takes several nodes, all of them whole but for one at most.

/// Up to this number of devices every count is tried; beyond, neighbours differ little and every
/// trial costs time.
const ALL_UP_TO: u32 = 8;

/// The devices of a type in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breadth {
    /// The type.
    pub(crate) gpu_type: String,
    /// The type's node width.
    pub(crate) node_width: u32,
    /// Devices of each of the nodes that a gang may take, most first.
    pub(crate) nodes: Vec<u32>,
    /// How many nodes a gang may take at most.
    pub(crate) max_nodes: u32,
}

impl Breadth {
    /// Whether there are nodes for a gang.
    pub(crate) fn holds(&self, gpus: u32) -> bool {
        if gpus <= self.node_width {
            self.nodes.first().is_some_and(|widest| *widest >= gpus)
        } else {
            gpus <= self.most()
        }
    }

    /// Devices of the widest gang.
    fn most(&self) -> u32 {
        self.nodes.iter().take(self.max_nodes as usize).sum()
    }

    /// Device counts to try: all up to 8, then powers of two, then one, two, four and so on whole
    /// nodes, and the whole pool.
    pub(crate) fn counts(&self) -> Vec<u32> {
        let widest = self.nodes.first().copied().unwrap_or(0);
        let most = self.most();
        let is_of_node =
            |gpus: &u32| *gpus <= ALL_UP_TO || gpus.is_power_of_two() || *gpus == widest;
        let mut counts: Vec<u32> = (1..=widest).filter(is_of_node).collect();
        counts.extend((self.node_width + 1..=most).take_while(|gpus| *gpus <= ALL_UP_TO));
        let num_nodes = self.nodes.len().min(self.max_nodes as usize);
        let mut held = 0;
        for (number, gpus) in (1..=num_nodes).zip(&self.nodes) {
            held += gpus;
            if number > 1
                && held > self.node_width
                && (number.is_power_of_two() || number == num_nodes)
            {
                counts.push(held);
            }
        }
        counts.sort_unstable();
        counts.dedup();
        counts
    }
}

/// Whether a pool has nodes for a gang of so many devices of a type.
pub(crate) fn holds(pool: &[Breadth], gpu_type: &str, gpus: u32) -> bool {
    pool.iter().any(|one| one.gpu_type == gpu_type && one.holds(gpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breadth(nodes: &[u32], max_nodes: u32) -> Breadth {
        let gpu_type = "fast".to_owned();
        Breadth { gpu_type, node_width: nodes[0], nodes: nodes.to_vec(), max_nodes }
    }

    #[test]
    fn counts_are_those_of_a_node_and_then_of_whole_nodes_and_few_odd_ones() {
        assert_eq!(breadth(&[2, 2], 9).counts(), [1, 2, 3, 4]);
        assert_eq!(breadth(&[5, 5], 9).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 10]);
        assert_eq!(breadth(&[8; 5], 9).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 40]);
        assert_eq!(breadth(&[8; 5], 2).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 16]);
        assert_eq!(breadth(&[8, 4], 1).counts(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(breadth(&[12, 4], 2).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 12, 16]);
    }

    #[test]
    fn a_gang_that_fits_a_node_waits_for_one_and_a_wide_one_for_several() {
        let mut left = breadth(&[4, 4], 2);
        left.node_width = 8; // the node of 8 has gone
        assert!(left.holds(4) && !left.holds(6) && !left.holds(8) && !left.holds(9));
        assert!(breadth(&[4, 4, 4], 3).holds(12) && !breadth(&[4, 4, 4], 2).holds(12));
    }
}
