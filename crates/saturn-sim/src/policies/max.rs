//! The baseline that gives every task as many devices as a node has.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow;
use crate::policies::interface::Driven;

pub(super) struct Max;

impl Driven for Max {
    const NAME: &'static str = "max";
    const DEFINITION: &'static str =
        "every task runs as wide as a node, by its fastest technique there, the longest first";
    const SOURCE: &'static str = "\"Max-Heuristic\" of Saturn, arXiv 2309.01226";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.ways(job).iter().all(|other| other.gpus <= way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        follow::follow_plans(driver, Backend::Max, 0, |_, _| true)
    }
}
