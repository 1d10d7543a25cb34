//! Parts of a scenario that are drawn from random numbers of their own, so that scenarios without
//! such a part stay as they were before there was one.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;
use saturn_engine::{DeviceKind, NewTask, Policy};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::driving::stopper::Stopper;
use crate::fuzz::seed::{CALM_S, is_on_one_machine, most, stream};
use crate::workloads::truth::{Evaluating, least_host_bytes};
use crate::workloads::workload::{Workload, task};
use crate::world::cluster::World;
use crate::world::faults::{Fault, Odds};

/// Switches a task where switches are eager: more than any other scenario allows.
const EAGER_SWITCHES: usize = 3;
/// More devices than any pool has.
const TOO_MANY: u32 = 1000;
/// Seconds for which letters wait at most, or parents are away.
const AWAY_S: f64 = 60.0;
/// Seconds within which a late node comes.
const LATE_S: f64 = 90.0;
/// Most models of a large run.
const LARGE_MODELS: usize = 12;
/// Seconds by which everything that slows a run down for a while has ended.
const QUIET_S: f64 = 0.9 * CALM_S;

/// The odds of the kinds of faults that are drawn apart.
pub(super) fn draw_odds(seed: u64, odds: &mut Odds) {
    let mut rng = stream(seed, 2);
    for fault in Fault::ALL.iter().filter(|fault| fault.is_drawn_apart()) {
        if rng.random_bool(0.3) {
            odds.insert(*fault, most(*fault) * rng.random::<f64>());
        }
    }
}

/// The name of a task all of whose launches fail; empty without one.
pub(super) fn draw_always_fails(seed: u64, tasks: &[NewTask]) -> String {
    let mut rng = stream(seed, 13);
    if tasks.is_empty() || !rng.random_bool(0.05) {
        return String::new();
    }
    tasks[rng.random_range(0..tasks.len())].spec.name.clone()
}

/// A run whose tasks wait for host memory rather than for devices.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShortOfMemory {
    /// Attempts take as long as their trials say.
    is_exact: bool,
}

/// Runs that are short of host memory: they have more tasks, and most of these are narrow.
pub(super) fn draw_short_of_memory(seed: u64, workload: &mut Workload) -> Option<ShortOfMemory> {
    let mut rng = stream(seed, 14);
    if workload.tasks.len() > 100 || !rng.random_bool(0.2) {
        return None;
    }
    for node in &mut workload.nodes {
        node.gpus = node.gpus.max(3);
    }
    let groups: Vec<String> = workload.truth.groups.keys().cloned().collect();
    for number in 0..rng.random_range(2..9) {
        let group = &groups[rng.random_range(0..groups.len())];
        let mut spec = task(number, group, rng.random_range(20..200));
        spec.name = format!("h{number}");
        workload.tasks.push(NewTask { spec, after: Vec::new() });
    }
    for one in &mut workload.tasks {
        if rng.random_bool(0.6) {
            one.spec.gpu_range = Some((1..=rng.random_range(1..3)).collect());
        }
    }
    let is_exact = rng.random();
    if is_exact {
        crowd(&mut rng, &groups, workload);
        if rng.random() {
            lengthen(&mut rng, &mut workload.tasks);
        }
    }
    Some(ShortOfMemory { is_exact })
}

/// Leaves a few nodes for many tasks of one device each, so that most of them wait for host memory.
fn crowd(rng: &mut Xoshiro256PlusPlus, groups: &[String], workload: &mut Workload) {
    workload.nodes.truncate(rng.random_range(1..=2));
    for number in 0..rng.random_range(4..16) {
        let group = &groups[rng.random_range(0..groups.len())];
        let mut spec = task(number, group, rng.random_range(20..200));
        spec.name = format!("m{number}");
        spec.gpu_range = Some(vec![1]);
        workload.tasks.push(NewTask { spec, after: Vec::new() });
    }
}

