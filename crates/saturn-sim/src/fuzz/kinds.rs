//! Kinds of runs that differ from all others as a whole, drawn from random numbers of their own:
//! searches, and runs that nothing disturbs.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_engine::{Command, Mode, NewTask, Policy, RunConfig};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::fuzz::seed::{is_large, stream};
use crate::solving::planner::Planner;
use crate::watch::invariants::Watch;
use crate::workloads::truth::least_host_bytes;
use crate::workloads::workload::{Size, Workload, task};
use crate::world::cluster::{Manners, World};
use crate::world::faults::{Fault, Odds};

/// The share of seeds whose runs nothing disturbs.
const SHARE: f64 = 0.12;
/// The share of these in which many narrow tasks share one node.
const CROWDED: f64 = 0.6;
/// A time that never comes, seconds.
const NEVER_S: f64 = 1e9;

/// Makes some runs searches.
pub(super) fn draw_search(seed: u64, config: &mut RunConfig) {
    if stream(seed, 30).random_bool(0.05) {
        config.mode = Mode::Search;
    }
}

/// Counts that a run is a search.
pub(super) fn note_search(simulation: &mut Simulation) {
    if simulation.state().config.mode == Mode::Search {
        simulation.world.hit(Fault::Search);
    }
}

/// Whether nothing disturbs the run of a seed.
pub(super) fn is_undisturbed(seed: u64) -> bool {
    !is_large(seed) && stream(seed, 31).random_bool(SHARE)
}

/// A run that nothing disturbs: trials are exact, nothing goes wrong, nothing happens from outside,
/// and no plan is made after what the trials have found. There is little host memory, so that its
/// tasks wait for each other in ways that its plan must foresee.
pub(super) fn undisturbed(seed: u64) -> Simulation {
    let mut rng = stream(seed, 32);
    let size = Size { nodes: 2, gpus: 4, tasks: 14, steps: (50, 800), techniques: 2 };
    let mut workload = Workload::draw(&mut rng, &size);
    for node in &mut workload.nodes {
        node.gpus = node.gpus.max(2);
    }
    vary(&mut rng, &mut workload);
    if stream(seed, 33).random_bool(CROWDED) {
        crowd(&mut stream(seed, 34), &mut workload);
    }
    let kind = workload.config.device_kind;
    workload.config.policy = Policy {
        interval_s: NEVER_S,
        checkpoint_every_s: Some(NEVER_S),
        stall_s: NEVER_S,
        host_memory_bytes: Some(least_host_bytes(kind) / 4 * rng.random_range(4..=8)),
        max_nodes: rng.random_range(1..=2),
        seed,
        ..Policy::default()
    };
    let manners = Manners::exact(rng.random_range(1..10));
    let Workload { nodes, config, truth, tasks } = workload;
    let mut world = World::new(truth, Odds::new(), manners, NEVER_S, seed);
    world.is_exact = true;
    for node in nodes {
        world.add_node(node);
    }
    let mut simulation = Simulation::new(config, world, Planner::of_moves(200));
    simulation.world.hit(Fault::Undisturbed);
    simulation.watch(Watch::after(simulation.state(), &simulation.journal));
    simulation.plan_deed(0.0, Deed::Ask(Command::Submit { tasks }));
    simulation.plan_deed(0.0, Deed::Ask(Command::Close));
    simulation
}

/// Adds tasks, narrows most of them, and makes some many times as long as others.
fn vary(rng: &mut Xoshiro256PlusPlus, workload: &mut Workload) {
    let groups: Vec<String> = workload.truth.groups.keys().cloned().collect();
    for number in 0..rng.random_range(6..20) {
        let group = &groups[rng.random_range(0..groups.len())];
        let mut spec = task(number, group, rng.random_range(20..200));
        spec.name = format!("m{number}");
        workload.tasks.push(NewTask { spec, after: Vec::new() });
    }
    for NewTask { spec, .. } in &mut workload.tasks {
        if rng.random_bool(0.7) {
            spec.gpu_range = Some(vec![1]);
        }
        if rng.random_bool(0.3) {
            let times = rng.random_range(4..20);
            spec.steps = spec.steps.map(|steps| steps * times);
        }
    }
}

/// Leaves one wide node for tasks of one device each: many are ready at a time, and host memory alone
/// decides who starts. Most are short enough to start and end while others wait.
fn crowd(rng: &mut Xoshiro256PlusPlus, workload: &mut Workload) {
    workload.nodes.truncate(1);
    for node in &mut workload.nodes {
        node.gpus = rng.random_range(4..=6);
    }
    for NewTask { spec, .. } in &mut workload.tasks {
        spec.gpu_range = Some(vec![1]);
        if rng.random_bool(0.5) {
            spec.steps = Some(rng.random_range(5..60));
        }
    }
}
