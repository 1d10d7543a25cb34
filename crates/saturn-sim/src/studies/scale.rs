//! A week of a large pool: tasks that come all the time, faults, nodes that go and come back; and six
//! hours of a full pool with everything that makes tasks wait.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;
use saturn_engine::{Command, NewTask, Policy, RunEnd, TrialBudget};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::solving::planner::Planner;
use crate::workloads::truth::MOST_HOST_BYTES;
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
/// For how long a full pool is looked at, seconds.
pub const FULL_S: f64 = 6.0 * 3600.0;
/// Tasks of a full pool come by so many at a time, and all within so many seconds, about.
const SWEEP: usize = 100;
const ARRIVAL_S: f64 = 6000.0;
/// Seconds that a solve takes for a full pool, if it may take so long.
const FULL_SOLVE_S: f64 = 60.0;
/// Devices of a gang that is wider than a node, and the nodes that a gang may take.
const WIDE: u32 = 2 * GPUS;
const MAX_NODES: u32 = 4;
/// In a full pool, the tasks of every so manyeth group are wide.
const WIDE_EVERY: usize = 10;

/// About `num_tasks` tasks on `num_devices` devices over a week. A stub answers solves with a plan
/// that costs next to nothing.
pub fn week(num_tasks: usize, num_devices: usize, seed: u64) -> Simulation {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    // One to twenty hours on one device, about.
    let mut drawn = large(&mut rng, num_tasks, num_devices.div_ceil(GPUS as usize), (1.0, 20.0));
    drawn.config.policy =
        Policy { checkpoint_every_s: Some(3600.0), stall_s: 1800.0, ..Policy::default() };
    let course = Course {
        sweep: num_tasks.div_ceil(100),
        come_s: WEEK_S * 5.0 / 7.0,
        until_s: WEEK_S,
        solve_s: 2.0,
    };
    play(drawn, &mut rng, seed, &course)
}

/// About `num_tasks` tasks that come at once to `num_devices` devices, far fewer. Each
/// node's host memory is enough for about half of the tasks that its devices could hold, so that
/// tasks wait for it, and the tasks of a tenth of the groups take two whole nodes. Nothing is
/// measured yet: models are inspected, and trials run where they pay. A stub answers solves.
pub fn full(num_tasks: usize, num_devices: usize, seed: u64) -> Simulation {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut drawn = large(&mut rng, num_tasks, num_devices.div_ceil(GPUS as usize), (1.0, 20.0));
    drawn.config.policy = Policy {
        checkpoint_every_s: Some(3600.0),
        stall_s: 1800.0,
        host_memory_bytes: Some(3 * MOST_HOST_BYTES),
        max_nodes: MAX_NODES,
        trial_budget: TrialBudget::Worthwhile,
        ..Policy::default()
    };
    let num_groups = drawn.truth.groups.len();
    for (index, one) in drawn.tasks.iter_mut().enumerate() {
        let is_wide = index % num_groups % WIDE_EVERY == WIDE_EVERY - 1;
        one.spec.gpu_range = Some(if is_wide { vec![WIDE] } else { (1..=GPUS).collect() });
        one.spec.measured.clear();
    }
    let course = Course { sweep: SWEEP, come_s: ARRIVAL_S, until_s: FULL_S, solve_s: FULL_SOLVE_S };
    play(drawn, &mut rng, seed, &course)
}

/// Runs for so long on the run's clock, or to the end of the run if that comes first. A run that was
/// not over by then breaks no rule, other than by [`Simulation::run`].
pub fn run_until(simulation: &mut Simulation, until_s: f64) -> Option<RunEnd> {
    while simulation.violations.is_empty() && simulation.state().ended.is_none() {
        if simulation.world.now_s() > until_s {
            return None;
        }
        simulation.step();
    }
    simulation.state().ended
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

/// How a large run goes.
struct Course {
    /// Tasks that come at a time.
    sweep: usize,
    /// Seconds within which all come, about.
    come_s: f64,
    /// Seconds within which nodes come and go.
    until_s: f64,
    /// Seconds that a solve takes, if it may take so long.
    solve_s: f64,
}

fn play(drawn: Workload, rng: &mut Xoshiro256PlusPlus, seed: u64, course: &Course) -> Simulation {
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
        takes_s: course.solve_s,
        by_proof: None,
        in_microseconds: false,
        is_greedy: true,
    };
    let mut simulation = Simulation::new(config, world, planner);
    simulation.keep_no_journal();
    let num_nodes = nodes.len();
    let num_sweeps = tasks.len().div_ceil(course.sweep) as f64;
    let mut at_s = 0.0;
    for tasks in tasks.chunks(course.sweep) {
        simulation.plan_deed(at_s, Deed::Ask(Command::Submit { tasks: tasks.to_vec() }));
        at_s += rng.random_range(0.0..2.0 * course.come_s / num_sweeps);
    }
    simulation.plan_deed(at_s, Deed::Ask(Command::Close));
    for _ in 0..num_nodes.div_ceil(5) {
        let node = &nodes[rng.random_range(0..num_nodes)];
        let gone_s = rng.random_range(0.0..course.until_s);
        simulation.plan_deed(gone_s, Deed::NodeGoes(node.name.clone()));
        simulation
            .plan_deed(gone_s + rng.random_range(600.0..7200.0), Deed::NodeComes(node.clone()));
    }
    simulation
}
