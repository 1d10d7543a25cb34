//! The input of a policy: nodes, jobs, and the truth and the beliefs about them.
//!
//! The world behaves by the truth. Beliefs are the results of trials, or earlier knowledge, and
//! every policy plans by the same beliefs. Seconds of a launch, of a checkpoint and of a trial
//! belong to the world, so every policy pays the same for them.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::{Candidate, Cluster, Knobs, Node, Problem, ProblemTask, Strategy};
use saturn_solver::{Backend, Options};

use crate::cases::error::PolicyError;
use crate::cases::script::{Arrivals, Faults};
use crate::driving::calm::Calm;
use crate::solving::planner::Planner;
use crate::workloads::truth::Truth;
use crate::world::cluster::Manners;

/// Seconds that a solve by search takes on the virtual clock.
pub(crate) const SOLVE_S: f64 = 1.0;
/// A move takes longer with more tasks. This number of moves, divided by that of tasks, takes about
/// two seconds of one core. A run's solves may take two seconds (`solver_time_limit_s`).
const MOVES_OF_ALL: u64 = 120_000_000;
/// Least and most moves of a solve that starts from no plan.
const FIRST_MOVES: (u64, u64) = (100_000, 10_000_000);
/// The same of a solve that starts from a plan. A case has many such solves, so they have fewer moves
/// than a run's.
const MOVES_AGAIN_OF_ALL: u64 = 20_000_000;
const MOVES_AGAIN: (u64, u64) = (20_000, 1_000_000);
/// Reports of progress in the longest task: each is an event for the engine.
const NUM_WORDS: u64 = 200;
/// Fewest steps between two reports.
const LEAST_STEPS: u64 = 20;

/// A task to be trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Unique name.
    pub name: String,
    /// The name of its group in the truth.
    pub group: String,
    /// Optimizer steps.
    pub steps: u64,
    /// Device counts that it may be trained on; `None` for all.
    pub gpus: Option<Vec<u32>>,
    /// The device count that its user asks a queue for; `None`: all devices of a node.
    pub asks: Option<u32>,
    /// When it arrives, seconds. No policy knows of it before.
    pub arrives_s: f64,
    /// Its owner; empty if the workload names no owners.
    pub owner: String,
    /// Steps after which its own code ends it, if that is before the last. No policy knows.
    pub ends_after: Option<u64>,
}

/// The knowledge of policies at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Beliefs about every strategy.
    Profile,
    /// Nothing: a policy has to measure the strategies that it plans by.
    Nothing,
}

/// Moves of the search in a solve, in place of a time limit: equal seeds give equal plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moves {
    /// If the search starts from no plan.
    pub first: u64,
    /// If the search starts from the plan that is followed.
    pub again: u64,
}

impl Moves {
    /// The moves for so many tasks.
    pub fn of(num_tasks: usize) -> Self {
        let shared = |all: u64, (least, most): (u64, u64)| {
            (all / (num_tasks as u64).max(1)).clamp(least, most)
        };
        Self {
            first: shared(MOVES_OF_ALL, FIRST_MOVES),
            again: shared(MOVES_AGAIN_OF_ALL, MOVES_AGAIN),
        }
    }

    /// The same with so many in the first solve, and at most so many in the others.
    #[must_use]
    pub fn with_first(self, first: u64) -> Self {
        Self { first, again: self.again.min(first) }
    }
}

/// A case to simulate.
#[derive(Debug, Clone)]
pub struct Case {
    /// Nodes of one type of device.
    pub nodes: Vec<Node>,
    /// Tasks, in the order of the workload.
    pub jobs: Vec<Job>,
    /// Arrivals that are drawn anew with each seed.
    pub arrivals: Vec<Arrivals>,
    /// What goes wrong, drawn anew with each seed.
    pub faults: Faults,
    /// The truth.
    pub truth: Truth,
    /// The beliefs.
    pub believed: Truth,
    /// The knowledge at the beginning.
    pub knowledge: Knowledge,
    /// Seconds between two checkpoints of an attempt.
    pub checkpoint_every_s: f64,
    /// The factor by which steps take longer while another task is on the node. No policy knows.
    pub neighbours: f64,
    /// Steps of a trial.
    pub trial_steps: u32,
    /// Moves of the search in a solve.
    pub moves: Moves,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// A strategy, and the believed time of a step under it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Way {
    pub(crate) technique: String,
    pub(crate) gpus: u32,
    pub(crate) step_s: f64,
}

impl Way {
    pub(crate) fn strategy(&self) -> Strategy {
        let technique = self.technique.clone();
        Strategy { technique, gpus: self.gpus, knobs: Knobs::new() }
    }
}

