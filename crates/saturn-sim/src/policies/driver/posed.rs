//! The remaining work, and the same as a planning problem.

use crate::cases::case::{Posed, Way};
use crate::cases::error::PolicyError;
use crate::cases::outcome::Held;
use crate::policies::driver::Driver;

impl Driver<'_> {
    /// The remaining steps of each job, 0 if it is done or has not arrived. A live gang's job has
    /// the steps that the gang last reported.
    pub(crate) fn steps_left(&self) -> Vec<u64> {
        let mut steps: Vec<u64> = self.jobs.iter().map(|job| job.step).collect();
        for live in self.live.values().filter(|live| live.held == Held::Training) {
            steps[live.job] = live.step.max(steps[live.job]);
        }
        let left = self.case.jobs.iter().zip(steps).zip(&self.jobs);
        left.map(|((job, step), progress)| match progress.ended_s {
            None if progress.has_arrived => {
                // A task whose last checkpoint is being written is not done.
                job.steps.saturating_sub(step).max(1)
            }
            _ => 0,
        })
        .collect()
    }

    /// The remaining work of jobs that have arrived as a planning problem on the nodes that are
    /// there. Jobs that none of these can hold wait until lost nodes are back.
    pub(crate) fn posed(
        &self,
        is_allowed: impl Fn(usize, &Way) -> bool,
    ) -> Result<Posed, PolicyError> {
        let case = self.case;
        let mut left = self.steps_left();
        if self.away.is_empty() {
            return case.posed(&left, is_allowed);
        }
        let present: Vec<usize> =
            (0..case.nodes.len()).filter(|node| !self.away.contains(node)).collect();
        let widest = present.iter().map(|node| case.nodes[*node].gpus).max().unwrap_or(0);
        let fits = |job: usize, way: &Way| way.gpus <= widest && is_allowed(job, way);
        for (job, steps) in left.iter_mut().enumerate() {
            if !case.ways(job).iter().any(|way| fits(job, way)) {
                *steps = 0;
            }
        }
        let mut posed = case.posed(&left, fits)?;
        posed.problem.cluster.nodes =
            present.iter().map(|node| case.nodes[*node].clone()).collect();
        posed.nodes = present;
        Ok(posed)
    }
}
