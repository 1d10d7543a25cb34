//! A queue with backfill.

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::backfill;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;
use crate::policies::queue;

pub(super) struct FifoBackfill;

impl Driven for FifoBackfill {
    const NAME: &'static str = "fifo-backfill";
    const DEFINITION: &'static str = "as fifo, but a later task may start while the first waits, where \
         it is believed not to delay the first";
    const SOURCE: &'static str = "EASY backfill: Lifka, The ANL/IBM SP scheduling system, JSSPP 1995; \
         Slurm's sched/backfill is of its kind";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.asked(job) == Some(way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        queue::serve(driver, backfill::start)
    }
}