/// A planning problem, and the meaning of its indices.
#[derive(Debug)]
pub(crate) struct Posed {
    pub(crate) problem: Problem,
    /// The job of each task.
    pub(crate) jobs: Vec<usize>,
    /// The remaining steps of each task.
    pub(crate) left: Vec<u64>,
    /// The case's node of each node.
    pub(crate) nodes: Vec<usize>,
    /// The strategies of each task.
    pub(crate) ways: Vec<Vec<Way>>,
}

impl Case {
    /// The same case as another seed draws it: its arrivals, faults and beliefs. Each technique is
    /// believed to be slower or faster by up to `error`, the same for all tasks. Each strategy of a
    /// group has a further error of up to `error`. The truth stays as it is.
    #[must_use]
    pub fn drawn(&self, error: f64, seed: u64) -> Self {
        let mut case = Self { seed, ..self.truthful() };
        case.draw_tasks(seed);
        if error <= 0.0 {
            return case;
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut factor = || 1.0 + rng.random_range(-error..=error);
        let mut names: Vec<String> =
            case.truth.groups.values().flat_map(|one| one.techniques.keys().cloned()).collect();
        names.sort_unstable();
        names.dedup();
        let biases: Vec<(String, f64)> = names.into_iter().map(|name| (name, factor())).collect();
        for group in case.believed.groups.values_mut() {
            for (name, technique) in &mut group.techniques {
                let bias = biases.iter().find(|(known, _)| known == name).map_or(1.0, |one| one.1);
                for step_s in technique.measured.values_mut() {
                    *step_s *= bias * factor();
                }
            }
        }
        case
    }

    /// The same case with true beliefs.
    pub(crate) fn truthful(&self) -> Self {
        Self { believed: self.truth.clone(), ..self.clone() }
    }

    /// The type of all devices.
    pub(crate) fn gpu_type(&self) -> &str {
        self.nodes.first().map_or("", |node| node.gpu_type.as_str())
    }

    /// Devices of the largest node.
    pub(crate) fn widest(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).max().unwrap_or(0)
    }

