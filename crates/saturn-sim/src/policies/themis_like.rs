//! A policy for pools of several owners that levels out how much each is slowed down by the others.
//!
//! Let an owner have arrived at `a`, let W be the GPU-seconds that all of its tasks that have
//! arrived need on the GPU counts that they ask for, by the beliefs, and w the part of W that is
//! left. Alone on its share of S GPUs (the pool's GPUs over the number of owners) it would take
//! W / S seconds. At a time t, with g GPUs from then on, its expected ratio is
//!
//! > ρ(g) = (t − a + w / g) / (W / S)
//!
//! GPUs are given one task after the other to the owner whose ρ is highest with the GPUs that it has
//! by then. Between owners without GPUs, that with the higher ρ(S) is first. So it goes whenever
//! GPUs are free. At the end of each lease all GPUs are given anew: a task that gets none stops at a
//! checkpoint.
//!
//! ρ is the finish-time fairness of Themis (Mahajan et al., Themis: Fair and Efficient GPU Cluster
//! Scheduling, NSDI 2020), and so are leases. Themis finds who gets GPUs by auctions among the owners
//! with the highest ρ, who bid with their ρ for each allocation. Here ρ alone decides.

use std::collections::BTreeMap;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::interface::Driven;

/// Seconds of a lease.
const LEASE_S: f64 = 1200.0;

pub(super) struct ThemisLike;

impl Driven for ThemisLike {
    const NAME: &'static str = "themis-like";
    const DEFINITION: &'static str = "GPUs go to the owner who is slowed down most, against training alone \
         on a share of the pool; they are given anew every 1,200 s, and tasks that get none stop at \
         checkpoints; tasks run on the GPU count that their users asked for";
    const SOURCE: &'static str = "finish-time fairness of Themis: Mahajan et al., NSDI 2020; without its \
         auctions";

    fn measures(&self, case: &Case, job: usize, way: &Way) -> bool {
        case.asked(job) == Some(way.gpus)
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        let mut lease_ends_s = LEASE_S;
        while !driver.is_done() {
            if driver.now_s() >= lease_ends_s {
                let winners = winners(driver, false)?;
                driver.stop(|live| !winners.contains(&live.job))?;
                lease_ends_s = driver.now_s() + LEASE_S;
            }
            for job in winners(driver, true)? {
                let way = driver.case.asked_way(job)?;
                if let Some(node) = driver.nodes_for(way.gpus).first() {
                    let gang = driver.gang_on(*node, way.gpus);
                    driver.launch(job, way, gang, None)?;
                }
            }
            driver.wait(lease_ends_s)?;
        }
        Ok(())
    }
}

/// An owner while GPUs are given out.
#[derive(Default)]
struct Owner {
    arrived_s: f64,
    /// GPU-seconds of its tasks, and the part that is left.
    all: f64,
    left: f64,
    /// GPUs that it has been given.
    gpus: u32,
    /// Tasks that may be given GPUs, with their counts, the next task last.
    jobs: Vec<(usize, u32)>,
}

impl Owner {
    /// Its expected ratio with so many GPUs from now on, without the factor S, which is the same for
    /// all owners.
    fn ratio(&self, now_s: f64, gpus: f64) -> f64 {
        (now_s - self.arrived_s + self.left / gpus) / self.all.max(1e-9)
    }
}

/// The jobs that are given GPUs, in this order. If tasks that train keep their GPUs, only jobs that
/// wait are given any.
fn winners(driver: &Driver, keeps: bool) -> Result<Vec<usize>, PolicyError> {
    let case = driver.case;
    let now_s = driver.now_s();
    let mut free: Vec<u32> = (0..case.nodes.len()).map(|node| driver.num_free(node)).collect();
    let mut node_of: BTreeMap<usize, usize> = BTreeMap::new();
    for live in driver.live() {
        let node = live.gang[0].node;
        node_of.insert(live.job, node);
        if !keeps {
            free[node] += live.way.gpus;
        }
    }
    let left = driver.steps_left();
    let mut owners: BTreeMap<&str, Owner> = BTreeMap::new();
    let mut jobs: Vec<usize> = driver.arrived();
    // Those that train come first among an owner's tasks, which is last in the list.
    jobs.sort_by_key(|job| !node_of.contains_key(job));
    for job in jobs.into_iter().rev() {
        let spec = &case.jobs[job];
        let way = case.asked_way(job)?;
        let owner = owners
            .entry(spec.owner.as_str())
            .or_insert_with(|| Owner { arrived_s: f64::INFINITY, ..Owner::default() });
        let gpu_s = f64::from(way.gpus) * way.step_s;
        owner.arrived_s = owner.arrived_s.min(spec.arrives_s);
        owner.all += gpu_s * spec.steps as f64;
        owner.left += gpu_s * left[job] as f64;
        if keeps && node_of.contains_key(&job) {
            owner.gpus += way.gpus;
        } else if left[job] > 0 {
            owner.jobs.push((job, way.gpus));
        }
    }
    let share = f64::from(case.num_gpus()) / owners.len().max(1) as f64;
    let need =
        |owner: &Owner| (owner.ratio(now_s, f64::from(owner.gpus)), owner.ratio(now_s, share));
    let mut winners = Vec::new();
    loop {
        let open = owners.values_mut().filter(|owner| !owner.jobs.is_empty());
        let first = open.max_by(|a, b| {
            let (a, b) = (need(a), need(b));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let Some(owner) = first else { return Ok(winners) };
        let Some((job, gpus)) = owner.jobs.pop() else { return Ok(winners) };
        // A task that trains stays where it is.
        let nodes = node_of.get(&job).map_or(0..free.len(), |node| *node..node + 1);
        let fits = nodes.filter(|node| free[*node] >= gpus);
        if let Some(node) = fits.min_by_key(|node| free[*node]) {
            free[node] -= gpus;
            owner.gpus += gpus;
            winners.push(job);
        }
    }
}
