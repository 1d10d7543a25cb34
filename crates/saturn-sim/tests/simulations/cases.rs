//! Small workloads as cases, a policy's outcome, and how many seeds a test has: so many in the gate,
//! `SATURN_TEST_CASES` times as many at night.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::ops::Range;

use saturn_sim::WorkloadFile;
use saturn_sim::policy::{Case, Moves, Outcome, policy, simulate};

/// The case of a workload's text, which names no profile. Its solves are short: plans need not be
/// good to be followed.
pub(crate) fn case(text: &str) -> Case {
    let case = WorkloadFile::parse(text).unwrap().case(None).unwrap();
    Case { moves: Moves { first: 100_000, again: 100_000 }, ..case }
}

/// The first `number` seeds, or the multiple of them that the environment asks for.
pub(crate) fn seeds(number: u64) -> Range<u64> {
    let times = std::env::var("SATURN_TEST_CASES").map_or(1, |times| times.parse().unwrap());
    0..number * times
}

/// The outcome of a case under the policy of that name.
pub(crate) fn outcome(name: &str, case: &Case) -> Outcome {
    let policy = policy(name).unwrap();
    simulate(policy, case, &|| false).unwrap_or_else(|error| panic!("{name}: {error}"))
}
