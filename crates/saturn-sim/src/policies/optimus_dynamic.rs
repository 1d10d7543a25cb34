//! Optimus, with planning again at a fixed interval.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;
use crate::policies::interval;

pub(super) struct OptimusDynamic;

impl Driven for OptimusDynamic {
    const NAME: &'static str = "optimus-dynamic";
    const DEFINITION: &'static str = "as optimus, but what is left is planned again as in \
         saturn-interval: every 1,000 s, adopted where that ends at least 500 s earlier";
    const SOURCE: &'static str = "\"Optimus-Dynamic\" of Saturn, arXiv 2309.01226";

    fn measures(&self, _case: &Case, _job: usize, _way: &Way) -> bool {
        true
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        interval::plan_at_intervals(driver, Backend::Optimus)
    }
}
