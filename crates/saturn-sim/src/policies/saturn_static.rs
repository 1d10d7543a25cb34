//! Saturn without planning again: one solve, followed to the end.

use saturn_solver::Backend;

use crate::cases::case::{Case, SOLVE_S, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow;
use crate::policies::interface::Driven;

/// Switches that may be planned for each task: as in a run.
const MAX_SWITCHES: usize = 1;

pub(super) struct SaturnStatic;

impl Driven for SaturnStatic {
    const NAME: &'static str = "saturn-static";
    const DEFINITION: &'static str = "one solve at the beginning, with one planned switch a task; its \
         order of tasks on each device is followed to the end, whatever the times turn out to be";
    const SOURCE: &'static str = "Saturn's own solver (docs/solver.md), without planning again";

    fn measures(&self, _case: &Case, _job: usize, _way: &Way) -> bool {
        true
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        driver.pass(SOLVE_S)?;
        follow::follow_plans(driver, Backend::Search, MAX_SWITCHES, |_, _| true)
    }
}
