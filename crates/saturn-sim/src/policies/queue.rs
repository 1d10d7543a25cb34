//! Queues: tasks wait in a line, each for the device count that its user asked for. A rule says
//! which task starts when devices come free.

use saturn_core::Gang;

use crate::cases::case::Way;
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;

/// A start of a waiting job.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) job: usize,
    pub(super) way: Way,
    pub(super) gang: Gang,
}

/// A waiting job, with the fastest strategy on the device count that its user asked for.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) job: usize,
    pub(super) way: Way,
    /// Seconds from its launch to its end, by the beliefs.
    pub(super) takes_s: f64,
}

/// Whenever devices have come free, lets `choose` start jobs, one after another, until all are
/// done. `choose` gets the waiting jobs, in the order in which they were handed in.
pub(super) fn serve(
    driver: &mut Driver,
    choose: impl Fn(&Driver, &[&Waiting]) -> Option<Start>,
) -> Result<(), PolicyError> {
    let jobs = 0..driver.case.jobs.len();
    let all: Vec<Waiting> = jobs.map(|job| waits(driver, job)).collect::<Result<_, _>>()?;
    while !driver.is_done() {
        let mut waiting: Vec<&Waiting> =
            driver.waiting().into_iter().filter_map(|job| all.get(job)).collect();
        while let Some(Start { job, way, gang }) = choose(driver, &waiting) {
            waiting.retain(|one| one.job != job);
            driver.launch(job, way, gang, None)?;
        }
        driver.wait(f64::INFINITY)?;
    }
    Ok(())
}

fn waits(driver: &Driver, job: usize) -> Result<Waiting, PolicyError> {
    let case = driver.case;
    let way = case.asked_way(job)?;
    let takes_s = case.training_s(job, way.step_s, case.jobs[job].steps);
    Ok(Waiting { job, way, takes_s })
}

/// A start of it on the node with the fewest free devices that has enough.
pub(super) fn start_now(driver: &Driver, one: &Waiting) -> Option<Start> {
    let node = *driver.nodes_for(one.way.gpus).first()?;
    Some(Start { job: one.job, way: one.way.clone(), gang: driver.gang_on(node, one.way.gpus) })
}
