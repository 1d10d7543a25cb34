//! A strict queue.

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;
use crate::policies::queue;

pub(super) struct Fifo;

impl Driven for Fifo {
    const NAME: &'static str = "fifo";
    const DEFINITION: &'static str = "tasks start in the order given, each on the device count that its \
         user asked for, by its fastest technique there; the first that does not fit holds up the others";
    const SOURCE: &'static str = "Slurm without backfill (sched/builtin); Kueue's StrictFIFO";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.asked(job) == Some(way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        queue::serve(driver, |driver, waiting| queue::start_now(driver, waiting.first()?))
    }
}
