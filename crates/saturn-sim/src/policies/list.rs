//! All policies, by their names.

use crate::cases::case::Case;
use crate::cases::error::PolicyError;
use crate::cases::outcome::Outcome;
use crate::policies::current_practice_fastest;
use crate::policies::current_practice_habit;
use crate::policies::fifo;
use crate::policies::fifo_backfill;
use crate::policies::interface::Policy;
use crate::policies::max;
use crate::policies::min;
use crate::policies::optimus;
use crate::policies::optimus_dynamic;
use crate::policies::random;
use crate::policies::rubick_like;
use crate::policies::saturn;
use crate::policies::saturn_interval;
use crate::policies::saturn_static;
use crate::policies::shortest_first;
use crate::policies::slurm_like;
use crate::policies::themis_like;
use crate::policies::time_slices;

/// The policies that are simulated by default, in the order in which help lists them.
pub const POLICIES: [&dyn Policy; 13] = [
    &saturn::SATURN,
    &saturn_static::SaturnStatic,
    &saturn_interval::SaturnInterval,
    &current_practice_fastest::CurrentPracticeFastest,
    &current_practice_habit::CurrentPracticeHabit,
    &max::Max,
    &min::Min,
    &random::Random,
    &optimus::Optimus,
    &optimus_dynamic::OptimusDynamic,
    &fifo::Fifo,
    &fifo_backfill::FifoBackfill,
    &shortest_first::ShortestFirst,
];

/// Policies that are simulated only if they are named.
pub const MORE_POLICIES: [&dyn Policy; 11] = [
    &themis_like::ThemisLike,
    &slurm_like::SlurmLike,
    &time_slices::TimeSlices,
    &saturn::SHARED,
    &saturn::SHARED_BY_WEIGHT,
    &rubick_like::RubickLike,
    &saturn::NO_SWITCHES,
    &saturn::FIXED_TECHNIQUE,
    &saturn::FIXED_GPUS,
    &saturn::NO_GOING_ON,
    &saturn::NO_PRIOR,
];

/// The policy of a name.
pub fn policy(name: &str) -> Option<&'static dyn Policy> {
    POLICIES.into_iter().chain(MORE_POLICIES).find(|one| one.name() == name)
}

/// Simulates a policy, and checks its outcome.
pub fn simulate(
    policy: &dyn Policy,
    case: &Case,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Outcome, PolicyError> {
    let outcome = policy.train(case, is_stopped)?;
    outcome.check(policy.name(), case)?;
    Ok(outcome)
}
