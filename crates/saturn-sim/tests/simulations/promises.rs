//! What is planned is what is followed: with exact runtimes, everything starts and ends when the plan
//! in force says, to a microsecond.

#![expect(clippy::expect_used, reason = "a test may panic")]

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt::Write as _;

use saturn_core::Gang;
use saturn_engine::{
    AttemptEnd, AttemptId, Command, Place, Policy, Purpose, Record, RunEnd, RunPlan, TaskId,
};
use saturn_sim::{Deed, Fault, Manners, Odds, Planner, Simulation, Size, Workload, World};

const TOLERANCE_S: f64 = 1e-6;

/// What a world is like, beside its workload.
#[derive(Debug, Clone, Copy)]
struct Setting {
    interval_s: f64,
    max_switches: usize,
    solve_s: f64,
    min_gain: f64,
    max_moves: u64,
    wishes: bool,
    arrivals: bool,
    /// How many plans are poor, so that there is something to improve.
    poor: f64,
}

fn exact(seed: u64, setting: Setting) -> Simulation {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let size = Size { nodes: 2, gpus: 4, tasks: 14, steps: (20, 800), techniques: 2 };
    let mut workload = Workload::draw(&mut rng, &size);
    // Where switches cost little, many are planned.
    let cost = [0.02, 0.2, 1.0][rng.random_range(0..3)];
    for group in workload.truth.groups.values_mut() {
        group.load_s *= cost;
        group.save_s *= cost;
    }
    workload.measure();
    // Some go on where another task ended: plans know that before anything is launched.
    for one in workload.tasks.iter_mut().skip(2).step_by(3) {
        one.spec.start_step = one.spec.steps.unwrap_or(0) / 3;
    }
    workload.config.policy = Policy {
        interval_s: setting.interval_s,
        max_switches: setting.max_switches,
        min_switch_gain: 0.0,
        min_gain: setting.min_gain,
        checkpoint_every_s: Some(1e9),
        stall_s: 1e9,
        ..Policy::default()
    };
    if setting.wishes {
        let names: Vec<String> = workload.tasks.iter().map(|one| one.spec.name.clone()).collect();
        for (index, one) in workload.tasks.iter_mut().enumerate() {
            if rng.random_bool(0.3) {
                one.spec.wishes.release_s = rng.random_range(0.0..60.0);
            }
            if index > 0 && rng.random_bool(0.3) {
                one.after.push(names[rng.random_range(0..index)].clone());
            }
            if rng.random_bool(0.3) {
                one.spec.wishes.priority = rng.random_range(-1..=1);
            }
        }
    }
    let manners = Manners::exact(rng.random_range(1..10));
    let Workload { nodes, config, truth, tasks } = workload;
    let every_s = config.policy.checkpoint_every_s.unwrap_or(f64::MAX);
    let mut world =
        World::new(truth, Odds::from([(Fault::PoorPlan, setting.poor)]), manners, every_s, seed);
    for node in nodes {
        world.add_node(node);
    }
    let planner = Planner { takes_s: setting.solve_s, ..Planner::of_moves(setting.max_moves) };
    let mut simulation = Simulation::new(config, world, planner);
    let mut at_s = 0.0;
    let batches = if setting.arrivals { tasks.chunks(1) } else { tasks.chunks(tasks.len()) };
    for batch in batches {
        simulation.plan_deed(at_s, Deed::Ask(Command::Submit { tasks: batch.to_vec() }));
        at_s += rng.random_range(0.0..40.0);
    }
    simulation.plan_deed(at_s, Deed::Ask(Command::Close));
    simulation
}

