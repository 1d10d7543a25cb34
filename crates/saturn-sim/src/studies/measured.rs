//! The cost and the worth of trials, on measured step times.
//!
//! Groups of tasks are drawn from a table of measured step times. Each has a model, another batch,
//! a few percent that the table doesn't foresee, and sometimes too little memory for some
//! techniques. The real engine and solver run them in a simulation, under one way to spend on
//! trials. The run is compared with the run of an engine that knows every true step time for
//! nothing.

use std::collections::BTreeMap;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;
use saturn_engine::{
    AttemptId, DeviceKind, Level, Mode, NewTask, Policy, Purpose, Record, RunConfig, RunEnd,
    TechniqueRef, TrialBudget,
};

use crate::driving::calm::Calm;
use crate::driving::simulation::Simulation;
use crate::solving::planner::Planner;
use crate::workloads::table::{Model, Table};
use crate::workloads::truth::{GroupTruth, TechniqueTruth, Truth};
use crate::workloads::workload::{Workload, task};
use crate::world::cluster::{Manners, normal};

/// Devices of a node.
const GPUS: u32 = 8;
/// Seconds from launch to the first step, and of a checkpoint.
const LOAD_S: f64 = 10.0;
const SAVE_S: f64 = 3.0;
/// Standard deviation of what a trial measures.
const TRIAL_NOISE: f64 = 0.05;
/// Standard deviation of a strategy's speed from the table's.
const OFF_TABLE: f64 = 0.03;
/// Longest run, seconds.
const MAX_S: f64 = 1e8;

/// How large a workload is.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Nodes of eight devices.
    pub nodes: usize,
    /// Groups of tasks that perform alike.
    pub groups: usize,
    /// Tasks.
    pub tasks: usize,
    /// Part of the run that trials of every strategy would take.
    pub share: f64,
}

/// A way to spend on trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// Saturn's way: trials that are expected to save more than they cost.
    Chosen,
    /// The same up to a part of the cost of trials of every strategy.
    UpTo(f64),
    /// Every strategy.
    Every,
    /// Every technique at 1, 2, 4 and 8 devices; plans use nothing else.
    PowersOfTwo,
    /// Every technique at a number of device counts drawn for each group; plans use nothing else.
    Random(usize),
}

/// What a run spent on trials, and how long it took.
#[derive(Debug, Clone, Copy)]
pub struct Spending {
    /// Device-seconds of the run's trials, over the device-seconds that trials of every strategy
    /// would take. If a trial went on as
    /// training and a later plan moved its task, the trial counts: its launch gained nothing else.
    pub trials: f64,
    /// Trials run, over the number of all strategies.
    pub number: f64,
    /// Trials that went on as training, over trials run.
    pub went_on: f64,
    /// Makespan over that of a run that knows all true step times for nothing.
    pub makespan: f64,
}

/// Runs a workload under a way to spend on trials; `None` if it did not come to its end.
pub fn spend(
    table: &Table,
    shape: &Shape,
    way: Way,
    max_moves: u64,
    seed: u64,
) -> Option<Spending> {
    let mut workload = draw(table, shape, seed);
    let (grid_s, num_all) = grid(&workload);
    let mut known = workload.clone();
    known.measure();
    let best_s = run(known, max_moves, seed)?.world.now_s();
    workload.config.policy.trial_budget = match way {
        Way::Chosen => TrialBudget::Worthwhile,
        Way::UpTo(part) => TrialBudget::Seconds(part * grid_s),
        Way::Every | Way::PowersOfTwo | Way::Random(_) => TrialBudget::Full,
    };
    allow(&mut workload, way, seed);
    let simulation = run(workload, max_moves, seed)?;
    let (trials_s, num_trials, num_went_on) = trials(&simulation);
    Some(Spending {
        trials: trials_s / grid_s,
        number: num_trials as f64 / num_all as f64,
        went_on: num_went_on as f64 / num_trials.max(1) as f64,
        makespan: simulation.world.now_s() / best_s,
    })
}

