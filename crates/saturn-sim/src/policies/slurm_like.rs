//! A queue with backfill whose order is by fair shares, as Slurm's is.
//!
//! The owner who has used least is first: all owners have the same share S, and an owner's factor is
//! 2^(−U / S), where U is the owner's part of the GPU time that was used so far. Time that was used a
//! day ago counts half. Between tasks of owners with the same factor the first that arrived is first.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::LN_2;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::backfill;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;
use crate::policies::queue::{self, Waiting};

/// GPU time that was used so many seconds ago counts half.
const HALF_LIFE_S: f64 = 86_400.0;

pub(super) struct SlurmLike;

impl Driven for SlurmLike {
    const NAME: &'static str = "slurm-like";
    const DEFINITION: &'static str = "as fifo-backfill, but the tasks of the owner who has used the pool \
         least are first; GPU time that was used a day ago counts half";
    const SOURCE: &'static str = "Slurm's priority/multifactor plugin with the classic fair share alone, \
         and sched/backfill";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.asked(job) == Some(way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        queue::serve(driver, |driver, waiting| {
            let used_s = used_s(driver);
            let used = |one: &Waiting| {
                used_s.get(driver.case.jobs[one.job].owner.as_str()).copied().unwrap_or(0.0)
            };
            let mut waiting: Vec<&Waiting> = waiting.to_vec();
            // All shares are equal, so the largest factor is that of the least use. The order among
            // equals stays.
            waiting.sort_by(|a, b| used(a).total_cmp(&used(b)));
            backfill::start(driver, &waiting)
        })
    }
}

/// GPU-seconds that each owner has used, as they count now.
fn used_s<'a>(driver: &Driver<'a>) -> BTreeMap<&'a str, f64> {
    let case = driver.case;
    let now_s = driver.now_s();
    let owners: BTreeSet<&str> = case.jobs.iter().map(|job| job.owner.as_str()).collect();
    let mut used: BTreeMap<&str, f64> = owners.into_iter().map(|owner| (owner, 0.0)).collect();
    // What is left at a time of a GPU that is held for ever until then.
    let lasting_s = |until_s: f64| HALF_LIFE_S / LN_2 * (-(now_s - until_s) / HALF_LIFE_S).exp2();
    for (job, gpus, from_s, to_s) in driver.held() {
        let gpu_s = f64::from(gpus) * (lasting_s(to_s) - lasting_s(from_s));
        *used.entry(case.jobs[job].owner.as_str()).or_default() += gpu_s;
    }
    used
}
