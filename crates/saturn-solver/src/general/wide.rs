//! Which nodes a wide gang takes, given the gangs that are placed already.

use crate::general::play::Player;
use crate::problem::modes::WideMode;

impl Player<'_> {
    /// The nodes that would let a wide gang start first, with the devices taken on each. The task
    /// may use all of these nodes.
    ///
    /// Whole nodes come in the order in which they become wholly free. Superfluous nodes are
    /// dropped. With `pack` the last node is the node that can spare the remaining devices first.
    /// `lead`, if it can be used, comes before all others: the first nodes to become free are not
    /// always the best. Nodes that would leave before the gang has ended are passed over while
    /// there are enough others.
    pub(crate) fn nodes_for(
        &self,
        task: usize,
        mode: &WideMode,
        lead: Option<usize>,
        ready: f64,
        lasts: f64,
    ) -> Vec<(usize, u32)> {
        let model = self.instance.model;
        let size = |node: usize| model.nodes[node].gpus;
        let free_at = |node: usize| self.free_on(node, (size(node), mode.host), ready, lasts);
        let mut nodes: Vec<usize> =
            self.instance.nodes_of(task).filter(|node| model.can_hold_part(*node, mode)).collect();
        nodes.sort_by_cached_key(|node| {
            // Times are not negative: they order as their bits do.
            let rank = if lead == Some(*node) { 0.0 } else { free_at(*node) };
            (rank.to_bits(), lead != Some(*node), *node)
        });
        loop {
            let chosen = first_enough(&nodes, mode.gpus, size);
            let start = chosen.iter().map(|node| free_at(*node)).fold(ready, f64::max);
            let leaves = |node: &usize| self.instance.nodes[*node].until < start + lasts;
            let early = chosen.iter().copied().min_by(|left, right| {
                let until = |node: &usize| self.instance.nodes[*node].until;
                until(left).total_cmp(&until(right))
            });
            let left: u32 = nodes.iter().map(|node| size(*node)).sum();
            match early.filter(leaves) {
                Some(node) if left - size(node) >= mode.gpus => nodes.retain(|one| *one != node),
                _ => return self.with_part(&nodes, chosen, mode, ready, lasts),
            }
        }
    }

    /// The chosen nodes with their devices; with `pack` one of them only in part.
    fn with_part(
        &self,
        nodes: &[usize],
        mut chosen: Vec<usize>,
        mode: &WideMode,
        ready: f64,
        lasts: f64,
    ) -> Vec<(usize, u32)> {
        let size = |node: usize| self.instance.model.nodes[node].gpus;
        let whole = |chosen: Vec<usize>| -> Vec<(usize, u32)> {
            chosen.into_iter().map(|node| (node, size(node))).collect()
        };
        let held: u32 = chosen.iter().map(|node| size(*node)).sum();
        if !mode.pack || held <= mode.gpus {
            return whole(chosen);
        }
        let Some(last) = chosen.pop() else { return Vec::new() };
        let rest = mode.gpus - (held - size(last));
        let spare = nodes
            .iter()
            .copied()
            .filter(|node| !chosen.contains(node) && size(*node) >= rest)
            .min_by(|left, right| {
                let free_at = |node: &usize| self.free_on(*node, (rest, mode.host), ready, lasts);
                free_at(left).total_cmp(&free_at(right))
            });
        let mut parts = whole(chosen);
        parts.push((spare.unwrap_or(last), rest));
        parts
    }
}

/// The first nodes that together have so many devices, without superfluous ones.
fn first_enough(nodes: &[usize], gpus: u32, size: impl Fn(usize) -> u32) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    let mut held = 0;
    for &node in nodes {
        if held >= gpus {
            break;
        }
        chosen.push(node);
        held += size(node);
    }
    chosen.retain(|node| {
        let is_superfluous = held - size(*node) >= gpus;
        if is_superfluous {
            held -= size(*node);
        }
        !is_superfluous
    });
    chosen
}
