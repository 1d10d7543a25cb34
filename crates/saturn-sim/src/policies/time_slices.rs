//! Equal time slices: the pool belongs to one owner after the other.
//!
//! In an owner's slice the owner's tasks are first on all GPUs, in the order in which they arrived.
//! GPUs that they don't need go to the tasks of the owners whose slices come next. At the end of a
//! slice, tasks that get no GPUs in the next slice stop at checkpoints.

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;

/// Seconds of a slice: a task has to be stopped, and loaded again, for each.
const SLICE_S: f64 = 1800.0;

pub(super) struct TimeSlices;

impl Driven for TimeSlices {
    const NAME: &'static str = "time-slices";
    const DEFINITION: &'static str = "the pool belongs to one owner after the other, for 1,800 s each; \
         GPUs that the owner does not need go to the owners who come next; tasks that get none stop at \
         checkpoints; tasks run on the GPU count that their users asked for";
    const SOURCE: &'static str = "round robin by owner, as gang schedulers do: Xiao et al., Gandiva, \
         OSDI 2018";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.asked(job) == Some(way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        let mut slice_ends_s = SLICE_S;
        let mut turn: usize = 0;
        while !driver.is_done() {
            if driver.now_s() >= slice_ends_s {
                turn += 1;
                let winners = winners(driver, turn)?;
                driver.stop(|live| !winners.contains(&live.job))?;
                slice_ends_s = driver.now_s() + SLICE_S;
            }
            for job in in_turn(driver, turn) {
                let way = driver.case.asked_way(job)?;
                let is_waiting = driver.waiting().contains(&job);
                if let Some(node) =
                    driver.nodes_for(way.gpus).first().copied().filter(|_| is_waiting)
                {
                    let gang = driver.gang_on(node, way.gpus);
                    driver.launch(job, way, gang, None)?;
                }
            }
            driver.wait(slice_ends_s)?;
        }
        Ok(())
    }
}

/// The unfinished jobs: first the jobs of the owner whose slice it is. Owners without unfinished jobs
/// have no slice.
fn in_turn(driver: &Driver, turn: usize) -> Vec<usize> {
    let is_open = |job: &usize| driver.job(*job).ended_s.is_none();
    let mut jobs: Vec<usize> = driver.arrived().into_iter().filter(is_open).collect();
    let owner = |job: usize| driver.case.jobs[job].owner.as_str();
    let mut owners: Vec<&str> = jobs.iter().map(|job| owner(*job)).collect();
    owners.sort_unstable();
    owners.dedup();
    let first = turn % owners.len().max(1);
    let place = |job: usize| {
        let number = owners.iter().position(|one| *one == owner(job)).unwrap_or(0);
        (number + owners.len() - first) % owners.len().max(1)
    };
    jobs.sort_by_key(|job| place(*job));
    jobs
}

/// The jobs that have GPUs in this slice. A task that trains stays on its node.
fn winners(driver: &Driver, turn: usize) -> Result<Vec<usize>, PolicyError> {
    let mut free: Vec<u32> =
        (0..driver.case.nodes.len()).map(|node| driver.num_free(node)).collect();
    for live in driver.live() {
        free[live.gang[0].node] += live.way.gpus;
    }
    let mut winners = Vec::new();
    for job in in_turn(driver, turn) {
        let gpus = driver.case.asked_way(job)?.gpus;
        let at = driver.live().find(|live| live.job == job).map(|live| live.gang[0].node);
        let nodes = at.map_or(0..free.len(), |node| node..node + 1);
        let fits = nodes.filter(|node| free[*node] >= gpus);
        if let Some(node) = fits.min_by_key(|node| free[*node]) {
            free[node] -= gpus;
            winners.push(job);
        }
    }
    Ok(winners)
}
