//! What seldom happens in a run, drawn from random numbers of its own: processes that outlive their
//! driver, devices that are shared with other programs, rulings while a run stops, tasks that end by
//! themselves, people whose agents die, and data of which nobody knows the length.

use std::collections::BTreeSet;

use rand::RngExt;
use saturn_core::Node;
use saturn_engine::{
    Command, Judgement, Metrics, NamedJudgement, NewTask, Owner, Policy, Ruling, Sharing,
};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::fuzz::seed::{CALM_S, is_large, is_on_one_machine, stream};
use crate::workloads::workload::{GUEST_LOGIN, Workload};
use crate::world::cluster::World;
use crate::world::faults::{Fault, Odds};

/// The share of seeds with each of these.
const SHARE: f64 = 0.05;
/// How often a stopper tells what it has seen.
const NUM_TOLD: u32 = 60;
/// The login name of the person who drives the run.
const HOST_LOGIN: &str = "tomas";
/// The person whose agent dies.
const GUEST: u32 = 1001;
/// Seconds by which other programs have left all devices.
const QUIET_S: f64 = 0.9 * CALM_S;

fn is_drawn(seed: u64, part: u64) -> bool {
    !is_large(seed) && stream(seed, part).random_bool(SHARE)
}

/// Whether killed processes of this seed's run outlive their drivers.
fn is_stubborn(seed: u64) -> bool {
    !is_on_one_machine(seed) && is_drawn(seed, 40)
}

/// Gangs that fail while their peers can't be killed.
pub(super) fn draw_odds(seed: u64, odds: &mut Odds) {
    if is_stubborn(seed) {
        odds.extend([(Fault::RankCrash, 0.3), (Fault::Unkillable, 0.4), (Fault::Immortal, 0.3)]);
    }
}

/// Loaders of which nobody knows how many batches they have. Some tasks are told by the number of
/// passes over them.
pub(super) fn draw_endless(seed: u64, workload: &mut Workload) {
    if !is_drawn(seed, 41) {
        return;
    }
    let mut rng = stream(seed, 42);
    for group in workload.truth.groups.values_mut() {
        group.batches_per_epoch = 0;
    }
    for NewTask { spec, .. } in &mut workload.tasks {
        if rng.random_bool(0.3) {
            (spec.steps, spec.epochs) = (None, Some(rng.random_range(1..4)));
        }
    }
}

/// Mostly the two people share the pool by rules.
pub(super) fn draw_sharing(seed: u64, policy: &mut Policy) {
    if !has_people(seed) {
        return;
    }
    let mut rng = stream(seed, 55);
    let shares = [(GUEST_LOGIN.to_owned(), rng.random_range(0.3..3.0))];
    let mut sharing = Sharing {
        shares: shares.into(),
        host: HOST_LOGIN.to_owned(),
        half_life_s: rng.random_range(50.0..5000.0),
        rest_s: rng.random_range(0.0..300.0),
        ..Sharing::default()
    };
    let are_shared = rng.random_bool(0.8);
    for login in [GUEST_LOGIN, HOST_LOGIN] {
        if rng.random_bool(0.4) {
            sharing.quotas.insert(login.to_owned(), rng.random_range(1..=6));
        }
    }
    policy.sharing = are_shared.then_some(sharing);
}

/// Some tasks are another person's.
pub(super) fn draw_owners(seed: u64, tasks: &mut [NewTask]) {
    if !has_people(seed) {
        return;
    }
    let mut rng = stream(seed, 53);
    for NewTask { spec, .. } in tasks {
        spec.owner =
            rng.random_bool(0.5).then(|| Owner { uid: GUEST, name: GUEST_LOGIN.to_owned() });
    }
}

fn has_people(seed: u64) -> bool {
    is_drawn(seed, 52)
}

/// The agent of a person dies again and again, and comes again after a while.
fn draw_agents(seed: u64, simulation: &mut Simulation) {
    if !has_people(seed) {
        return;
    }
    let mut rng = stream(seed, 54);
    let mut at_s = rng.random_range(0.0..100.0);
    while at_s < QUIET_S {
        simulation.plan_deed(at_s, Deed::AgentDies(GUEST));
        let back_s = at_s + rng.random_range(0.5..60.0);
        simulation.plan_deed(back_s.min(QUIET_S), Deed::AgentComes(GUEST));
        at_s = back_s + rng.random_range(1.0..120.0);
    }
}

/// Tasks whose own code ends them before their last step.
pub(super) fn draw_own_ends(seed: u64, tasks: &[NewTask], world: &mut World) {
    if world.is_exact || !is_drawn(seed, 43) {
        return;
    }
    let mut rng = stream(seed, 44);
    for NewTask { spec, .. } in tasks {
        let Some(steps) = spec.steps.filter(|_| rng.random_bool(0.4)) else { continue };
        world.own_ends.insert(spec.name.clone(), rng.random_range(steps / 2..=steps));
    }
}