/// Leaves tasks only the device counts that a way measures.
fn allow(workload: &mut Workload, way: Way, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
    let mut counts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for group in workload.truth.groups.keys() {
        let all: Vec<u32> = (1..=GPUS).collect();
        let counts_of_group = match way {
            Way::Chosen | Way::UpTo(_) | Way::Every => continue,
            Way::PowersOfTwo => all.into_iter().filter(|one| one.is_power_of_two()).collect(),
            Way::Random(number) => {
                // Some strategy must fit: the widest always does.
                let mut drawn: Vec<u32> = (1..GPUS).collect();
                drawn.shuffle(&mut rng);
                drawn.truncate(number - 1);
                drawn.push(GPUS);
                drawn
            }
        };
        counts.insert(group.clone(), counts_of_group);
    }
    for task in &mut workload.tasks {
        if let Some(counts) = counts.get(&task.spec.profile_key) {
            task.spec.gpu_range = Some(counts.clone());
        }
    }
}

/// Runs a workload to its end.
fn run(workload: Workload, max_moves: u64, seed: u64) -> Option<Simulation> {
    let steps = workload.config.policy.warmup_steps + workload.config.policy.timed_steps;
    let manners = Manners {
        look_up_every: 20,
        tell_every_s: 0.0,
        teardown_s: 0.0,
        trial_s: 0.0,
        trial_steps: steps,
        trials_train: true,
        trial_noise: TRIAL_NOISE,
    };
    let planner = Planner { takes_s: 0.5, ..Planner::of_moves(max_moves) };
    let mut simulation = Calm { planner, manners, save_every_s: 1e9, seed }.simulation(workload);
    let end = simulation.run(MAX_S);
    (end == Some(RunEnd::Complete)).then_some(simulation)
}

/// Device-seconds of trials, their number, and how many went on as training.
fn trials(simulation: &Simulation) -> (f64, usize, usize) {
    let (mut number, mut num_went_on) = (0, 0);
    let mut live: BTreeMap<AttemptId, (f64, u32)> = BTreeMap::new();
    let mut trials_s = simulation.engine.state().trials_s;
    // Device-seconds until each trial went on, while a plan may still move its task.
    let mut until_moved: BTreeMap<AttemptId, f64> = BTreeMap::new();
    for (record, at_s) in &simulation.journal {
        match record {
            Record::Launched { attempt, purpose: Purpose::Trial, strategy, .. } => {
                number += 1;
                live.insert(*attempt, (*at_s, strategy.gpus));
            }
            Record::WentOn { attempt, .. } => {
                num_went_on += 1;
                if let Some((launched_s, gpus)) = live.get(attempt) {
                    until_moved.insert(*attempt, (at_s - launched_s) * f64::from(*gpus));
                }
            }
            Record::Stopping { attempt, .. } => {
                trials_s += until_moved.remove(attempt).unwrap_or(0.0);
            }
            _ => {}
        }
    }
    (trials_s, number, num_went_on)
}

/// Device-seconds of trials of every strategy, and their number.
fn grid(workload: &Workload) -> (f64, usize) {
    let trial_steps = workload.config.policy.warmup_steps + workload.config.policy.timed_steps;
    let (mut grid_s, mut number) = (0.0, 0);
    for group in workload.truth.groups.values() {
        for technique in &workload.config.techniques {
            for gpus in 1..=GPUS {
                let step_s = group.techniques.get(&technique.name).and_then(|one| {
                    (gpus >= one.fits_from).then(|| one.measured.get(&gpus).copied()).flatten()
                });
                grid_s +=
                    f64::from(gpus) * (LOAD_S + f64::from(trial_steps) * step_s.unwrap_or(0.0));
                number += 1;
            }
        }
    }
    (grid_s, number)
}

