//! Saturn as it was published: planning again at a fixed interval.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;
use crate::policies::interval;

pub(super) struct SaturnInterval;

impl Driven for SaturnInterval {
    const NAME: &'static str = "saturn-interval";
    const DEFINITION: &'static str = "what is left is planned again every 1,000 s; a plan that ends at \
         least 500 s earlier is adopted: then all tasks are stopped at checkpoints and launched anew";
    const SOURCE: &'static str = "introspection of Saturn, arXiv 2309.01226, with its interval and \
         threshold; the profile is not corrected by what training shows";

    fn measures(&self, _case: &Case, _job: usize, _way: &Way) -> bool {
        true
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        interval::plan_at_intervals(driver, Backend::Search)
    }
}