/// Makes some tasks many times as long as others: a wrong expectation of when host memory becomes
/// free then costs far more than what expectations may differ by.
fn lengthen(rng: &mut Xoshiro256PlusPlus, tasks: &mut [NewTask]) {
    for one in tasks {
        if rng.random_bool(0.4) {
            let times = rng.random_range(4..20);
            one.spec.steps = one.spec.steps.map(|steps| steps * times);
        }
    }
}

/// Tasks that ask for more devices than any node has, or nodes have together: they wait until no
/// more tasks may come, since wider nodes may come until then, and are given up.
pub(super) fn draw_out_of_range(seed: u64, workload: &mut Workload) {
    let mut rng = stream(seed, 22);
    if is_on_one_machine(seed) || !rng.random_bool(0.05) {
        return;
    }
    for one in &mut workload.tasks {
        if rng.random_bool(0.2) {
            one.spec.gpu_range = Some(vec![TOO_MANY]);
        }
    }
}

/// Soft deadlines, some with a most by which they may be missed; some take the place of hard ones.
pub(super) fn draw_soft_deadlines(seed: u64, workload: &mut Workload) {
    let mut rng = stream(seed, 21);
    if !rng.random_bool(0.2) {
        return;
    }
    for one in &mut workload.tasks {
        let wishes = &mut one.spec.wishes;
        if rng.random_bool(0.4) {
            wishes.deadline_s.get_or_insert(rng.random_range(10.0..CALM_S));
            wishes.late_price = Some(10.0_f64.powf(rng.random_range(-3.0..3.0)));
            wishes.most_late_s = rng.random_bool(0.3).then(|| rng.random_range(0.0..CALM_S));
        }
    }
}

/// Gives the nodes of a run that is short of host memory enough for the largest model, and up to
/// twice as much.
pub(super) fn limit_memory(seed: u64, short: Option<ShortOfMemory>, workload: &mut Workload) {
    if short.is_none() {
        return;
    }
    let mut rng = stream(seed, 15);
    let kind = if rng.random() { DeviceKind::Cpu } else { DeviceKind::Cuda };
    workload.config.device_kind = kind;
    let policy = &mut workload.config.policy;
    policy.max_nodes = rng.random_range(1..=3);
    let least = least_host_bytes(kind);
    if rng.random() {
        policy.host_memory_bytes = Some(rng.random_range(least..=2 * least));
        policy.host_memory_by_node.clear();
        return;
    }
    policy.host_memory_bytes = None;
    let own = workload.nodes.iter().map(|node| node.name.clone());
    policy.host_memory_by_node =
        own.map(|name| (name, rng.random_range(least..=2 * least).into())).collect();
}

/// Leaves out what makes attempts take another time, in runs in which nothing does.
pub(super) fn keep_exact(short: Option<ShortOfMemory>, odds: &mut Odds) {
    if short.is_some_and(|short| short.is_exact) {
        odds.retain(|fault, _| !CHANGE_TIMES.contains(fault));
    }
}

/// Tells a world that its nodes are short of memory.
pub(super) fn note_short(short: Option<ShortOfMemory>, world: &mut World) {
    if let Some(short) = short {
        world.is_exact = short.is_exact;
        world.hit(Fault::ShortOfMemory);
    }
}

/// Faults that make attempts take another time than their trials say, or that lose or repeat what they
/// say: time for which training stood still is then counted twice.
const CHANGE_TIMES: [Fault; 9] = [
    Fault::WrongEstimate,
    Fault::NoisySteps,
    Fault::Straggler,
    Fault::SlowSave,
    Fault::LateStop,
    Fault::Hang,
    Fault::LateWords,
    Fault::LostProgress,
    Fault::DoubledWords,
];

