//! Changes from outside, as a case's seed draws them: tasks arrive; nodes are lost, come back, and
//! are slow for some time.
//!
//! Every policy lives through the same changes. No policy knows a change before the change comes.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_engine::TaskId;
use serde::Deserialize;

use crate::cases::case::Case;
use crate::world::gang::whole;
use crate::world::heap::Heap;

/// No draw may move the draws of beliefs, which have the seed itself.
const ARRIVALS: u64 = 0x6172_7269_7661_6c73;
const EARLY: u64 = 0x6561_726c_7900_0000;
const NODES: u64 = 0x6e6f_6465_7300_0000;

/// No workload takes so long, seconds.
const MAX_S: f64 = 1e13;

/// Seconds of an hour.
const HOUR_S: f64 = 3600.0;

/// How often bursts come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Mean seconds between two bursts. The first burst comes at the beginning.
    Every(f64),
    /// Mean bursts in each hour of the day; the simulation begins at midnight.
    PerHour([f64; 24]),
}

/// Arrivals that are drawn: bursts of tasks, with exponential times between two bursts. A Poisson
/// process has bursts of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// Indices of the tasks.
    pub jobs: Range<usize>,
    /// When they begin, seconds.
    pub first_s: f64,
    /// How often bursts come.
    pub pace: Pace,
    /// Tasks of a burst.
    pub size: usize,
}

/// What goes wrong. Each node has its own times.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Nodes are lost with everything on them, and come back.
    pub lost: Option<Lost>,
    /// Nodes are slow for some time.
    pub slow: Option<Slow>,
    /// Tasks end before their last step.
    pub early: Option<Early>,
}

/// Nodes that are lost and come back.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// Mean seconds that a node is there until it is lost.
    pub every_s: f64,
    /// Seconds until it is back.
    pub away_s: f64,
}

/// Nodes that are slow for some time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// Mean seconds that a node is well until it is slow.
    pub every_s: f64,
    /// Seconds until it is well again.
    pub lasts_s: f64,
    /// The factor by which steps on it take longer.
    pub factor: f64,
}

/// Tasks that end before their last step, by their own code.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Early {
    /// How likely it is for each task, from 0 to 1.
    pub share: f64,
    /// The share of its steps after which it ends.
    pub at: f64,
}

/// An exponential time of that mean, seconds.
fn exponential(rng: &mut impl Rng, mean_s: f64) -> f64 {
    -mean_s * rng.random_range(f64::MIN_POSITIVE..1.0).ln()
}

/// When the next burst comes after a time, by the mean numbers of bursts in the hours of a day. As
/// many bursts as an exponential number of mean 1 are expected until then.
fn next_by_hours(rng: &mut impl Rng, per_hour: &[f64; 24], mut at_s: f64) -> f64 {
    let a_day: f64 = per_hour.iter().sum();
    let mut expected = exponential(rng, 1.0);
    at_s += (expected / a_day).floor() * 24.0 * HOUR_S;
    expected %= a_day;
    loop {
        let hour = (at_s / HOUR_S).floor();
        let left_s = (hour + 1.0) * HOUR_S - at_s;
        let bursts_a_second = per_hour[usize::try_from(whole(hour) % 24).unwrap_or(0)] / HOUR_S;
        if bursts_a_second * left_s > expected {
            return at_s + expected / bursts_a_second;
        }
        expected -= bursts_a_second * left_s;
        at_s = (hour + 1.0) * HOUR_S;
    }
}

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// These jobs arrive.
    Arrive(Vec<usize>),
    /// This node is lost with everything on it.
    Lose(usize),
    /// This node is back.
    Return(usize),
    /// Steps on this node take longer by this factor from now on.
    Slow(usize, f64),
}

/// The changes of a case, in order of time.
#[derive(Debug)]
pub(crate) struct Script {
    changes: Heap<Change>,
    faults: Faults,
    rng: Xoshiro256PlusPlus,
    num_to_arrive: usize,
}

impl Script {
    pub(crate) fn of(case: &Case) -> Self {
        let mut changes = Heap::default();
        let is_together =
            |a: &usize, b: &usize| case.arrives_s(*a).total_cmp(&case.arrives_s(*b)).is_eq();
        for jobs in case.by_arrival().chunk_by(is_together) {
            changes.add(case.arrives_s(jobs[0]), Change::Arrive(jobs.to_vec()));
        }
        let rng = Xoshiro256PlusPlus::seed_from_u64(case.seed ^ NODES);
        let num_to_arrive = case.jobs.len();
        let mut script = Self { changes, faults: case.faults, rng, num_to_arrive };
        for node in 0..case.nodes.len() {
            script.is_there(node, 0.0);
            script.is_well(node, 0.0);
        }
        script
    }

    /// Draws when a node is lost that is there from now on.
    fn is_there(&mut self, node: usize, now_s: f64) {
        if let Some(Lost { every_s, .. }) = self.faults.lost {
            let at_s = now_s + exponential(&mut self.rng, every_s);
            self.changes.add(at_s, Change::Lose(node));
        }
    }

