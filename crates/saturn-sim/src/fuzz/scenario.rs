//! A whole scenario drawn from a seed: a workload, its faults, and the deeds of people and nodes.
//!
//! The trouble ends at a set time: faults cease, nodes come back, devices are well. From then on
//! every task must come to its end.

use std::collections::BTreeMap;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;
use saturn_engine::{
    AttemptId, Command, DeviceKind, Judgement, MachineMemory, Metrics, NamedJudgement, Policy,
    Ruling, TrialBudget,
};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::fuzz::apart;
use crate::fuzz::kinds;
use crate::fuzz::rare;
use crate::fuzz::seed::{CALM_S, is_large, is_on_one_machine, most, stream};
use crate::solving::planner::Planner;
use crate::watch::invariants::Watch;
use crate::workloads::truth::least_host_bytes;
use crate::workloads::workload::{Size, TYPES, Workload};
use crate::world::cluster::{Manners, World};
use crate::world::faults::{Fault, Odds};

/// By when every task has ended, seconds: the longest workload, one task after another, with room.
pub const MAX_S: f64 = 100_000.0;

/// The scenario of a seed.
pub fn scenario(seed: u64) -> Simulation {
    if kinds::is_undisturbed(seed) {
        return kinds::undisturbed(seed);
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut workload = draw_workload(&mut rng, seed);
    let short = apart::draw_short_of_memory(seed, &mut workload);
    apart::draw_evaluations(seed, &mut workload);
    rare::draw_endless(seed, &mut workload);
    rare::draw_owners(seed, &mut workload.tasks);
    if rng.random_bool(0.3) {
        workload.measure();
    }
    draw_wishes(&mut rng, &mut workload);
    apart::draw_soft_deadlines(seed, &mut workload);
    apart::draw_out_of_range(seed, &mut workload);
    let early = apart::draw_early(seed, &mut workload);
    for (number, one) in (seed % 6..).zip(&mut workload.tasks) {
        one.spec.can_resume = number % 6 != 0;
        if number % 6 == 3 {
            one.spec.start_step = one.spec.steps.unwrap_or(50) / 4;
        }
    }
    if is_on_one_machine(seed) {
        move_to_one_machine(seed, &mut workload);
    }
    let kind = if seed % 15 == 10 { DeviceKind::Cpu } else { DeviceKind::Cuda };
    workload.config.device_kind = kind;
    workload.config.policy = draw_policy(&mut rng, seed, kind, &workload.nodes);
    apart::draw_switches(seed, &mut workload.config.policy);
    rare::draw_sharing(seed, &mut workload.config.policy);
    apart::limit_memory(seed, short, &mut workload);
    kinds::draw_search(seed, &mut workload.config);
    let manners = Manners {
        look_up_every: rng.random_range(1..20),
        tell_every_s: 0.0,
        teardown_s: if rng.random() { 0.0 } else { rng.random_range(0.0..1.0) },
        trial_s: rng.random_range(0.5..4.0),
        trial_steps: rng.random_range(0..5),
        trials_train: rng.random(),
        trial_noise: 0.0,
    };
    let Workload { nodes, config, truth, tasks } = workload;
    let mut odds = draw_odds(&mut rng);
    apart::draw_odds(seed, &mut odds);
    rare::draw_odds(seed, &mut odds);
    apart::keep_exact(short, &mut odds);
    let every_s = config.policy.checkpoint_every_s.unwrap_or(f64::MAX);
    let mut world = World::new(truth, odds, manners, every_s, seed);
    world.early.names = early;
    world.always_fails.0 = apart::draw_always_fails(seed, &tasks);
    apart::note_short(short, &mut world);
    apart::draw_neighbours(seed, &mut world);
    rare::draw_own_ends(seed, &tasks, &mut world);
    rare::note_world(seed, &mut world);
    let late = apart::draw_late(seed, nodes.len());
    for node in &nodes[..nodes.len() - late.len()] {
        world.add_node(node.clone());
    }
    let takes_s = if rng.random() { 0.0 } else { rng.random_range(0.0..3.0) };
    let names: Vec<String> = tasks.iter().map(|one| one.spec.name.clone()).collect();
    let mut simulation = Simulation::new(
        config,
        world,
        Planner {
            max_moves: 200,
            first_moves: 200,
            takes_s,
            by_proof: None,
            in_microseconds: false,
            is_greedy: false,
        },
    );
    simulation.watch(Watch::after(simulation.state(), &simulation.journal));
    if is_large(seed) {
        simulation.world.hit(Fault::Large);
    }
    kinds::note_search(&mut simulation);
    apart::plan_late(&mut simulation, &nodes, late);
    draw_arrivals(&mut rng, &mut simulation, tasks);
    draw_commands(&mut rng, &mut simulation, &names);
    if is_on_one_machine(seed) {
        draw_moves(seed, &mut simulation);
    } else {
        draw_nodes(&mut rng, &mut simulation, &nodes);
    }
    draw_judgements(&mut rng, &mut simulation, &names);
    apart::draw_deeds(seed, &mut simulation, &nodes);
    rare::draw_deeds(seed, &mut simulation, &nodes, &names);
    for at in (1_u32..).take(if seed.is_multiple_of(3) { 0 } else { 7 }) {
        simulation.plan_deed(f64::from(at) * 50.0, Deed::SpaceFreed);
    }
    simulation.plan_deed(CALM_S, Deed::Calm(nodes));
    simulation
}

/// How the run is planned and watched over.
fn draw_policy(
    rng: &mut Xoshiro256PlusPlus,
    seed: u64,
    kind: DeviceKind,
    nodes: &[Node],
) -> Policy {
    Policy {
        interval_s: rng.random_range(20.0..150.0),
        checkpoint_every_s: Some(rng.random_range(5.0..40.0)),
        stall_s: 120.0,
        kill_grace_s: 10.0,
        max_switches: rng.random_range(0..3),
        min_gain: rng.random_range(0.0..0.1),
        trial_budget: *[TrialBudget::Full, TrialBudget::Worthwhile, TrialBudget::Seconds(40.0)]
            .choose(rng)
            .unwrap_or(&TrialBudget::Full),
        seed,
        host_memory_bytes: seed.is_multiple_of(10).then_some(least_host_bytes(kind) * 5 / 4),
        host_memory_by_node: if seed % 10 == 5 {
            each_nodes_own(seed, nodes, least_host_bytes(kind))
        } else {
            BTreeMap::new()
        },
        max_nodes: [1, 2, 1, 3][usize::try_from(seed % 4).unwrap_or(0)],
        pool_may_grow: !is_on_one_machine(seed),
        ..Policy::default()
    }
}

fn draw_workload(rng: &mut Xoshiro256PlusPlus, seed: u64) -> Workload {
    let small = Size { nodes: 3, gpus: 4, tasks: 7, steps: (20, 250), techniques: 3 };
    if !is_large(seed) {
        return Workload::draw(rng, &small);
    }
    let mut workload = Workload::draw(rng, &Size { nodes: 16, gpus: 8, tasks: 300, ..small });
    apart::share_models(&mut workload);
    workload
}

/// Host memory of each node, by name. In half of the runs every second node has three times as much as
/// the node before, which has room for the largest model and no more. In the others no node has room
/// for the largest model, or only every second node has.
fn each_nodes_own(seed: u64, nodes: &[Node], least: u64) -> BTreeMap<String, MachineMemory> {
    let quarters = match seed % 40 {
        15 => [3, 2],
        35 => [3, 12],
        _ => [4, 12],
    };
    let each = nodes.iter().zip(quarters.into_iter().cycle());
    each.map(|(node, quarters)| (node.name.clone(), (least / 4 * quarters).into())).collect()
}

/// Keeps the first machine only. Half of the tasks then need at least two of its devices.
fn move_to_one_machine(seed: u64, workload: &mut Workload) {
    let mut rng = stream(seed, 0);
    workload.nodes.truncate(1);
    let Some(node) = workload.nodes.first_mut() else { return };
    node.gpus = node.gpus.max(2);
    for one in &mut workload.tasks {
        if rng.random_bool(0.5) {
            one.spec.gpu_range = Some((2..=node.gpus).collect());
        }
    }
}

/// Drivers die, and others go on where there are other numbers of devices.
fn draw_moves(seed: u64, simulation: &mut Simulation) {
    let mut rng = stream(seed, 1);
    for _ in 0..rng.random_range(1..4) {
        let at_s = rng.random_range(0.0..CALM_S);
        simulation.plan_deed(at_s, Deed::Moves(rng.random_range(1..=4)));
    }
}

fn draw_odds(rng: &mut Xoshiro256PlusPlus) -> Odds {
    let mut odds = Odds::new();
    for fault in Fault::ALL.iter().filter(|fault| !fault.is_drawn_apart()) {
        if rng.random_bool(0.3) {
            odds.insert(*fault, most(*fault) * rng.random::<f64>());
        }
    }
    odds
}

fn draw_wishes(rng: &mut Xoshiro256PlusPlus, workload: &mut Workload) {
    let names: Vec<String> = workload.tasks.iter().map(|one| one.spec.name.clone()).collect();
    let are_wishful = rng.random_bool(0.4);
    for (index, one) in workload.tasks.iter_mut().enumerate() {
        if rng.random_bool(0.15) {
            one.spec.gpu_range = Some((1..=rng.random_range(1..4)).collect());
        }
        if rng.random_bool(0.1) {
            (one.spec.steps, one.spec.epochs) = (None, Some(rng.random_range(1..4)));
        }
        if are_wishful {
            if rng.random_bool(0.3) {
                one.spec.wishes.release_s = rng.random_range(0.0..CALM_S);
            }
            if rng.random_bool(0.3) {
                one.spec.wishes.deadline_s = Some(rng.random_range(10.0..CALM_S));
            }
            if rng.random_bool(0.3) {
                one.spec.wishes.priority = rng.random_range(-2..=2);
            }
            if index > 0 && rng.random_bool(0.3) {
                one.after.push(names[rng.random_range(0..index)].clone());
            }
        }
    }
}

fn draw_arrivals(
    rng: &mut Xoshiro256PlusPlus,
    simulation: &mut Simulation,
    tasks: Vec<saturn_engine::NewTask>,
) {
    let mut at_s = 0.0;
    let arrive = rng.random_bool(0.5);
    let mut left = tasks;
    while !left.is_empty() {
        let num = if arrive { rng.random_range(1..=left.len()) } else { left.len() };
        let rest = left.split_off(num);
        simulation.plan_deed(at_s, Deed::Ask(Command::Submit { tasks: left }));
        left = rest;
        at_s += rng.random_range(0.0..100.0);
    }
    let close_s = if rng.random() { at_s } else { CALM_S };
    simulation.plan_deed(close_s, Deed::Ask(Command::Close));
}

fn draw_commands(rng: &mut Xoshiro256PlusPlus, simulation: &mut Simulation, names: &[String]) {
    for _ in 0..rng.random_range(0..8) {
        let at_s = rng.random_range(0.0..CALM_S);
        let Some(task) = names.choose(rng).cloned() else { return };
        let deed = match rng.random_range(0..10) {
            0 => Deed::Ask(Command::Cancel { task, by: None }),
            1 | 2 => {
                let back_s = at_s + rng.random_range(0.0..100.0);
                simulation.plan_deed(back_s, Deed::Ask(Command::Unpause { task: task.clone() }));
                Deed::Ask(Command::Pause { task })
            }
            3 => Deed::Ask(Command::Wish {
                task,
                priority: Some(rng.random_range(-3..=3)),
                deadline_s: None,
                no_deadline: rng.random_bool(0.2),
                release_s: None,
                after: None,
            }),
            4 => Deed::Ask(Command::Wish {
                task,
                priority: None,
                deadline_s: Some(rng.random_range(0.0..CALM_S)),
                no_deadline: false,
                release_s: Some(rng.random_range(0.0..CALM_S)),
                after: Some(names.choose(rng).cloned().into_iter().collect()),
            }),
            5 => Deed::Ask(Command::Cancel { task: "nobody".to_owned(), by: None }),
            6 => Deed::Ask(Command::TakeBack { node: "n0".to_owned(), devices: Vec::new() }),
            7 => Deed::OldWord(AttemptId(rng.random_range(1..20))),
            _ => Deed::Interrupt(rng.random_range(1..=3)),
        };
        simulation.plan_deed(at_s, deed);
    }
}

/// A stopper that holds tasks. While there is trouble, it lets some of them go on and ends the
/// others.
fn draw_judgements(rng: &mut Xoshiro256PlusPlus, simulation: &mut Simulation, names: &[String]) {
    if rng.random_bool(0.6) {
        return;
    }
    let judged = |task: &String, step: u64, ruling: Ruling| {
        let judgement = Judgement {
            step,
            values: Metrics::from([("loss".to_owned(), Some(0.5))]),
            ruling: Some(ruling),
            reason: "it does badly".to_owned(),
        };
        NamedJudgement { task: task.clone(), judgement }
    };
    for task in names {
        let at_s = rng.random_range(0.0..CALM_S / 2.0);
        let then_s = at_s + rng.random_range(0.0..CALM_S / 2.0);
        let then = if rng.random() { Ruling::GoOn } else { Ruling::Stop };
        for (at_s, step, ruling) in [(at_s, 1, Ruling::Hold), (then_s, 2, then)] {
            let judgements = vec![judged(task, step, ruling)];
            simulation.plan_deed(at_s, Deed::Ask(Command::Judge { judgements }));
        }
    }
}

fn draw_nodes(rng: &mut Xoshiro256PlusPlus, simulation: &mut Simulation, nodes: &[Node]) {
    for node in nodes {
        if rng.random_bool(0.3) {
            let at_s = rng.random_range(0.0..CALM_S * 0.8);
            simulation.plan_deed(at_s, Deed::NodeGoes(node.name.clone()));
            let mut back = node.clone();
            if rng.random_bool(0.3) {
                // With more devices than at the end, a task might keep a strategy that only more
                // devices can hold.
                back.gpus = rng.random_range(1..=node.gpus);
            }
            let back_s = at_s + rng.random_range(0.0..60.0);
            simulation.plan_deed(back_s, Deed::NodeComes(back));
        }
        if rng.random_bool(0.25) {
            let device = rng.random_range(0..node.gpus);
            let at_s = rng.random_range(0.0..CALM_S * 0.8);
            simulation.plan_deed(at_s, Deed::Device(node.name.clone(), device, true));
        }
    }
    if rng.random_bool(0.15) {
        let gpu_type = TYPES[rng.random_range(0..TYPES.len())];
        let new = Node::new("late", rng.random_range(1..=4), gpu_type);
        simulation.plan_deed(rng.random_range(0.0..CALM_S), Deed::NodeComes(new));
    }
}
