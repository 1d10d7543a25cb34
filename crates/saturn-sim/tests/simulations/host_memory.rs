//! Host memory is planned: where it is short, plans still promise what comes.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;
use saturn_engine::{Command, NewTask, Policy, Purpose, Record, RunEnd};
use saturn_sim::{
    Calm, Deed, GroupTruth, Manners, Odds, Planner, Simulation, Size, TechniqueTruth, Workload,
    World, task,
};

/// The host memory that the model of the largest group takes, bytes.
const LARGEST: u64 = 1 << 24;

/// A run whose trials are exact, on nodes with so much host memory: all records.
fn run(seed: u64, host_memory_bytes: Option<u64>) -> Vec<(Record, f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let size = Size { nodes: 2, gpus: 4, tasks: 14, steps: (100, 2000), techniques: 2 };
    let mut workload = Workload::draw(&mut rng, &size);
    workload.config.policy = Policy {
        // One plan is made of what trials have found, and followed to the end.
        interval_s: 1e9,
        checkpoint_every_s: Some(1e9),
        stall_s: 1e9,
        host_memory_bytes,
        ..Policy::default()
    };
    let manners = Manners::exact(rng.random_range(1..10));
    let planner = Planner::of_moves(4000);
    let mut simulation = Calm { planner, manners, save_every_s: 1e9, seed }.simulation(workload);
    assert_eq!(simulation.run(1e7), Some(RunEnd::Complete), "{:?}", simulation.violations);
    simulation.journal
}

/// Seconds that the last plan promises from then on, and that came. `None` if something is measured
/// after it: plans don't know trials that are still to be run.
fn promised_and_came(journal: &[(Record, f64)]) -> Option<(f64, f64)> {
    let measures = |record: &Record| matches!(record, Record::Launched { purpose, .. } if *purpose != Purpose::Train);
    let is_plan = |record: &Record| matches!(record, Record::Planned { .. });
    let last = journal.iter().rposition(|(record, _)| is_plan(record))?;
    if journal[last..].iter().any(|(record, _)| measures(record)) {
        return None;
    }
    let ended = journal.iter().filter(|(record, _)| matches!(record, Record::TaskEnded { .. }));
    let end_s = ended.map(|(_, at_s)| *at_s).fold(0.0, f64::max);
    journal.iter().rev().find_map(|(record, _)| match record {
        Record::Planned { plan } => Some((plan.makespan_s, end_s - plan.at_s)),
        _ => None,
    })
}

#[test]
fn what_is_planned_comes_where_host_memory_is_short() {
    let (mut errors, mut num_short, mut all_s) = (Vec::new(), 0, 0.0);
    let num_runs =
        std::env::var("HOST_MEMORY_RUNS").map_or(20, |num| num.parse().expect("a number"));
    // Of the last of these seeds, more are short.
    for seed in (0..40).rev().take(num_runs) {
        let limited = run(seed, Some(LARGEST * 5 / 4));
        all_s += limited.last().map_or(0.0, |(_, at_s)| *at_s);
        let Some((promised_s, came_s)) = promised_and_came(&limited) else { continue };
        let Some((_, roomy_s)) = promised_and_came(&run(seed, None)) else { continue };
        num_short += usize::from(came_s > 1.01 * roomy_s);
        errors.push((seed, (came_s - promised_s) / promised_s));
    }
    errors.sort_by(|left, right| right.1.abs().total_cmp(&left.1.abs()));
    let mean = errors.iter().map(|(_, error)| error.abs()).sum::<f64>() / errors.len() as f64;
    println!("{num_short} of {} runs are short; mean {mean:.4}; {all_s:.0} s", errors.len());
    println!("{errors:?}");
    assert!(errors.len() >= 15 && num_short >= 4, "{num_short} of {}", errors.len());
    assert!(errors.iter().all(|(_, error)| error.abs() < 1e-6), "{errors:?}");
}

/// A group whose tasks train on one device, a second a step.
fn group() -> GroupTruth {
    let on_one = TechniqueTruth {
        factor: 1.0,
        scaling: 0.0,
        measured: BTreeMap::from([(1, 1.0)]),
        fits_from: 1,
        refusal: None,
    };
    GroupTruth {
        step_s: 1.0,
        load_s: 5.0,
        save_s: 1.0,
        evaluating: None,
        batches_per_epoch: 100,
        techniques: BTreeMap::from([("ddp".to_owned(), on_one)]),
    }
}

/// Small tasks come faster than they end, and each that starts would leave too little for the large
/// task, which comes between them.
#[test]
fn a_large_task_is_not_starved_by_small_ones() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let size = Size { nodes: 1, gpus: 1, tasks: 1, steps: (1, 1), techniques: 1 };
    let mut workload = Workload::draw(&mut rng, &size);
    workload.nodes = vec![Node::new("n0", 4, "fast")];
    // The world gives the third group four times the host memory of the first.
    let names = ["g0", "g1", "g2"];
    workload.truth.groups = names.map(|name| (name.to_owned(), group())).into();
    workload.tasks.clear();
    workload.config.policy = Policy {
        interval_s: 60.0,
        checkpoint_every_s: Some(1e9),
        stall_s: 1e9,
        host_memory_bytes: Some(LARGEST * 5 / 4),
        ..Policy::default()
    };
    let manners = Manners::exact(1);
    let config = workload.config.clone();
    let mut world = World::new(workload.truth, Odds::new(), manners, 1e9, 1);
    world.add_node(workload.nodes[0].clone());
    let mut simulation = Simulation::new(config, world, Planner::of_moves(1000));
    let mut submit = |at_s: f64, index: usize, name: &str, steps: u64| {
        let mut spec = task(index, name, steps);
        spec.gpu_range = Some(vec![1]);
        let tasks = vec![NewTask { spec, after: Vec::new() }];
        simulation.plan_deed(at_s, Deed::Ask(Command::Submit { tasks }));
    };
    for small in 0..60 {
        submit(20.0 * f64::from(u8::try_from(small).expect("few")), small, "g0", 100);
    }
    submit(150.0, 60, "g2", 1500);
    simulation.plan_deed(1300.0, Deed::Ask(Command::Close));
    assert_eq!(simulation.run(1e6), Some(RunEnd::Complete), "{:?}", simulation.violations);
    let large = simulation.state().task_named("t60").expect("it came");
    let began = |(record, at_s): &(Record, f64)| match record {
        Record::Launched { task, purpose: Purpose::Train, .. } if *task == large => Some(*at_s),
        _ => None,
    };
    let began_s = simulation.journal.iter().find_map(began).expect("it trained");
    println!("the large task begins at {began_s} s");
    // Those that train when it comes take up to 106 s, and so do those that train when it is tried.
    assert!(began_s < 150.0 + 2.0 * 106.0 + 20.0, "{began_s} s");
}
