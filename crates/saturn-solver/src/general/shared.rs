//! The windows of many nodes, merged once for all tasks.
//!
//! With thousands of tasks and nodes, there is no time to look at the ways of each task on each node.
//! So the nodes of a kind that are wide enough for a gang are sorted by their windows, and the windows
//! are merged into some number of parts. A merged window is open while any of its windows is open, at
//! the least of their prices, and for every task. So merged windows allow more than the real windows,
//! and bounds stay bounds.

use crate::general::instance::NodeFacts;
use crate::problem::model::Model;

/// Windows are merged for all tasks if there are more pairs of a task and a node than this.
pub(super) const MANY_PLACES: usize = 400_000;
/// The maximum number of widths of a kind that have a group. A gang of another width takes the group
/// of the next smaller width, which has more nodes.
const MOST_WIDTHS: usize = 16;
/// How many numbers of parts there are: 1, 2, 4 and so on. The last is 256.
const LEVELS: usize = 9;

/// When some nodes of a kind are there, and their least prices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub(crate) from: f64,
    pub(crate) until: f64,
    /// A second of one device where all devices of its node are held.
    pub(crate) per_device: f64,
    /// A second of a whole node.
    pub(crate) alone: f64,
}

impl Window {
    fn with(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            until: self.until.max(other.until),
            per_device: self.per_device.min(other.per_device),
            alone: self.alone.min(other.alone),
        }
    }
}

/// The merged windows of all nodes of a kind that have at least `gpus` devices.
#[derive(Debug)]
struct Group {
    gpus: u32,
    /// The windows, merged into one part, into two parts, into four parts, and so on.
    levels: Vec<Vec<Window>>,
}

/// The windows of every kind.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By kind, ascending in devices.
    groups: Vec<Vec<Group>>,
    /// The numbers of devices of nodes, by kind, ascending.
    sizes: Vec<Vec<u32>>,
}

impl Shared {
    pub(crate) fn new(model: &Model, nodes: &[NodeFacts]) -> Self {
        let mut sizes: Vec<Vec<u32>> = vec![Vec::new(); model.num_kinds];
        let mut of_kind: Vec<Vec<(u32, Window)>> = vec![Vec::new(); model.num_kinds];
        for (node, facts) in model.nodes.iter().zip(nodes) {
            let NodeFacts { price, from, until } = *facts;
            let per_device = price / f64::from(node.gpus);
            of_kind[node.kind].push((node.gpus, Window { from, until, per_device, alone: price }));
            sizes[node.kind].push(node.gpus);
        }
        for sizes in &mut sizes {
            sizes.sort_unstable();
            sizes.dedup();
        }
        for windows in &mut of_kind {
            windows.sort_by(|(_, left), (_, right)| {
                left.from.total_cmp(&right.from).then(left.until.total_cmp(&right.until))
            });
        }
        let groups = of_kind.iter().zip(&sizes).map(|(windows, sizes)| {
            let stride = sizes.len().div_ceil(MOST_WIDTHS).max(1);
            sizes.iter().step_by(stride).map(|gpus| Group::new(*gpus, windows)).collect()
        });
        Self { groups: groups.collect(), sizes }
    }

    /// The windows of the nodes of a kind that have at least `gpus` devices, merged into at most
    /// `most` parts, or into one part if `most` is 0. Empty if no node is so wide.
    pub(crate) fn windows(&self, kind: usize, gpus: u32, most: usize) -> &[Window] {
        let sizes = &self.sizes[kind];
        let Some(size) = sizes.get(sizes.partition_point(|size| *size < gpus)) else { return &[] };
        let group = self.groups[kind].iter().rev().find(|group| group.gpus <= *size);
        group.map_or(&[], |group| {
            let level = (most.max(1).ilog2() as usize).min(group.levels.len() - 1);
            &group.levels[level]
        })
    }

    /// One window that stands for all nodes of a kind; `None` if the kind has no nodes.
    pub(crate) fn of_kind(&self, kind: usize) -> Option<Window> {
        self.groups[kind].first().map(|group| group.levels[0][0])
    }
}

impl Group {
    /// Picks the nodes with at least `gpus` devices from `windows`, which are all nodes of a kind with
    /// their numbers of devices, sorted by their windows.
    fn new(gpus: u32, windows: &[(u32, Window)]) -> Self {
        let own: Vec<Window> =
            windows.iter().filter(|(size, _)| *size >= gpus).map(|(_, window)| *window).collect();
        let level = |level: usize| {
            let parts = own.chunks(own.len().div_ceil(1 << level).max(1));
            parts.filter_map(|part| part.iter().copied().reduce(Window::with)).collect()
        };
        Self { gpus, levels: (0..LEVELS).map(level).collect() }
    }
}

#[cfg(test)]
mod tests {
    use saturn_core::{Cluster, Node, Problem};

    use super::*;

    #[test]
    fn every_node_is_within_a_window_of_its_width() {
        let nodes = (0..200).map(|index| Node {
            price_per_hour: f64::from(index * 7 % 11),
            available_from_s: f64::from(index * 13 % 17),
            available_until_s: Some(100.0 + f64::from(index * 5 % 23)),
            ..Node::new(format!("n{index}"), 1 + index % 40, "gpu")
        });
        let problem = Problem::new(Cluster { nodes: nodes.collect() }, Vec::new());
        let model = Model::new(&problem);
        let facts: Vec<NodeFacts> = problem
            .cluster
            .nodes
            .iter()
            .map(|node| NodeFacts {
                price: node.price_per_hour,
                from: node.available_from_s,
                until: node.until_s(),
            })
            .collect();
        let shared = Shared::new(&model, &facts);
        for width in 1..=40 {
            for most in [0, 1, 2, 7, 64, 10_000] {
                let windows = shared.windows(0, width, most);
                assert!((1..=most.max(1)).contains(&windows.len()), "{width} {most}");
                for (node, facts) in
                    model.nodes.iter().zip(&facts).filter(|(node, _)| node.gpus >= width)
                {
                    let is_within = |window: &Window| {
                        window.from <= facts.from
                            && window.until >= facts.until
                            && window.alone <= facts.price
                            && window.per_device <= facts.price / f64::from(node.gpus)
                    };
                    assert!(windows.iter().any(is_within), "{width} {most} {facts:?}");
                }
            }
        }
        assert!(shared.windows(0, 41, 4).is_empty());
        assert!(shared.windows(0, 1, 64).len() > 32);
    }
}