/// Tasks whose functions need what the tasks make that they come after. In scenarios that have
/// such tasks, more tasks come after others.
pub(super) fn draw_early(seed: u64, workload: &mut Workload) -> BTreeSet<String> {
    let mut rng = stream(seed, 3);
    let mut early = BTreeSet::new();
    if !rng.random_bool(0.25) {
        return early;
    }
    let names: Vec<String> = workload.tasks.iter().map(|one| one.spec.name.clone()).collect();
    for (index, one) in workload.tasks.iter_mut().enumerate().skip(1) {
        if one.after.is_empty() && rng.random() {
            one.after.push(names[rng.random_range(0..index)].clone());
        }
        if !one.after.is_empty() && rng.random_bool(0.7) {
            early.insert(one.spec.name.clone());
        }
    }
    early
}

/// Tasks that evaluate their models now and then.
pub(super) fn draw_evaluations(seed: u64, workload: &mut Workload) {
    let mut rng = stream(seed, 6);
    if !rng.random_bool(0.15) {
        return;
    }
    for group in workload.truth.groups.values_mut() {
        let every = rng.random_bool(0.7).then(|| rng.random_range(3..60));
        group.evaluating = Some(Evaluating {
            every: every.and_then(NonZeroU64::new),
            takes_s: rng.random_range(0.1..8.0),
        });
    }
}

/// Runs whose tasks are switched between strategies as soon as that gains anything.
pub(super) fn draw_switches(seed: u64, policy: &mut Policy) {
    if stream(seed, 5).random_bool(0.15) {
        policy.max_switches = EAGER_SWITCHES;
        (policy.min_switch_gain, policy.min_gain, policy.min_gain_s) = (0.0, 0.0, 0.0);
    }
}

/// Gangs that slow each other down on a node.
pub(super) fn draw_neighbours(seed: u64, world: &mut World) {
    let mut rng = stream(seed, 7);
    if rng.random_bool(0.1) && !world.is_exact {
        world.neighbours = rng.random_range(1.05..1.8);
        world.hit(Fault::Neighbours);
    }
}

/// What drivers, nodes and stoppers do.
pub(super) fn draw_deeds(seed: u64, simulation: &mut Simulation, nodes: &[Node]) {
    let policy = &simulation.state().config.policy;
    if policy.max_switches == EAGER_SWITCHES {
        simulation.world.hit(Fault::EagerSwitches);
    }
    if simulation.world.truth.groups.values().any(|group| group.evaluating.is_some()) {
        simulation.world.hit(Fault::Evaluating);
    }
    draw_stopper(seed, simulation);
    draw_standstills(seed, simulation);
    if !simulation.world.is_exact {
        draw_slow_nodes(seed, simulation, nodes);
    }
    draw_letters(seed, simulation, nodes);
    draw_outside(seed, simulation, nodes);
    if !is_on_one_machine(seed) {
        draw_cuts(seed, simulation, nodes);
    }
}

/// A search: its stopper halves the tasks at two rungs.
fn draw_stopper(seed: u64, simulation: &mut Simulation) {
    let mut rng = stream(seed, 4);
    if rng.random_bool(if is_on_one_machine(seed) { 0.5 } else { 0.1 }) {
        let first = rng.random_range(1..40);
        let rungs = vec![first, 3 * first];
        simulation.steer(Stopper::new(rungs, rng.random_range(1.0..10.0)));
    }
}

/// Drivers that hear nothing for a while.
fn draw_standstills(seed: u64, simulation: &mut Simulation) {
    let mut rng = stream(seed, 8);
    if rng.random_bool(0.8) {
        return;
    }
    for _ in 0..rng.random_range(1..3) {
        let for_s = rng.random_range(5.0..250.0);
        let at_s = rng.random_range(0.0..CALM_S - for_s);
        simulation.plan_deed(at_s, Deed::StandsStill(for_s));
    }
}

/// Nodes that are slow for a while.
fn draw_slow_nodes(seed: u64, simulation: &mut Simulation, nodes: &[Node]) {
    let mut rng = stream(seed, 9);
    if rng.random_bool(0.9) {
        return;
    }
    for node in nodes {
        let at_s = rng.random_range(0.0..QUIET_S);
        let factor = rng.random_range(1.2..5.0);
        let back_s = rng.random_range(at_s..QUIET_S);
        simulation.plan_deed(at_s, Deed::NodePace(node.name.clone(), factor));
        simulation.plan_deed(back_s, Deed::NodePace(node.name.clone(), 1.0));
        simulation.world.hit(Fault::SlowNode);
    }
}