fn draw(table: &Table, shape: &Shape, seed: u64) -> Workload {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let models = models(table);
    let mut truth =
        Truth { speeds: BTreeMap::from([("a800".to_owned(), 1.0)]), ..Truth::default() };
    for group in 0..shape.groups {
        if let Some(model) = models.choose(&mut rng) {
            truth.groups.insert(format!("g{group}"), draw_group(&mut rng, model));
        }
    }
    let mut names: Vec<String> =
        truth.groups.values().flat_map(|group| group.techniques.keys().cloned()).collect();
    names.sort_unstable();
    names.dedup();
    let techniques = names
        .into_iter()
        .map(|name| TechniqueRef { level: Level::Managed, import: None, pickle: None, name })
        .collect();
    let policy = Policy {
        interval_s: 1000.0,
        checkpoint_every_s: Some(1e9),
        stall_s: 1e9,
        seed,
        ..Policy::default()
    };
    let config = RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cuda,
        device_memory_bytes: None,
        techniques,
        policy,
    };
    let nodes =
        (0..shape.nodes).map(|index| Node::new(format!("n{index}"), GPUS, "a800")).collect();
    let mut workload = Workload { nodes, config, truth, tasks: Vec::new() };
    let devices = f64::from(GPUS) * shape.nodes as f64;
    let makespan_s = grid(&workload).0 / shape.share / devices;
    let lengths: Vec<f64> = (0..shape.tasks).map(|_| (0.5 * normal(&mut rng)).exp()).collect();
    let all: f64 = lengths.iter().sum();
    for (index, length) in lengths.iter().enumerate() {
        let group = format!("g{}", index % shape.groups);
        let cheapest_s = workload.truth.groups[&group]
            .techniques
            .values()
            .flat_map(|one| one.measured.iter().filter(|(gpus, _)| **gpus >= one.fits_from))
            .map(|(gpus, step_s)| f64::from(*gpus) * step_s)
            .fold(f64::INFINITY, f64::min);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of steps"
        )]
        let steps = (makespan_s * devices * length / all / cheapest_s).max(1.0) as u64;
        workload.tasks.push(NewTask { spec: task(index, &group, steps), after: Vec::new() });
    }
    workload
}

/// Models with a curve over device counts.
fn models(table: &Table) -> Vec<&Model> {
    let has_curve = |one: &&Model| one.step_s.get("ddp").is_some_and(|curve| curve.len() > 2);
    table.models().map(|(_, model)| model).filter(has_curve).collect()
}

/// A model's step times at another batch, a few percent off, and with less memory in a third.
fn draw_group(rng: &mut Xoshiro256PlusPlus, model: &Model) -> GroupTruth {
    let batch = *[0.5, 1.0, 1.0, 2.0, 4.0].choose(rng).unwrap_or(&1.0);
    let is_short = rng.random_bool(1.0 / 3.0);
    let from: u32 = if is_short { *[2, 4].choose(rng).unwrap_or(&2) } else { 1 };
    let mut techniques = BTreeMap::new();
    for (name, curve) in &model.step_s {
        let (Some((least, _)), Some((most, most_s))) =
            (curve.first_key_value(), curve.last_key_value())
        else {
            continue;
        };
        // The part of a step that does not shrink with the devices is communication: another batch
        // leaves it as it is.
        let first_s = curve[least] * f64::from(*least);
        let fixed_s = if most > least {
            ((most_s * f64::from(*most) - first_s) / f64::from(most - least)).max(0.0)
        } else {
            0.0
        };
        let measured = (*least..=*most)
            .map(|gpus| {
                let table_s = between(curve, gpus);
                let fixed_s = fixed_s.min(0.9 * table_s);
                let step_s = (table_s - fixed_s) * batch + fixed_s;
                (gpus, step_s * (OFF_TABLE * normal(rng)).exp())
            })
            .collect();
        let fits_from = match name.as_str() {
            // Each device holds the whole model, however many there are.
            "ddp" | "ddp+gc" if is_short => GPUS + 1,
            "fsdp" | "tensor" => (*least).max(from),
            _ => *least,
        };
        let technique =
            TechniqueTruth { factor: 1.0, scaling: 1.0, measured, fits_from, refusal: None };
        techniques.insert(name.clone(), technique);
    }
    GroupTruth {
        step_s: 1.0,
        load_s: LOAD_S,
        save_s: SAVE_S,
        evaluating: None,
        batches_per_epoch: 1000,
        techniques,
    }
}

/// Seconds a step between measured device counts: devices · seconds, on logarithmic axes.
fn between(curve: &BTreeMap<u32, f64>, gpus: u32) -> f64 {
    let below = curve.range(..=gpus).next_back();
    let above = curve.range(gpus..).next();
    match (below, above) {
        (Some((a, a_s)), Some((b, b_s))) if a < b => {
            let (a, b, at) = (f64::from(*a), f64::from(*b), f64::from(gpus));
            let part = (at / a).ln() / (b / a).ln();
            ((a * a_s).ln() * (1.0 - part) + (b * b_s).ln() * part).exp() / at
        }
        (Some((_, step_s)), _) | (_, Some((_, step_s))) => *step_s,
        (None, None) => 1.0,
    }
}
