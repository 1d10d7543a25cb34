//! Current practice with the technique that people use by habit, before they measure anything.

use saturn_solver::Backend;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow;
use crate::policies::interface::Driven;

/// The techniques of habit. The first that a job can run under is taken.
const HABITS: [&str; 2] = ["ddp", "pipeline"];

pub(super) struct CurrentPracticeHabit;

impl Driven for CurrentPracticeHabit {
    const NAME: &'static str = "current-practice-habit";
    const DEFINITION: &'static str = "as current-practice-fastest, but by data parallelism (ddp) where \
         the model fits, else a pipeline; where neither is known to run, the fastest technique";
    const SOURCE: &'static str = "the other reading of \"current practice\" in arXiv 2309.01226: the \
         technique is chosen by habit, not by measurement";

    fn measures(&self, _case: &Case, _job: usize, _way: &Way) -> bool {
        false
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        let case = driver.case;
        let habits: Vec<Option<&str>> = (0..case.jobs.len()).map(|job| habit(case, job)).collect();
        follow::follow_plans(driver, Backend::CurrentPractice, 0, |job, way| {
            habits[job].is_none_or(|habit| way.technique == habit)
        })
    }
}

/// The technique of habit of a job.
fn habit(case: &Case, job: usize) -> Option<&'static str> {
    let ways = case.ways(job);
    HABITS.into_iter().find(|habit| ways.iter().any(|way| way.technique == *habit))
}
