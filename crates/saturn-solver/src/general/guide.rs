//! How far the bound on weighted completion is raised, and which of its prices guide the search.

use saturn_core::Plan;

use crate::bounds::ascent::Ascent;
use crate::completion::build::Guide;
use crate::course::clock::Deadline;
use crate::problem::options::Options;

/// Rounds of the bound on weighted completion before the search, whose prices guide the search: at
/// most and at least. Then how many tasks times ways are looked at.
const MOST_GUIDING: usize = 150;
const LEAST_GUIDING: usize = 20;
const GUIDING: usize = 400_000;
/// The share of the remaining time for more such rounds, and how many at most. If moves are the
/// limit, this many moves allow another round.
const MORE_ROUNDS: f64 = 0.12;
const MOST_ROUNDS: usize = 3_000;
const MOVES_PER_ROUND: u64 = 1_000;

/// Raises the bound on weighted completion, and returns the guide that its prices give. The guide's
/// number of rounds depends on the problem alone: more time must not lead the search another way.
pub(crate) fn guide(
    mut ascent: Ascent,
    options: &Options,
    deadline: Deadline,
    plan: &mut Plan,
) -> Guide {
    ascent = ascent.on_threads(options.threads);
    let num_rounds = (GUIDING / ascent.num_slots().max(1)).clamp(LEAST_GUIDING, MOST_GUIDING);
    // A round on few intervals takes a third of the time.
    ascent.climb(2 * num_rounds, deadline);
    let coarse = ascent.value();
    ascent = ascent.refined();
    ascent.climb(num_rounds / 2, deadline);
    let guide = Guide::new(&ascent);
    let more = options.max_moves.map_or(MOST_ROUNDS, |moves| {
        usize::try_from(moves / MOVES_PER_ROUND).map_or(MOST_ROUNDS, |more| more.min(MOST_ROUNDS))
    });
    ascent.climb(more, deadline.within(deadline.left_s() * MORE_ROUNDS));
    plan.completion_bound_s = plan.completion_bound_s.max(coarse).max(ascent.value());
    guide
}
