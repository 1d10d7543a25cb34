//! The baseline that measures nothing and chooses by chance.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow;
use crate::policies::interface::Driven;

pub(super) struct Random;

impl Driven for Random {
    const NAME: &'static str = "random";
    const DEFINITION: &'static str =
        "a strategy, a node and a place in the order are drawn for each task, anew with each seed";
    const SOURCE: &'static str = "\"Random\" of Saturn, arXiv 2309.01226";

    fn measures(&self, _case: &Case, _job: usize, _way: &Way) -> bool {
        false
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        follow::follow_plans(driver, Backend::Random, 0, |_, _| true)
    }
}
