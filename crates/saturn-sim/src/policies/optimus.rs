//! Optimus: devices go to the task that gains most by them.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow;
use crate::policies::interface::Driven;

pub(super) struct Optimus;

impl Driven for Optimus {
    const NAME: &'static str = "optimus";
    const DEFINITION: &'static str = "every task begins with its least device count; devices that are \
         left go one step at a time to the task whose time falls most per device; the longest first";
    const SOURCE: &'static str = "Peng et al., Optimus, EuroSys 2018, section 4.2; \"Optimus-Greedy\" of \
         Saturn, arXiv 2309.01226";

    fn measures(&self, _case: &Case, _job: usize, _way: &Way) -> bool {
        true
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        follow::follow_plans(driver, Backend::Optimus, 0, |_, _| true)
    }
}
