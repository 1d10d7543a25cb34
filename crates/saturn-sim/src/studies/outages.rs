//! Three days of a cluster in which a node fails every hour, and the unavoidable part of the loss.
//!
//! The same engine and the real solver run the same workload twice: without faults, and while a
//! node, drawn anew each hour, is gone for half an hour. The additional time of the second run is
//! compared with the losses that the faults cause by themselves:
//!
//! - *capacity*: missing devices, for as long as they are gone;
//! - *lost work*: the work of a lost node's gangs since their last checkpoint, and the time of
//!   loading them once more, times their devices.
//!
//! If plans are as good as the first run's, the existing devices need until [`Outages::least_s`]
//! for the first run's devices times seconds and these losses.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_engine::{Policy, TaskEnd, TaskStatus};

use crate::driving::calm::Calm;
use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::solving::planner::Planner;
use crate::studies::scale::{GPUS, MANNERS, large};

const HOUR_S: f64 = 3600.0;
/// For how long a node is gone.
const GONE_S: f64 = 1800.0;
/// The latest time by which all tasks have ended, hours.
const MOST_HOURS: f64 = 200.0;
/// Hours on one device of a task, at least and at most: three days for a thousand tasks on 128
/// nodes.
const TASK_HOURS: (f64, f64) = (15.0, 150.0);
/// Moves of the solver's search for each task: a third of a second for a thousand tasks.
const MOVES_A_TASK: u64 = 200;

/// A cluster and its tasks.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Nodes of eight devices.
    pub num_nodes: usize,
    /// Tasks, all there from the beginning.
    pub num_tasks: usize,
}

/// A workload's times with and without faults.
#[derive(Debug, Clone, Copy)]
pub struct Outages {
    /// Seconds that it takes while nothing fails.
    pub calm_s: f64,
    /// Seconds that it takes while nodes fail.
    pub troubled_s: f64,
    /// Nodes that failed meanwhile.
    pub num_failures: u32,
    /// Devices times seconds that were missing, until the end.
    pub gone_device_s: f64,
    /// Devices times seconds of lost work.
    pub lost_device_s: f64,
    /// Seconds with faults, if plans are as good as without faults.
    pub least_s: f64,
}

/// Runs both. `None` if a run does not end, breaks a rule, or has a task that is not done.
pub fn outages(scale: Scale, seed: u64) -> Option<Outages> {
    let mut calm = simulation(scale, seed);
    completed(&mut calm)?;
    let calm_s = calm.world.now_s();
    drop(calm);
    let mut troubled = simulation(scale, seed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6f75_7461_6765_7300);
    let mut failures = Vec::new();
    let mut last = String::new();
    let mut at_s = 0.0;
    while at_s < MOST_HOURS * HOUR_S {
        let failed_s = at_s + rng.random_range(0.0..HOUR_S);
        failures.push(failed_s);
        // Another node each time: the last node may still be gone.
        let nodes: Vec<_> =
            troubled.world.nodes().filter(|node| node.name != last).cloned().collect();
        let node = nodes[rng.random_range(0..nodes.len())].clone();
        last.clone_from(&node.name);
        troubled.plan_deed(failed_s, Deed::NodeGoes(node.name.clone()));
        troubled.plan_deed(failed_s + GONE_S, Deed::NodeComes(node));
        at_s += HOUR_S;
    }
    completed(&mut troubled)?;
    let troubled_s = troubled.world.now_s();
    let lost_device_s = troubled.world.lost_device_s();
    let gone_until = |until_s: f64| -> f64 {
        failures.iter().map(|at_s| (until_s - at_s).clamp(0.0, GONE_S) * f64::from(GPUS)).sum()
    };
    let num_devices = scale.num_nodes as f64 * f64::from(GPUS);
    let mut least_s = calm_s;
    // Each turn finds the end that the outages up to the last end make necessary.
    for _ in 0..50 {
        least_s = calm_s + (lost_device_s + gone_until(least_s)) / num_devices;
    }
    Some(Outages {
        calm_s,
        troubled_s,
        num_failures: u32::try_from(failures.iter().filter(|at_s| **at_s < troubled_s).count())
            .unwrap_or(u32::MAX),
        gone_device_s: gone_until(troubled_s),
        lost_device_s,
        least_s,
    })
}

/// Runs it until every task is done; `None` if a task is not.
fn completed(simulation: &mut Simulation) -> Option<()> {
    simulation.run(MOST_HOURS * HOUR_S)?;
    let state = simulation.state();
    let is_done = |id| matches!(state.task(id).status, TaskStatus::Ended(TaskEnd::Done { .. }));
    state.task_ids().all(is_done).then_some(())
}

fn simulation(scale: Scale, seed: u64) -> Simulation {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut drawn = large(&mut rng, scale.num_tasks, scale.num_nodes, TASK_HOURS);
    drawn.config.policy = Policy {
        checkpoint_every_s: Some(1800.0),
        stall_s: 3.0 * HOUR_S,
        seed,
        ..Policy::default()
    };
    let max_moves = MOVES_A_TASK * scale.num_tasks as u64;
    let planner = Planner { takes_s: 2.0, ..Planner::of_moves(max_moves) };
    let mut simulation =
        Calm { planner, manners: MANNERS, save_every_s: 1800.0, seed }.simulation(drawn);
    simulation.keep_no_journal();
    simulation
}