    /// Draws when a node is slow that is well from now on.
    fn is_well(&mut self, node: usize, now_s: f64) {
        if let Some(Slow { every_s, factor, .. }) = self.faults.slow {
            let at_s = now_s + exponential(&mut self.rng, every_s);
            self.changes.add(at_s, Change::Slow(node, factor));
        }
    }

    /// The time of the next change.
    pub(crate) fn next_s(&self) -> Option<f64> {
        self.changes.next_s()
    }

    /// Whether jobs are still to arrive.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.num_to_arrive > 0
    }

    /// Takes the next change out.
    pub(crate) fn take(&mut self) -> Option<(f64, Change)> {
        let (at_s, change) = self.changes.take()?;
        match (&change, self.faults) {
            (Change::Arrive(jobs), _) => self.num_to_arrive -= jobs.len(),
            (Change::Lose(node), Faults { lost: Some(lost), .. }) => {
                self.changes.add(at_s + lost.away_s, Change::Return(*node));
            }
            (Change::Return(node), _) => self.is_there(*node, at_s),
            (Change::Slow(node, factor), Faults { slow: Some(slow), .. }) if *factor > 1.0 => {
                self.changes.add(at_s + slow.lasts_s, Change::Slow(*node, 1.0));
            }
            (Change::Slow(node, _), _) => self.is_well(*node, at_s),
            (Change::Lose(_), _) => {}
        }
        Some((at_s, change))
    }
}

impl Case {
    /// When nodes are away, until a time: the node, from and to, seconds.
    pub(crate) fn absences(&self, until_s: f64) -> Vec<(usize, f64, f64)> {
        let mut script = Script::of(self);
        let mut absences = Vec::new();
        while let Some((at_s, change)) = script.take().filter(|(at_s, _)| *at_s < until_s) {
            if let (Change::Lose(node), Some(lost)) = (change, self.faults.lost) {
                absences.push((node, at_s, at_s + lost.away_s));
            }
        }
        absences
    }

    /// By when all tasks are done under any policy, unless nodes are lost so often that tasks don't
    /// get from one checkpoint to the next, seconds.
    pub(crate) fn give_up_s(&self) -> f64 {
        let Some(lost) = self.faults.lost else { return MAX_S };
        let factor = self.faults.slow.map_or(1.0, |slow| slow.factor);
        let slowest_s = |job: usize| {
            let steps = self.jobs[job].steps;
            let all = self.ways(job).into_iter();
            all.map(|way| self.training_s(job, way.step_s * factor, steps)).fold(0.0, f64::max)
        };
        let all_s: f64 = (0..self.jobs.len()).map(slowest_s).sum();
        let arrives_s = self.jobs.iter().map(|job| job.arrives_s).fold(0.0, f64::max);
        arrives_s + 100.0 * (all_s + lost.away_s)
    }

    /// Steps after which tasks end by their own code, by the numbers that tasks of jobs have.
    pub(crate) fn last_steps(&self, task: impl Fn(usize) -> TaskId) -> BTreeMap<TaskId, u64> {
        let jobs = self.jobs.iter().enumerate();
        jobs.filter_map(|(index, job)| Some((task(index), job.ends_after?))).collect()
    }

    /// Whether the seed draws more than beliefs.
    pub fn is_drawn(&self) -> bool {
        !self.arrivals.is_empty() || self.faults.early.is_some()
    }

    /// Whether some job arrives later than at the beginning.
    pub fn has_arrivals(&self) -> bool {
        self.jobs.iter().any(|job| job.arrives_s > 0.0)
    }

    /// Indices of the jobs in the order in which they arrive.
    pub(crate) fn by_arrival(&self) -> Vec<usize> {
        let mut jobs: Vec<usize> = (0..self.jobs.len()).collect();
        jobs.sort_by(|a, b| self.arrives_s(*a).total_cmp(&self.arrives_s(*b)));
        jobs
    }

    pub(crate) fn arrives_s(&self, job: usize) -> f64 {
        self.jobs.get(job).map_or(0.0, |job| job.arrives_s)
    }

    /// Draws when tasks arrive, and which tasks end before their last step.
    pub(crate) fn draw_tasks(&mut self, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ EARLY);
        for job in &mut self.jobs {
            job.ends_after = self
                .faults
                .early
                .filter(|early| rng.random::<f64>() < early.share)
                .map(|early| whole((job.steps as f64 * early.at).ceil()).clamp(1, job.steps));
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ ARRIVALS);
        for Arrivals { jobs, first_s, pace, size } in &self.arrivals {
            let mut at_s = *first_s;
            for (number, job) in jobs.clone().enumerate() {
                if number.is_multiple_of(*size) {
                    at_s = match pace {
                        Pace::Every(_) if number == 0 => at_s,
                        Pace::Every(every_s) => at_s + exponential(&mut rng, *every_s),
                        Pace::PerHour(per_hour) => next_by_hours(&mut rng, per_hour, at_s),
                    };
                }
                self.jobs[job].arrives_s = at_s;
            }
        }
    }
}
