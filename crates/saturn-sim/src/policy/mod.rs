//! Policies that train a workload on a pool: Saturn, people's practice, and other systems.
//!
//! A [`Policy`] is given a [`Case`] and answers with an [`Outcome`]. `saturn` is the real engine
//! with the real solver. Every other policy is a few lines over the [`driver`], which performs its
//! launches, stops and trials in the same [`crate::World`]. So the seconds of a launch, a step, a
//! checkpoint, a stop and a trial come from the same code under every policy. Policies differ in
//! their decisions, and in the strategies that they must measure first (`measures`).

mod bound;
mod case;
mod current_practice_fastest;
mod current_practice_habit;
mod driver;
mod error;
mod fairness;
mod fifo;
mod fifo_backfill;
mod follow;
mod interval;
mod max;
mod min;
mod optimus;
mod optimus_dynamic;
mod outcome;
mod pools;
mod queue;
mod random;
mod rubick_like;
mod saturn;
mod saturn_interval;
mod saturn_static;
mod script;
mod shortest_first;
mod themis_like;

use self::case::Way;
pub use self::case::{Case, Job, Knowledge, Moves};
use self::driver::Driver;
pub use self::error::PolicyError;
pub use self::outcome::{Held, Outcome, Span};
pub use self::script::{Arrivals, Early, Faults, Lost, Pace, Slow};

/// The policy that others are compared with.
pub const CURRENT_PRACTICE: &str = "current-practice-fastest";

/// A way to train a workload on a pool.
pub trait Policy: Sync {
    /// The name that users type.
    fn name(&self) -> &'static str;

    /// Its behaviour, in a sentence.
    fn definition(&self) -> &'static str;

    /// Its users, or its source.
    fn source(&self) -> &'static str;

    /// Trains the case's tasks to their ends. `is_stopped` is asked now and then.
    fn train(&self, case: &Case, is_stopped: &dyn Fn() -> bool) -> Result<Outcome, PolicyError>;
}

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
pub const MORE_POLICIES: [&dyn Policy; 7] = [
    &themis_like::ThemisLike,
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

/// A policy that decides over the driver.
trait Driven: Sync {
    const NAME: &'static str;
    const DEFINITION: &'static str;
    const SOURCE: &'static str;

    /// Whether it plans by the job's step time under the strategy. If no step time is known, it
    /// must have the strategy measured.
    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool;

    /// Trains all jobs. The strategies that it plans by have been measured.
    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError>;
}

impl<T: Driven> Policy for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn definition(&self) -> &'static str {
        T::DEFINITION
    }

    fn source(&self) -> &'static str {
        T::SOURCE
    }

    fn train(&self, case: &Case, is_stopped: &dyn Fn() -> bool) -> Result<Outcome, PolicyError> {
        let mut driver = Driver::new(T::NAME, case, is_stopped);
        if case.knowledge == Knowledge::Nothing {
            driver.measure_first(|job, way| self.measures(case, job, way))?;
        }
        self.drive(&mut driver)?;
        driver.outcome()
    }
}