/// Programs other than Saturn come to devices of the first node, and leave them.
fn draw_outside(seed: u64, simulation: &mut Simulation, nodes: &[Node]) {
    let mut rng = stream(seed, 20);
    let Some(node) = nodes.first().filter(|_| rng.random_bool(0.15)) else { return };
    let uses = |devices| Deed::UsedOutside(node.name.clone(), devices);
    for _ in 0..rng.random_range(1..6) {
        let devices = (0..node.gpus).filter(|_| rng.random_bool(0.4)).collect();
        simulation.plan_deed(rng.random_range(0.0..QUIET_S), uses(devices));
    }
    simulation.plan_deed(QUIET_S, uses(BTreeSet::new()));
}

/// Nodes whose letters wait, and nodes that start no rank, for less than counts as silence.
fn draw_letters(seed: u64, simulation: &mut Simulation, nodes: &[Node]) {
    let mut rng = stream(seed, 11);
    for node in nodes {
        let name = || node.name.clone();
        if rng.random_bool(0.05) {
            let for_s = rng.random_range(1.0..AWAY_S);
            let at_s = rng.random_range(0.0..QUIET_S - AWAY_S);
            simulation.plan_deed(at_s, Deed::HoldsLetters(name(), for_s));
        }
        if rng.random_bool(0.05) {
            let for_s = rng.random_range(1.0..AWAY_S);
            let at_s = rng.random_range(0.0..QUIET_S - AWAY_S);
            simulation.plan_deed(at_s, Deed::LosesParents(name(), for_s));
        }
    }
}

/// When the nodes behind the first come that are not there at the beginning; nothing if all are.
pub(super) fn draw_late(seed: u64, num_nodes: usize) -> Vec<f64> {
    let mut rng = stream(seed, 12);
    if is_on_one_machine(seed) || num_nodes < 2 || !rng.random_bool(0.15) {
        return Vec::new();
    }
    let num_late = rng.random_range(1..num_nodes);
    (0..num_late).map(|_| rng.random_range(1.0..LATE_S)).collect()
}

/// The last of these nodes come so late.
pub(super) fn plan_late(simulation: &mut Simulation, nodes: &[Node], late: Vec<f64>) {
    for (node, at_s) in nodes.iter().rev().zip(late) {
        simulation.world.hit(Fault::LateNode);
        simulation.plan_deed(at_s, Deed::NodeComes(node.clone()));
    }
}

/// Makes a run of many tasks a run of few models.
pub(super) fn share_models(workload: &mut Workload) {
    let num_groups = workload.truth.groups.len().min(LARGE_MODELS);
    for (index, one) in workload.tasks.iter_mut().enumerate() {
        one.spec.profile_key = format!("g{}", index % num_groups);
    }
}

/// Nodes that are cut off: the run hears of that after a while, and the node comes back.
fn draw_cuts(seed: u64, simulation: &mut Simulation, nodes: &[Node]) {
    let mut rng = stream(seed, 10);
    if rng.random_bool(0.9) {
        return;
    }
    for node in nodes {
        let at_s = rng.random_range(0.0..QUIET_S - 100.0);
        let known_s = at_s + rng.random_range(1.0..100.0);
        let name = node.name.clone();
        let found = BTreeMap::new();
        simulation.plan_deed(at_s, Deed::NodeFallsSilent { name: name.clone(), found });
        simulation.plan_deed(known_s, Deed::NodeGoes(name));
        simulation.plan_deed(known_s + rng.random_range(0.0..30.0), Deed::NodeComes(node.clone()));
        simulation.world.hit(Fault::CutOff);
    }
}
