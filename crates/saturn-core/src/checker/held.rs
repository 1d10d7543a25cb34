//! What gangs together take of a thing of which there is only so much: the host memory of a node, the
//! devices of an owner's cap.
//!
//! A running task that the plan leaves as it is takes what it takes: no plan can help that. So more than
//! there is may be taken while only such tasks take it. No other gang may join them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::plan::Assignment;

/// A gang that takes some of it.
pub(super) struct Holder<'a> {
    pub(super) assignment: &'a Assignment,
    pub(super) takes: u64,
    /// Whether the plan leaves its task as it runs.
    pub(super) is_left: bool,
}

/// The assignments that start when more is taken than there is, and what all take then. It is enough to
/// look at starts: what is taken grows only there.
pub(super) fn beyond<'a>(
    holders: &mut [Holder<'a>],
    has: u64,
    slack: f64,
) -> Vec<(&'a Assignment, u128)> {
    holders.sort_by(|left, right| {
        let starts = left.assignment.start_s.total_cmp(&right.assignment.start_s);
        starts.then(right.is_left.cmp(&left.is_left))
    });
    // The gangs that are there, the first to end at the top. Ends are at least 0, and such floats are
    // ordered as their bits are.
    let mut there: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut taken: u128 = 0;
    let mut found = Vec::new();
    for Holder { assignment, takes, is_left } in holders.iter() {
        while let Some(Reverse((end, takes))) = there.peek().copied()
            && f64::from_bits(end) <= assignment.start_s + slack
        {
            there.pop();
            taken -= u128::from(takes);
        }
        there.push(Reverse((assignment.end_s.max(0.0).to_bits(), *takes)));
        taken += u128::from(*takes);
        if taken > u128::from(has) && !is_left {
            found.push((*assignment, taken));
        }
    }
    found
}
