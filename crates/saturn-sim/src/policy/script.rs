//! Changes from outside, as a case's seed draws them: tasks arrive.
//!
//! Every policy lives through the same changes. None of them knows a change before it comes.

use std::ops::Range;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::case::Case;
use crate::heap::Heap;

/// Draws of arrivals must not move the draws of beliefs, which have the seed itself.
const ARRIVALS: u64 = 0x6172_7269_7661_6c73;

/// Arrivals that are drawn: bursts of tasks, with exponential times between two bursts. A Poisson
/// process has bursts of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// Indices of the tasks.
    pub jobs: Range<usize>,
    /// When the first burst comes, seconds.
    pub first_s: f64,
    /// Mean seconds between two bursts.
    pub every_s: f64,
    /// Tasks of a burst.
    pub size: usize,
}

/// An exponential time of that mean, seconds.
fn exponential(rng: &mut impl Rng, mean_s: f64) -> f64 {
    -mean_s * rng.random_range(f64::MIN_POSITIVE..1.0).ln()
}

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// These jobs arrive.
    Arrive(Vec<usize>),
}

/// The changes of a case, in order of time.
#[derive(Debug)]
pub(super) struct Script {
    changes: Heap<Change>,
    num_to_arrive: usize,
}

impl Script {
    pub(super) fn of(case: &Case) -> Self {
        let mut changes = Heap::default();
        let is_together =
            |a: &usize, b: &usize| case.arrives_s(*a).total_cmp(&case.arrives_s(*b)).is_eq();
        for jobs in case.by_arrival().chunk_by(is_together) {
            changes.add(case.arrives_s(jobs[0]), Change::Arrive(jobs.to_vec()));
        }
        Self { changes, num_to_arrive: case.jobs.len() }
    }

    /// The time of the next change.
    pub(super) fn next_s(&self) -> Option<f64> {
        self.changes.next_s()
    }

    /// Whether jobs are still to arrive.
    pub(super) fn has_arrivals(&self) -> bool {
        self.num_to_arrive > 0
    }

    /// Takes the next change out.
    pub(super) fn take(&mut self) -> Option<(f64, Change)> {
        let (at_s, change) = self.changes.take()?;
        match &change {
            Change::Arrive(jobs) => self.num_to_arrive -= jobs.len(),
        }
        Some((at_s, change))
    }
}

impl Case {
    /// Whether the seed draws more than beliefs.
    pub fn is_drawn(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Whether some job arrives later than at the beginning.
    pub fn has_arrivals(&self) -> bool {
        self.jobs.iter().any(|job| job.arrives_s > 0.0)
    }

    /// Indices of the jobs in the order in which they arrive.
    pub(super) fn by_arrival(&self) -> Vec<usize> {
        let mut jobs: Vec<usize> = (0..self.jobs.len()).collect();
        jobs.sort_by(|a, b| self.arrives_s(*a).total_cmp(&self.arrives_s(*b)));
        jobs
    }

    pub(super) fn arrives_s(&self, job: usize) -> f64 {
        self.jobs.get(job).map_or(0.0, |job| job.arrives_s)
    }

    /// Draws when tasks arrive.
    pub(super) fn draw_arrivals(&mut self, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ ARRIVALS);
        for Arrivals { jobs, first_s, every_s, size } in &self.arrivals {
            let mut at_s = *first_s;
            for (number, job) in jobs.clone().enumerate() {
                if number > 0 && number.is_multiple_of(*size) {
                    at_s += exponential(&mut rng, *every_s);
                }
                self.jobs[job].arrives_s = at_s;
            }
        }
    }
}
