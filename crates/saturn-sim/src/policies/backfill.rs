//! Backfill: the first waiting job has a reservation, and others may start if they don't delay it.

use crate::policies::driver::Driver;
use crate::policies::queue::{self, Start, Waiting};

/// The next start of the waiting jobs, of which the first is to wait least.
pub(super) fn start(driver: &Driver, waiting: &[&Waiting]) -> Option<Start> {
    let (first, others) = waiting.split_first()?;
    queue::start_now(driver, first).or_else(|| {
        let reserved = Reservation::of(driver, first)?;
        others.iter().find_map(|other| reserved.start_beside(driver, other))
    })
}

/// When and where the first waiting job will start, by the beliefs.
struct Reservation {
    node: usize,
    at_s: f64,
    /// Devices of the node that are free then and that the job does not need.
    num_spare: usize,
}

impl Reservation {
    fn of(driver: &Driver, first: &Waiting) -> Option<Self> {
        let num = first.way.gpus as usize;
        let on_node = |node: usize| {
            let free_s = free_s(driver, node);
            let at_s = *free_s.get(num.checked_sub(1)?)?;
            let num_spare = free_s.iter().filter(|free_s| **free_s <= at_s).count() - num;
            Some(Self { node, at_s, num_spare })
        };
        let nodes = (0..driver.case.nodes.len()).filter_map(on_node);
        nodes.min_by(|a, b| a.at_s.total_cmp(&b.at_s))
    }

    /// A start of another job that, by the beliefs, does not delay the first.
    fn start_beside(&self, driver: &Driver, other: &Waiting) -> Option<Start> {
        let gpus = other.way.gpus;
        let is_over = driver.now_s() + other.takes_s <= self.at_s;
        let is_beside =
            |node: usize| node != self.node || is_over || gpus as usize <= self.num_spare;
        let node = driver.nodes_for(gpus).into_iter().find(|node| is_beside(*node))?;
        Some(Start { job: other.job, way: other.way.clone(), gang: driver.gang_on(node, gpus) })
    }
}

/// When each device of a node is believed to be free, ascending, seconds.
fn free_s(driver: &Driver, node: usize) -> Vec<f64> {
    let now_s = driver.now_s();
    let mut free_s = vec![now_s; driver.num_free(node) as usize];
    for live in driver.live() {
        let end_s = now_s + live.time_left_s(driver.case, now_s);
        let held = live.gang.iter().filter(|part| part.node == node);
        free_s.extend(held.flat_map(|part| part.devices.iter().map(|_| end_s)));
    }
    free_s.sort_by(f64::total_cmp);
    free_s
}
