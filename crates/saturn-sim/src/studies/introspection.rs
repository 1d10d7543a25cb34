//! What introspection gains or loses if the runtimes that plans rest on are wrong.
//!
//! The same workload runs twice, with the same wrong measurements: with and without re-planning at
//! intervals. The world is exact; only the measurements are wrong. Each technique has a *bias*, the
//! same for all groups and device counts, and each strategy has *noise* of its own.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::TrialOutcome;
use saturn_engine::{Policy, RunEnd};

use crate::driving::calm::Calm;
use crate::solving::planner::Planner;
use crate::workloads::workload::{Size, Workload};
use crate::world::cluster::Manners;

/// Longest run, seconds.
const MAX_S: f64 = 1e7;
/// The number of moves in each solve, so that solves are reproducible.
const MAX_MOVES: u64 = 1000;

/// Makespans of one workload, seconds.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// With introspection.
    pub with_s: f64,
    /// Without.
    pub without_s: f64,
    /// Attempts that introspection stopped to continue them under another strategy or place.
    pub num_moves: usize,
}

impl Pair {
    /// The loss by introspection, as a part of the makespan without; negative if it gains.
    pub fn loss(&self) -> f64 {
        self.with_s / self.without_s - 1.0
    }
}

/// Runs a seed's workload with and without introspection. Measurements are wrong by up to `error`.
pub fn compare(seed: u64, error: f64, interval_s: f64) -> Option<Pair> {
    let (with_s, num_moves) = makespan_s(seed, error, interval_s)?;
    let (without_s, _) = makespan_s(seed, error, 1e12)?;
    Some(Pair { with_s, without_s, num_moves })
}

fn makespan_s(seed: u64, error: f64, interval_s: f64) -> Option<(f64, usize)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let size = Size { nodes: 2, gpus: 4, tasks: 16, steps: (400, 6000), techniques: 2 };
    let mut workload = Workload::draw(&mut rng, &size);
    workload.measure();
    mismeasure(&mut rng, &mut workload, error);
    workload.config.policy = Policy {
        interval_s,
        checkpoint_every_s: Some(1e9),
        stall_s: 1e9,
        seed,
        ..Policy::default()
    };
    let manners = Manners::exact(5);
    let planner = Planner::of_moves(MAX_MOVES);
    let mut simulation = Calm { planner, manners, save_every_s: 1e9, seed }.simulation(workload);
    let end = simulation.run(MAX_S);
    let stopped =
        |record: &saturn_engine::Record| matches!(record, saturn_engine::Record::Stopping { .. });
    let num_moves = simulation.journal.iter().filter(|(record, _)| stopped(record)).count();
    (end == Some(RunEnd::Complete)).then(|| (simulation.world.now_s(), num_moves))
}

fn mismeasure(rng: &mut Xoshiro256PlusPlus, workload: &mut Workload, error: f64) {
    let techniques = workload.config.techniques.clone();
    let biases: Vec<(String, f64)> = techniques
        .into_iter()
        .map(|one| (one.name, 1.0 + rng.random_range(-error..=error)))
        .collect();
    for task in &mut workload.tasks {
        for trial in &mut task.spec.measured {
            let bias = biases.iter().find(|(name, _)| *name == trial.strategy.technique);
            let noise = 1.0 + rng.random_range(-error..=error);
            if let Some(TrialOutcome::Measured { step_s, .. }) = &mut trial.outcome {
                *step_s *= bias.map_or(1.0, |(_, bias)| *bias) * noise;
            }
        }
    }
}
