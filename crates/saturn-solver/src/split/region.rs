//! Which nodes of a large problem are annealed together.

use saturn_core::WHOLE;

use crate::course::random::Random;
use crate::split::pieces::Piece;

/// Nodes that are annealed together in a large problem. Then the most nodes of a region, with the
/// nodes that hold pieces of the same tasks.
pub(crate) const REGION_NODES: usize = 3;
const MOST_NODES: usize = 6;

/// The free node that ends last and random others, with all nodes that hold pieces of the same
/// tasks. Empty if that would be too many nodes, or if these nodes hold no piece.
pub(crate) fn choose(
    pieces: &[Piece],
    ends: &[f64],
    is_taken: &mut [bool],
    random: &mut Random,
) -> Vec<usize> {
    let free: Vec<usize> = (0..ends.len()).filter(|node| !is_taken[*node]).collect();
    let last = free.iter().copied().max_by(|left, right| ends[*left].total_cmp(&ends[*right]));
    let mut nodes: Vec<usize> = Vec::from_iter(last);
    for _ in 1..REGION_NODES.min(free.len()) {
        let other = free[random.below(free.len())];
        if !nodes.contains(&other) {
            nodes.push(other);
        }
    }
    let mut at = 0;
    while at < nodes.len() && nodes.len() <= MOST_NODES {
        let node = nodes[at];
        for piece in pieces.iter().filter(|piece| piece.node == node && piece.share < WHOLE) {
            for other in pieces.iter().filter(|other| other.task == piece.task) {
                if !nodes.contains(&other.node) {
                    nodes.push(other.node);
                }
            }
        }
        at += 1;
    }
    let is_idle = || pieces.iter().all(|piece| !nodes.contains(&piece.node));
    if nodes.len() > MOST_NODES || nodes.iter().any(|node| is_taken[*node]) || is_idle() {
        return Vec::new();
    }
    for node in &nodes {
        is_taken[*node] = true;
    }
    nodes
}