/// What each plan promised beside what came, while it was in force; the number of promises kept.
fn check(journal: &[(Record, f64)]) -> Result<usize, String> {
    let mut plan: Option<RunPlan> = None;
    let mut live: Vec<(AttemptId, TaskId, Gang, Option<u64>)> = Vec::new();
    let mut num_kept = 0;
    let mut compare = |what: String, promised_s: f64, at_s: f64| {
        num_kept += 1;
        if (promised_s - at_s).abs() < TOLERANCE_S {
            Ok(())
        } else {
            Err(format!("{what} at {at_s} s, promised for {promised_s} s"))
        }
    };
    let at =
        |plan: &Option<RunPlan>, task: TaskId, gang: &Gang, until: Option<u64>| -> Option<Place> {
            let places = plan.as_ref()?.places.iter();
            let mut of = places
                .filter(|one| one.task == task && *one.gang == *gang && one.until_step == until);
            of.next().cloned()
        };
    let mut last_s = 0.0;
    for (record, now_s) in journal {
        match record {
            Record::Planned { plan: new } => plan = Some(RunPlan::clone(new)),
            Record::Launched {
                attempt, task, purpose: Purpose::Train, gang, until_step, ..
            } => {
                let place =
                    at(&plan, *task, gang, *until_step).ok_or("launched outside the plan")?;
                compare(format!("{task:?} starts"), place.start_s, *now_s)?;
                live.push((*attempt, *task, gang.clone(), *until_step));
            }
            Record::Until { attempt, step } => {
                let one =
                    live.iter_mut().find(|one| one.0 == *attempt).ok_or("until of nothing")?;
                one.3 = *step;
            }
            Record::Ended { attempt, end, .. } => {
                let index =
                    live.iter().position(|one| one.0 == *attempt).ok_or("an end of nothing")?;
                let (_, task, gang, until) = live.swap_remove(index);
                let was_moved = journal.iter().any(|(other, _)| {
                    matches!(other, Record::Stopping { attempt: stopped, .. } if stopped == attempt)
                });
                if matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped) && !was_moved {
                    let place = at(&plan, task, &gang, until).ok_or("ended outside the plan")?;
                    compare(format!("{task:?} ends at {until:?}"), place.end_s, *now_s)?;
                }
            }
            Record::TaskEnded { task, .. } => {
                let places = plan.iter().flat_map(|plan| plan.places_of(*task));
                let end_s = places.map(|place| place.end_s).fold(0.0, f64::max);
                compare(format!("{task:?} is done"), end_s, *now_s)?;
                last_s = *now_s;
            }
            _ => {}
        }
    }
    let plan = plan.ok_or("nothing was planned")?;
    compare("all is done".to_owned(), plan.at_s + plan.makespan_s, last_s)?;
    Ok(num_kept)
}

fn story(journal: &[(Record, f64)]) -> String {
    let mut text = String::new();
    for (record, at_s) in journal {
        let line = match record {
            Record::TaskAdded { task, spec } => {
                format!("added {task:?} {} {:?}", spec.profile_key, spec.steps)
            }
            Record::Planned { plan } => {
                let places: Vec<String> = plan
                    .places
                    .iter()
                    .map(|one| {
                        format!(
                            "\n      {:?} {}x{} {:?} until {:?} {:.6}–{:.6}",
                            one.task,
                            one.strategy.technique,
                            one.strategy.gpus,
                            one.gang
                                .iter()
                                .map(|part| (part.node, &part.devices))
                                .collect::<Vec<_>>(),
                            one.until_step,
                            one.start_s,
                            one.end_s
                        )
                    })
                    .collect();
                format!(
                    "plan of {:?}, {:.6}, instead of {:?}{}",
                    plan.source,
                    plan.makespan_s,
                    plan.instead_of_s,
                    places.concat()
                )
            }
            other => format!("{other:?}"),
        };
        // Writing to a string can't fail.
        let _ = writeln!(text, "{at_s:.6} {line}");
    }
    text
}

fn is_kept(number: u64, setting: Setting, seen: &mut Seen) -> Result<(), String> {
    let mut simulation = exact(number, setting);
    let end = simulation.run(1e6);
    let journal = &simulation.journal;
    if end != Some(RunEnd::Complete) {
        return Err(format!("{}\n{:?}", story(journal), simulation.violations));
    }
    seen.kept += check(journal).map_err(|error| format!("{}\n{error}", story(journal)))?;
    for (record, _) in journal {
        match record {
            Record::Planned { plan } => {
                seen.plans += 1;
                seen.switches += plan.num_switches();
            }
            Record::Stopping { .. } => seen.moves += 1,
            Record::Until { .. } => seen.untils += 1,
            _ => {}
        }
    }
    Ok(())
}

/// What was seen in runs whose promises were kept.
#[derive(Debug, Default)]
struct Seen {
    kept: usize,
    plans: usize,
    moves: usize,
    switches: usize,
    untils: usize,
}

/// Random settings.
fn setting(seed: u64) -> Setting {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    Setting {
        interval_s: rng.random_range(5.0..100.0),
        max_switches: rng.random_range(0..3),
        solve_s: if rng.random() { 0.0 } else { rng.random_range(0.0..5.0) },
        min_gain: rng.random_range(0.0..0.05),
        // Switches are planned after 4,000 moves without them.
        max_moves: if rng.random() { 1 } else { 8000 },
        wishes: rng.random(),
        arrivals: rng.random(),
        poor: rng.random_range(0.0..0.8),
    }
}

#[test]
fn what_is_planned_is_what_is_followed() {
    let (from, num) = (seed_of("PROMISES_FROM", 0), seed_of("PROMISES_NUM", 100));
    let mut seen = Seen::default();
    for seed in from..from + num {
        if let Err(error) = is_kept(seed, setting(seed), &mut seen) {
            panic!("{error}\nof seed {seed}");
        }
    }
    println!("{seen:?}");
    // What the promises were about.
    if num >= 100 {
        let num = usize::try_from(num).expect("few");
        assert!(seen.kept > 10 * num && seen.plans > 3 * num / 2, "{seen:?}");
        assert!(
            seen.moves > num / 2 && seen.switches > num / 4 && seen.untils > num / 100,
            "{seen:?}"
        );
    }
}

fn seed_of(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