    /// Devices of all nodes.
    pub fn num_gpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).sum()
    }

    /// The strategies that a job may run under, by `truth`.
    fn ways_by(&self, job: &Job, truth: &Truth) -> Vec<Way> {
        let widest = self.widest();
        let techniques = truth.groups.get(&job.group).into_iter().flat_map(|one| &one.techniques);
        let ways = techniques.flat_map(|(technique, curve)| {
            curve.measured.iter().map(|(gpus, step_s)| Way {
                technique: technique.clone(),
                gpus: *gpus,
                step_s: *step_s,
            })
        });
        let is_allowed = |way: &Way| {
            way.gpus <= widest && job.gpus.as_ref().is_none_or(|all| all.contains(&way.gpus))
        };
        ways.filter(is_allowed).collect()
    }

    /// The strategies that a job may run under, by the beliefs.
    pub(crate) fn ways(&self, job: usize) -> Vec<Way> {
        self.jobs.get(job).map(|job| self.ways_by(job, &self.believed)).unwrap_or_default()
    }

    /// The fastest of a job's strategies on that number of devices, by the beliefs.
    pub(crate) fn fastest_on(&self, job: usize, gpus: u32) -> Option<Way> {
        let ways = self.ways(job).into_iter().filter(|way| way.gpus == gpus);
        ways.min_by(|a, b| a.step_s.total_cmp(&b.step_s))
    }

    /// The device count that a job's user asks a queue for: that of the workload, else all devices
    /// of a node. If no strategy has that count, it is the nearest lower count with a strategy,
    /// else the nearest higher count.
    pub(crate) fn asked(&self, job: usize) -> Option<u32> {
        let asked = self.jobs.get(job)?.asks.unwrap_or_else(|| self.widest());
        let counts: Vec<u32> = self.ways(job).iter().map(|way| way.gpus).collect();
        let below = counts.iter().copied().filter(|gpus| *gpus <= asked).max();
        below.or_else(|| counts.iter().copied().min())
    }

    /// The fastest strategy on the device count that a job's user asks a queue for.
    pub(crate) fn asked_way(&self, job: usize) -> Result<Way, PolicyError> {
        let way = self.asked(job).and_then(|gpus| self.fastest_on(job, gpus));
        way.ok_or_else(|| PolicyError::NoStrategy { task: self.jobs[job].name.clone() })
    }

    /// Seconds from a job's launch to its first step, and of its checkpoint.
    pub(crate) fn load_and_save_s(&self, job: usize) -> (f64, f64) {
        let group = self.jobs.get(job).and_then(|job| self.truth.groups.get(&job.group));
        group.map_or((0.0, 0.0), |group| (group.load_s, group.save_s))
    }

    /// Seconds from a job's launch to its last checkpoint, for its last `num_steps` steps, with the
    /// checkpoints and evaluations in between.
    pub(crate) fn training_s(&self, job: usize, step_s: f64, num_steps: u64) -> f64 {
        let (load_s, save_s) = self.load_and_save_s(job);
        let between = self.steps_between_saves(step_s);
        let num_between = ((num_steps.max(1) - 1) as f64 / between).floor();
        let all = self.jobs.get(job).map_or(0, |job| job.steps);
        let evaluations_s = self.evaluations_s(job, all.saturating_sub(num_steps), all);
        load_s + num_steps as f64 * step_s + evaluations_s + (1.0 + num_between) * save_s
    }

    /// Seconds of a job's evaluations after more than `from` steps, up to `to` steps.
    pub(crate) fn evaluations_s(&self, job: usize, from: u64, to: u64) -> f64 {
        let Some(job) = self.jobs.get(job) else { return 0.0 };
        let group = self.truth.groups.get(&job.group);
        group.and_then(|group| group.evaluating).map_or(0.0, |evaluating| {
            evaluating.number(from, to, job.steps) as f64 * evaluating.takes_s
        })
    }

    /// Steps from a checkpoint to the next in an attempt.
    pub(crate) fn steps_between_saves(&self, step_s: f64) -> f64 {
        (self.checkpoint_every_s / step_s).ceil().max(1.0)
    }

    /// The remaining work of the jobs as a planning problem by the beliefs. `left` gives each job's
    /// steps, 0 if it is done. Only strategies that `is_allowed` are in it.
    pub(crate) fn posed(
        &self,
        left: &[u64],
        is_allowed: impl Fn(usize, &Way) -> bool,
    ) -> Result<Posed, PolicyError> {
        self.posed_by(left, is_allowed, |job, way, steps| self.training_s(job, way.step_s, steps))
    }

    /// The same with other runtimes: the seconds of a job's steps under a strategy.
    pub(crate) fn posed_by(
        &self,
        left: &[u64],
        is_allowed: impl Fn(usize, &Way) -> bool,
        runtime_s: impl Fn(usize, &Way, u64) -> f64,
    ) -> Result<Posed, PolicyError> {
        let cluster = Cluster { nodes: self.nodes.clone() };
        let mut posed = Posed {
            problem: Problem::new(cluster, Vec::new()),
            jobs: Vec::new(),
            left: Vec::new(),
            nodes: (0..self.nodes.len()).collect(),
            ways: Vec::new(),
        };
        for (job, steps) in left.iter().enumerate().filter(|(_, steps)| **steps > 0) {
            let mut ways = self.ways(job);
            ways.retain(|way| is_allowed(job, way));
            let name = &self.jobs[job].name;
            if ways.is_empty() {
                return Err(PolicyError::NoStrategy { task: name.clone() });
            }
            let candidate = |way: &Way| Candidate {
                technique: Arc::from(way.technique.as_str()),
                gpus: way.gpus,
                gpu_type: None,
                runtime_s: runtime_s(job, way, *steps),
                pack: true,
                host_bytes: 0,
                relative_error: 0.0,
            };
            let (load_s, save_s) = self.load_and_save_s(job);
            posed.problem.tasks.push(ProblemTask {
                switch_cost_s: Some(load_s + save_s),
                ..ProblemTask::new(name, ways.iter().map(candidate).collect())
            });
            posed.jobs.push(job);
            posed.left.push(*steps);
            posed.ways.push(ways);
        }
        Ok(posed)
    }

    /// The options of a solve that starts from no plan. The clock stands still, so the number of
    /// moves limits the solve.
    pub(crate) fn options(&self, backend: Backend, max_switches: usize) -> Options {
        Options {
            backend,
            max_moves: Some(self.moves.first),
            seed: self.seed,
            threads: 1,
            max_switches,
            min_switch_gain: if max_switches > 0 { 0.02 } else { 0.0 },
            ..Options::default()
        }
    }

    /// The world's behaviour. `trials_train` is whether a trial may go on as training.
    pub(crate) fn calm(&self, trials_train: bool) -> Calm {
        let longest = self.jobs.iter().map(|job| job.steps).max().unwrap_or(0);
        let manners = Manners {
            look_up_every: (longest / NUM_WORDS).max(LEAST_STEPS),
            tell_every_s: 0.0,
            teardown_s: 0.0,
            trial_s: 0.0,
            trial_steps: self.trial_steps,
            trials_train,
            trial_noise: 0.0,
        };
        let planner = Planner {
            first_moves: self.moves.first,
            takes_s: SOLVE_S,
            ..Planner::of_moves(self.moves.again)
        };
        Calm { planner, manners, save_every_s: self.checkpoint_every_s, seed: self.seed }
    }
}
