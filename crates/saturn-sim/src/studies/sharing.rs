//! How people fare who share a pool, under policies for queues and under Saturn's.
//!
//! A workload has 3 to 8 people, who submit sweeps of tasks to 8 to 32 GPUs, over a time in which
//! the pool could train about all of them. Each policy trains it. A person's *ratio* is the time from
//! the person's first submission to the end of the person's last task, over the same if the person had
//! a share of the pool alone (finish-time fairness: Mahajan et al., Themis, NSDI 2020).

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;

use crate::cases::case::{Case, Job, Knowledge, Moves};
use crate::cases::error::PolicyError;
use crate::cases::script::Faults;
use crate::policies::interface::Policy;
use crate::policies::list::simulate;
use crate::workloads::truth::{GroupTruth, TechniqueTruth, Truth};

/// GPUs of a node, and the counts that tasks can have.
const GPUS: u32 = 8;
const COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Seconds a step, whatever the task: only a task's whole time matters here.
const STEP_S: f64 = 10.0;
/// The mean GPU-seconds of a task, in the middle of a log-normal distribution.
const TASK_S: f64 = 3.0 * 3600.0;
/// Seconds of a launch and of a checkpoint.
const LOAD_S: f64 = 30.0;
const SAVE_S: f64 = 10.0;
/// Moves of each solve.
const MOVES: u64 = 20_000;

/// What came of a workload under a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Fared {
    /// The mean over tasks of the time from submission to end, seconds.
    pub mean_s: f64,
    /// Each person's ratio, by name.
    pub ratios: Vec<f64>,
    /// The mean over each person's tasks of the time from submission to end, seconds.
    pub means_s: Vec<f64>,
    /// Launches beyond each task's first, a task.
    pub moves: f64,
    /// The share of the GPUs' time, until the last task was done, that training held.
    pub in_use: f64,
}

/// The special people of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// None.
    Plain,
    /// So many short tasks of one further person come in the middle.
    Burst(usize),
    /// The tasks of the first person are cut into so many parts each.
    Split(u64),
}

/// A random workload.
pub fn shared(seed: u64, kind: Kind) -> Case {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let num_nodes = rng.random_range(1..=4u32);
    let nodes = (0..num_nodes).map(|node| Node::new(format!("n{node}"), GPUS, "gpu")).collect();
    let mut truth = Truth { speeds: [("gpu".to_owned(), 1.0)].into(), ..Truth::default() };
    let mut jobs: Vec<Job> = Vec::new();
    let mut sweeps = Vec::new();
    for person in 0..rng.random_range(3..=8usize) {
        for _ in 0..rng.random_range(1..=3u32) {
            sweeps.push((person, [1, 2, 3, 5, 8, 12, 16][rng.random_range(0..7usize)]));
        }
    }
    let num_tasks: usize = sweeps.iter().map(|(_, num)| num).sum();
    // The time in which the pool could train them if nothing were lost.
    let span_s = num_tasks as f64 * TASK_S * 1.5 / f64::from(num_nodes * GPUS);
    for (sweep, (person, num)) in sweeps.iter().enumerate() {
        let middle = TASK_S * normal(&mut rng, 0.7).exp();
        let scaling = rng.random_range(0.55..0.95);
        let group = format!("g{sweep}");
        truth.groups.insert(group.clone(), group_truth(&mut rng, scaling));
        let arrives_s = if sweep == 0 { 0.0 } else { rng.random_range(0.0..0.8) * span_s };
        let asks = COUNTS[rng.random_range(0..COUNTS.len())];
        for task in 0..*num {
            let gpu_s = middle * normal(&mut rng, 0.3).exp();
            jobs.push(Job {
                name: format!("p{person}-{sweep}-{task}"),
                group: group.clone(),
                steps: steps(gpu_s),
                gpus: None,
                asks: Some(asks),
                arrives_s,
                owner: format!("p{person}"),
                ends_after: None,
            });
        }
    }
    match kind {
        Kind::Plain => {}
        Kind::Burst(num) => burst(&mut jobs, &mut truth, num, span_s / 2.0),
        Kind::Split(parts) => split(&mut jobs, parts),
    }
    let (arrivals, faults) = (Vec::new(), Faults::default());
    let moves = Moves { first: MOVES, again: MOVES };
    let (checkpoint_every_s, neighbours, trial_steps) = (3600.0, 1.0, 4);
    let (believed, knowledge) = (truth.clone(), Knowledge::Profile);
    Case {
        nodes,
        jobs,
        arrivals,
        faults,
        truth,
        believed,
        knowledge,
        checkpoint_every_s,
        neighbours,
        trial_steps,
        moves,
        seed,
    }
}

fn steps(gpu_s: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of steps"
    )]
    let steps = (gpu_s / STEP_S).ceil().max(10.0) as u64;
    steps
}

/// A normally distributed number, by twelve uniform ones.
fn normal(rng: &mut Xoshiro256PlusPlus, deviation: f64) -> f64 {
    let sum: f64 = (0..12).map(|_| rng.random_range(0.0..1.0)).sum();
    (sum - 6.0) * deviation
}

fn group_truth(rng: &mut Xoshiro256PlusPlus, scaling: f64) -> GroupTruth {
    let measured = COUNTS.iter().map(|gpus| {
        let noise = rng.random_range(0.97..1.03);
        (*gpus, STEP_S / f64::from(*gpus).powf(scaling) * noise)
    });
    let measured: BTreeMap<u32, f64> = measured.collect();
    let technique = TechniqueTruth { factor: 1.0, scaling, measured, fits_from: 1, refusal: None };
    GroupTruth {
        step_s: STEP_S,
        load_s: LOAD_S,
        save_s: SAVE_S,
        evaluating: None,
        batches_per_epoch: 0,
        techniques: [("ddp".to_owned(), technique)].into(),
    }
}

/// Tasks of a minute or two each.
fn burst(jobs: &mut Vec<Job>, truth: &mut Truth, num: usize, arrives_s: f64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(num as u64);
    truth.groups.insert("burst".to_owned(), group_truth(&mut rng, 0.7));
    jobs.extend((0..num).map(|task| Job {
        name: format!("burst-{task}"),
        group: "burst".to_owned(),
        steps: 10,
        gpus: None,
        asks: Some(1),
        arrives_s,
        owner: "burst".to_owned(),
        ends_after: None,
    }));
}

fn split(jobs: &mut Vec<Job>, parts: u64) {
    let (of_first, mut all): (Vec<Job>, Vec<Job>) =
        std::mem::take(jobs).into_iter().partition(|job| job.owner == "p0");
    for job in of_first {
        all.extend((0..parts).map(|part| Job {
            name: format!("{}-{part}", job.name),
            steps: (job.steps / parts).max(1),
            ..job.clone()
        }));
    }
    *jobs = all;
}

/// Trains a workload under a policy. `alone_s` is each person's time alone ([`Case::alone_s`]).
pub fn fare(policy: &dyn Policy, case: &Case, alone_s: &[f64]) -> Result<Fared, PolicyError> {
    let outcome = simulate(policy, case, &|| false)?;
    Ok(Fared {
        mean_s: outcome.mean_completion_s(),
        ratios: outcome.ratios(case, alone_s),
        means_s: outcome.means_s(case),
        moves: outcome.num_moves() as f64 / case.jobs.len().max(1) as f64,
        in_use: outcome.in_use(case.num_gpus()),
    })
}
