//! A queue in which short tasks come first.

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;
use crate::policies::queue::{self, Waiting};

pub(super) struct ShortestFirst;

impl Driven for ShortestFirst {
    const NAME: &'static str = "shortest-first";
    const DEFINITION: &'static str = "of the waiting tasks that fit the free devices, on the device \
         count that their users asked for, the one that is believed to be shortest starts";
    const SOURCE: &'static str =
        "shortest processing time: Smith, Naval Research Logistics Quarterly 3, 1956";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.asked(job) == Some(way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        queue::serve(driver, |driver, waiting| {
            let mut waiting: Vec<&Waiting> = waiting.to_vec();
            waiting.sort_by(|a, b| a.takes_s.total_cmp(&b.takes_s));
            waiting.into_iter().find_map(|one| queue::start_now(driver, one))
        })
    }
}
