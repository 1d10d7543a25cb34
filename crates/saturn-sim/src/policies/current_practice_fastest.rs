//! Current practice with the fastest technique: a baseline of `saturn plan`.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow;
use crate::policies::interface::{CURRENT_PRACTICE, Driven};

pub(super) struct CurrentPracticeFastest;

impl Driven for CurrentPracticeFastest {
    const NAME: &'static str = CURRENT_PRACTICE;
    const DEFINITION: &'static str = "each node trains one task at a time on all its devices, by the \
         technique that is fastest there; tasks go in the order given to the node that ends them first";
    const SOURCE: &'static str = "\"current practice\" of Saturn, arXiv 2309.01226, with the \
         technique that suits it best";

    fn measures(&self, case: &Case, _job: usize, way: &Way) -> bool {
        way.gpus == case.widest()
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        follow::follow_plans(driver, Backend::CurrentPractice, 0, |_, _| true)
    }
}
