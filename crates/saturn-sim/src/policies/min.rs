//! The baseline that gives every task as few devices as it can run on.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow;
use crate::policies::interface::Driven;

pub(super) struct Min;

impl Driven for Min {
    const NAME: &'static str = "min";
    const DEFINITION: &'static str =
        "every task runs as narrow as it can, by its fastest technique there, the longest first";
    const SOURCE: &'static str = "\"Min-Heuristic\" of Saturn, arXiv 2309.01226";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.ways(job).iter().all(|other| other.gpus >= way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        follow::follow_plans(driver, Backend::Min, 0, |_, _| true)
    }
}