/// Counts what the world of a run is like.
pub(super) fn note_world(seed: u64, world: &mut World) {
    world.has_undead = is_stubborn(seed);
    if !world.own_ends.is_empty() {
        world.hit(Fault::EndsItself);
    }
    if world.truth.groups.values().any(|group| group.batches_per_epoch == 0) {
        world.hit(Fault::Endless);
    }
}

/// What drivers, nodes, persons and other programs do.
pub(super) fn draw_deeds(seed: u64, simulation: &mut Simulation, nodes: &[Node], names: &[String]) {
    let Some(node) = nodes.first() else { return };
    draw_stubborn(seed, simulation, node);
    draw_shared(seed, simulation, node);
    draw_let_go(seed, simulation, names);
    draw_values(seed, simulation, names);
    draw_agents(seed, simulation);
}

/// Drivers die beside processes that can't be killed. A node of such processes is started again, and
/// then others use its devices for a while.
fn draw_stubborn(seed: u64, simulation: &mut Simulation, node: &Node) {
    if !is_stubborn(seed) {
        return;
    }
    let mut rng = stream(seed, 45);
    for _ in 0..rng.random_range(2..6) {
        simulation.plan_deed(rng.random_range(10.0..CALM_S), Deed::DriverDies);
    }
    let gone_s = rng.random_range(50.0..200.0);
    simulation.plan_deed(gone_s, Deed::NodeGoes(node.name.clone()));
    simulation.plan_deed(gone_s + 5.0, Deed::NodeComes(node.clone()));
    let used_s = gone_s + rng.random_range(6.0..40.0);
    for (at_s, devices) in [(used_s, all_of(node)), (used_s + 30.0, BTreeSet::new())] {
        simulation.plan_deed(at_s, Deed::UsedOutside(node.name.clone(), devices));
    }
}

/// Other programs use a node, a person shares its devices with them, and again and again memory runs
/// out there.
fn draw_shared(seed: u64, simulation: &mut Simulation, node: &Node) {
    if !is_drawn(seed, 46) {
        return;
    }
    let mut rng = stream(seed, 47);
    let from_s = rng.random_range(0.0..60.0);
    for number in 0..12 {
        let at_s = from_s + 15.0 * f64::from(number);
        let uses = Deed::UsedOutside(node.name.clone(), all_of(node));
        simulation.plan_deed(at_s, uses);
        if number % 4 == 0 {
            let (node, devices) = (node.name.clone(), Vec::new());
            simulation.plan_deed(at_s + 1.0, Deed::Ask(Command::TakeBack { node, devices }));
        }
    }
    simulation.plan_deed(QUIET_S, Deed::UsedOutside(node.name.clone(), BTreeSet::new()));
    simulation.world.hit(Fault::Shared);
}

fn all_of(node: &Node) -> BTreeSet<u32> {
    (0..node.gpus).collect()
}

/// A stopper holds tasks, and lets them go on while the run is being stopped.
fn draw_let_go(seed: u64, simulation: &mut Simulation, names: &[String]) {
    if !is_drawn(seed, 48) {
        return;
    }
    let mut rng = stream(seed, 49);
    let stops_s = rng.random_range(60.0..250.0);
    for task in names.iter().filter(|_| rng.random_bool(0.6)).collect::<Vec<_>>() {
        let held_s = rng.random_range(10.0..stops_s - 20.0);
        judge(simulation, held_s, task, (1, Some(Ruling::Hold)));
        let back_s = stops_s + rng.random_range(0.05..0.5);
        judge(simulation, back_s, task, (2, Some(Ruling::GoOn)));
    }
    simulation.plan_deed(stops_s, Deed::Interrupt(1));
}

/// A stopper that holds tasks early and soon lets them go on. It tells again and again what it has
/// seen of all tasks, and rules on none of them.
fn draw_values(seed: u64, simulation: &mut Simulation, names: &[String]) {
    if !is_drawn(seed, 50) {
        return;
    }
    let mut rng = stream(seed, 51);
    for task in names {
        let held_s = rng.random_range(0.0..60.0);
        judge(simulation, held_s, task, (1, Some(Ruling::Hold)));
        let back_s = held_s + rng.random_range(0.1..60.0);
        judge(simulation, back_s, task, (2, Some(Ruling::GoOn)));
    }
    let every_s = rng.random_range(1.0..3.0);
    for number in 0..NUM_TOLD {
        let at_s = every_s * f64::from(number);
        for task in names.iter().filter(|_| rng.random_bool(0.5)).collect::<Vec<_>>() {
            judge(simulation, at_s, task, (u64::from(number), None));
        }
    }
}

/// A stopper says what it has seen of a task by a step, and perhaps rules on the task.
fn judge(
    simulation: &mut Simulation,
    at_s: f64,
    task: &str,
    (step, ruling): (u64, Option<Ruling>),
) {
    let judgement =
        Judgement { step, values: Metrics::new(), ruling, reason: "it does badly".to_owned() };
    let judgements = vec![NamedJudgement { task: task.to_owned(), judgement }];
    simulation.plan_deed(at_s, Deed::Ask(Command::Judge { judgements }));
}
