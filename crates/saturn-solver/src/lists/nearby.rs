//! Which tasks of a region would take about as long in a gang of a given width.
//!
//! Late in an annealing most of a plan is right, and gains of a fraction of a percent remain here
//! and there. Two tasks of nearly the same runtime can change places at little cost. Such pairs are
//! proposed on purpose: among a thousand tasks a random pair is hardly ever such a pair.
//!
//! Knows runtimes, not where a task is now.

use crate::course::random::Random;
use crate::problem::model::Model;

/// A task with the mode that it would have.
#[derive(Debug, Clone, Copy)]
struct Peer {
    runtime: f64,
    task: u32,
    mode: u16,
}

/// Tasks by kind, width and runtime.
pub(crate) struct Nearby {
    /// For each kind, for each width less one: ascending in runtime.
    peers: Vec<Vec<Vec<Peer>>>,
}

impl Nearby {
    /// The table of `tasks` alone.
    pub(crate) fn new(model: &Model, tasks: &[u32]) -> Self {
        let peers = (0..model.num_kinds)
            .map(|kind| {
                let mut widths: Vec<Vec<Peer>> = vec![Vec::new(); model.widest[kind] as usize];
                for &task in tasks {
                    let modes = &model.tasks[task as usize].modes[kind];
                    for (index, mode) in (0u16..).zip(modes) {
                        let peer = Peer { runtime: mode.runtime, task, mode: index };
                        widths[mode.gpus as usize - 1].push(peer);
                    }
                }
                for width in &mut widths {
                    width.sort_unstable_by(|left, right| left.runtime.total_cmp(&right.runtime));
                }
                widths
            })
            .collect();
        Self { peers }
    }

    /// A task of about that runtime on that kind and width, and its mode; near runtimes more often.
    #[inline]
    pub(crate) fn pick(
        &self,
        kind: usize,
        gpus: u16,
        runtime: f64,
        random: &mut Random,
    ) -> Option<(usize, usize)> {
        let peers = &self.peers[kind][usize::from(gpus) - 1];
        let at = peers.partition_point(|peer| peer.runtime < runtime);
        // Each doubling of the distance is as likely as the last.
        let num_doublings = (peers.len() / 2).checked_ilog2().unwrap_or(0) as usize;
        let doubling = random.below(num_doublings + 1);
        let distance = (1 << doubling) + random.below(1 << doubling);
        let index = if random.below(2) == 0 { at.checked_sub(distance)? } else { at + distance };
        peers.get(index).map(|peer| (peer.task as usize, usize::from(peer.mode)))
    }
}
