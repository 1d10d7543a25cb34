//! How much owners are slowed down by each other: finish-time fairness (Mahajan et al., Themis,
//! NSDI 2020).
//!
//! An owner's ratio has the time from the arrival of its first task to the end of its last under a
//! policy above, and below the same if the owner trained alone on its share of the pool. Themis
//! calls them `T_sh` and `T_id`.

use std::collections::BTreeMap;

use saturn_core::Node;
use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::cases::case::{Case, Job};
use crate::cases::error::PolicyError;
use crate::cases::outcome::Outcome;

/// Moves of the search for a plan of an owner's tasks alone.
const MOVES: u64 = 20_000;

impl Case {
    /// The tasks of each owner; none if the workload names no owners.
    fn owners(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut owners: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let named = self.jobs.iter().enumerate().filter(|(_, job)| !job.owner.is_empty());
        for (index, job) in named {
            owners.entry(&job.owner).or_default().push(index);
        }
        owners
    }

    /// Seconds that each owner would take alone on its share of the pool: by the solver's plan
    /// without switches, by the true step times, with the arrivals as they are.
    pub fn alone_s(&self) -> Result<Vec<f64>, PolicyError> {
        let owners = self.owners();
        let num_owners = u32::try_from(owners.len()).unwrap_or(u32::MAX);
        let alone_s = |jobs: &Vec<usize>| {
            let case = Self { nodes: self.share(num_owners, jobs), ..self.truthful() };
            let steps = |(index, job): (usize, &Job)| {
                if jobs.contains(&index) { job.ends_after.unwrap_or(job.steps) } else { 0 }
            };
            let left: Vec<u64> = case.jobs.iter().enumerate().map(steps).collect();
            let mut posed = case.posed(&left, |_, _| true)?;
            let first_s = self.first_arrival_s(jobs);
            for (task, job) in posed.problem.tasks.iter_mut().zip(&posed.jobs) {
                task.release_s = case.arrives_s(*job) - first_s;
            }
            let options = Options { max_moves: Some(MOVES), ..case.options(Backend::Search, 0) };
            let plan = solve(&posed.problem, &options, &FrozenClock)?;
            if plan.is_usable() {
                return Ok(plan.makespan_s);
            }
            Err(PolicyError::NoPlan { reason: "time ran out".to_owned() })
        };
        owners.values().map(alone_s).collect()
    }

    /// The nodes of an owner alone: the pool's devices over the number of owners, rounded down, as
    /// whole nodes, and a smaller node for the devices that are left. If a task of the owner needs
    /// more, the share is one node of as many devices as the task needs.
    fn share(&self, num_owners: u32, jobs: &[usize]) -> Vec<Node> {
        let mut left = (self.num_gpus() / num_owners).max(1);
        let mut nodes = Vec::new();
        for node in &self.nodes {
            let gpus = node.gpus.min(left);
            if gpus > 0 {
                nodes.push(Node { gpus, ..node.clone() });
                left -= gpus;
            }
        }
        let least = |job: &usize| self.ways(*job).iter().map(|way| way.gpus).min();
        let needed = jobs.iter().filter_map(least).max().unwrap_or(1);
        if nodes.iter().any(|node| node.gpus >= needed) {
            return nodes;
        }
        vec![Node::new("n0", needed, self.gpu_type())]
    }

    fn first_arrival_s(&self, jobs: &[usize]) -> f64 {
        jobs.iter().map(|job| self.arrives_s(*job)).fold(f64::INFINITY, f64::min)
    }
}

impl Outcome {
    /// The owners' ratios, by name, given each owner's time alone.
    pub fn ratios(&self, case: &Case, alone_s: &[f64]) -> Vec<f64> {
        let owners = case.owners();
        let ratio = |(jobs, alone_s): (&Vec<usize>, &f64)| {
            let ends_s = jobs.iter().map(|job| self.ends_s[*job]).fold(0.0, f64::max);
            (ends_s - case.first_arrival_s(jobs)) / alone_s
        };
        owners.values().zip(alone_s).map(ratio).collect()
    }

    /// The mean over each owner's tasks of the seconds from arrival to end, by name.
    pub fn means_s(&self, case: &Case) -> Vec<f64> {
        let takes_s = |job: &usize| self.ends_s[*job] - case.arrives_s(*job);
        let mean = |jobs: &Vec<usize>| jobs.iter().map(takes_s).sum::<f64>() / jobs.len() as f64;
        case.owners().values().map(mean).collect()
    }

    /// The worst and the mean of the owners' ratios, given each owner's time alone; `None` if there
    /// are no owners.
    pub fn fairness(&self, case: &Case, alone_s: &[f64]) -> Option<(f64, f64)> {
        let ratios = self.ratios(case, alone_s);
        let worst = ratios.iter().copied().reduce(f64::max)?;
        Some((worst, ratios.iter().sum::<f64>() / ratios.len() as f64))
    }
}
