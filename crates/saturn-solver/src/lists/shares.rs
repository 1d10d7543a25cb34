//! Nodes and their lists, dealt at random to the items of a round.

use crate::course::rounds::Course;
use crate::lists::list::{Entry, Lists};

/// Some nodes and their lists, on which an item of a round works.
pub(crate) struct Share {
    pub(crate) nodes: Vec<usize>,
    pub(crate) lists: Vec<Vec<Entry>>,
}

/// Deals the nodes and their lists to the items of the next round at random.
pub(crate) fn deal(course: &Course, current: &Lists) -> Vec<Share> {
    let mut nodes: Vec<usize> = (0..current.len()).collect();
    course.dealer().shuffle(&mut nodes);
    let size = nodes.len().div_ceil(course.num_shares(nodes.len()));
    nodes
        .chunks(size)
        .map(|nodes| Share {
            nodes: nodes.to_vec(),
            lists: nodes.iter().map(|node| current[*node].clone()).collect(),
        })
        .collect()
}

/// Takes the lists back.
pub(crate) fn collect(shares: Vec<Share>, current: &mut Lists) {
    for share in shares {
        for (node, list) in share.nodes.into_iter().zip(share.lists) {
            current[node] = list;
        }
    }
}
