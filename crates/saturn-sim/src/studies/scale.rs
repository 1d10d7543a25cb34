//! A week of a large pool: tasks that come all the time, faults, nodes that go and come back.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;
use saturn_engine::{Command, NewTask, Policy};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::solving::planner::Planner;
use crate::workloads::workload::{Size, TECHNIQUES, Workload, task, technique};
use crate::world::cluster::{Manners, World};
use crate::world::faults::{Fault, Odds};

/// Devices of a node.
pub(crate) const GPUS: u32 = 8;
/// How a large pool behaves: its tasks report seldom, since their steps are many.
pub(crate) const MANNERS: Manners = Manners {
    look_up_every: 2000,
    tell_every_s: 0.0,
    teardown_s: 1.0,
    trial_s: 60.0,
    trial_steps: 0,
    trials_train: false,
    trial_noise: 0.0,
};
/// A week, seconds.
pub const WEEK_S: f64 = 7.0 * 86_400.0;

/// About `num_tasks` tasks on `num_devices` devices over a week. A stub answers solves with a plan
/// that costs next to nothing.
pub fn week(num_tasks: usize, num_devices: usize, seed: u64) -> Simulation {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    // One to twenty hours on one device, about.
    let mut drawn = large(&mut rng, num_tasks, num_devices.div_ceil(GPUS as usize), (1.0, 20.0));
    drawn.config.policy =
        Policy { checkpoint_every_s: Some(3600.0), stall_s: 1800.0, ..Policy::default() };
    play(drawn, &mut rng, seed)
}

/// Tasks in groups of a hundred, with one measured task in each group, and nodes of [`GPUS`]
/// devices. The hours of a task on one device are drawn, with a uniform logarithm.
pub(crate) fn large(
    rng: &mut Xoshiro256PlusPlus,
    num_tasks: usize,
    num_nodes: usize,
    hours: (f64, f64),
) -> Workload {
    let size = Size { nodes: 1, gpus: GPUS, tasks: 1, steps: (1, 1), techniques: 2 };
    let mut drawn = Workload::draw(rng, &size);
    let mut truth = drawn.truth.clone();
    truth.groups.clear();
    let num_groups = (num_tasks / 100).max(1);
    for group in 0..num_groups {
        let mut one = Workload::draw(rng, &size);
        let (_, mut of_group) = one.truth.groups.pop_first().unwrap_or_else(|| unreachable!());
        of_group.load_s = rng.random_range(60.0..300.0);
        of_group.save_s = rng.random_range(10.0..60.0);
        truth.groups.insert(format!("g{group}"), of_group);
        one.nodes.clear();
    }
    drawn.truth = truth;
    drawn.nodes =
        (0..num_nodes).map(|index| Node::new(format!("n{index}"), GPUS, "fast")).collect();
    drawn.tasks = (0..num_tasks)
        .map(|index| {
            let group = format!("g{}", index % num_groups);
            let one_s = drawn.truth.groups[&group].step_s;
            let hours = hours.0 * (hours.1 / hours.0).powf(rng.random::<f64>());
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of steps"
            )]
            let steps = (hours * 3600.0 / one_s) as u64;
            NewTask { spec: task(index, &group, steps), after: Vec::new() }
        })
        .collect();
    let mut first = Workload { tasks: drawn.tasks[..num_groups].to_vec(), ..drawn.clone() };
    first.measure();
    drawn.tasks[..num_groups].clone_from_slice(&first.tasks);
    drawn.config.techniques = TECHNIQUES[..2].iter().map(|name| technique(name)).collect();
    drawn
}

fn play(drawn: Workload, rng: &mut Xoshiro256PlusPlus, seed: u64) -> Simulation {
    let Workload { nodes, config, truth, tasks } = drawn;
    let odds = Odds::from([
        (Fault::RankCrash, 0.05),
        (Fault::RankKilled, 0.02),
        (Fault::LateOutOfMemory, 0.005),
        (Fault::Hang, 0.01),
        (Fault::LaunchFails, 0.01),
        (Fault::Straggler, 0.05),
        (Fault::NoisySteps, 0.5),
        (Fault::Unkillable, 0.05),
    ]);
    let every_s = config.policy.checkpoint_every_s.unwrap_or(f64::MAX);
    let mut world = World::new(truth, odds, MANNERS, every_s, seed);
    world.history.is_off = true;
    for node in &nodes {
        world.add_node(node.clone());
    }
    let planner = Planner {
        max_moves: 0,
        first_moves: 0,
        takes_s: 2.0,
        by_proof: None,
        in_microseconds: false,
        is_greedy: true,
    };
    let mut simulation = Simulation::new(config, world, planner);
    simulation.keep_no_journal();
    let num_nodes = nodes.len();
    // Sweeps of a hundredth of all, over five days.
    let sweep = tasks.len().div_ceil(100);
    let mut at_s = 0.0;
    for tasks in tasks.chunks(sweep) {
        simulation.plan_deed(at_s, Deed::Ask(Command::Submit { tasks: tasks.to_vec() }));
        at_s += rng.random_range(0.0..WEEK_S * 5.0 / 7.0 / 50.0);
    }
    simulation.plan_deed(at_s, Deed::Ask(Command::Close));
    for _ in 0..num_nodes.div_ceil(5) {
        let node = &nodes[rng.random_range(0..num_nodes)];
        let gone_s = rng.random_range(0.0..WEEK_S);
        simulation.plan_deed(gone_s, Deed::NodeGoes(node.name.clone()));
        simulation
            .plan_deed(gone_s + rng.random_range(600.0..7200.0), Deed::NodeComes(node.clone()));
    }
    simulation
}
