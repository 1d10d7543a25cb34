//! What a policy is.

use crate::cases::case::{Case, Knowledge, Way};
use crate::cases::error::PolicyError;
use crate::cases::outcome::Outcome;
use crate::policies::driver::Driver;

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

/// A policy that decides over the driver.
pub(super) trait Driven: Sync {
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
