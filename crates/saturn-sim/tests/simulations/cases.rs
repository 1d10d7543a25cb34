//! Small workloads as cases, and a policy's outcome.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use saturn_sim::WorkloadFile;
use saturn_sim::policy::{Case, Outcome, policy, simulate};

/// The case of a workload's text, which names no profile.
pub(crate) fn case(text: &str) -> Case {
    WorkloadFile::parse(text).unwrap().case(None).unwrap()
}

/// The outcome of a case under the policy of that name.
pub(crate) fn outcome(name: &str, case: &Case) -> Outcome {
    let policy = policy(name).unwrap();
    simulate(policy, case, &|| false).unwrap_or_else(|error| panic!("{name}: {error}"))
}
