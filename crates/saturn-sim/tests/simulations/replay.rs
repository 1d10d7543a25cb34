//! Runs that the simulator made itself, replayed from their journals.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::Node;
use saturn_engine::{Command, Judgement, Metrics, NamedJudgement, Record, Ruling, RunEnd};
use saturn_sim::replay::{ReplayError, Replayed, Spent, replay};
use saturn_sim::{ByProof, Calm, Deed, Fault, Found, Manners, Planner, Simulation, Size, Workload};

const MAX_S: f64 = 1e6;
/// A replay ends when its run ended, up to what sums of floats lose.
const EXACT: f64 = 1e-9;

/// Tasks of several groups on one node or two of one type, on which a step takes as long.
fn simulation(seed: u64, num_nodes: usize) -> Simulation {
    simulation_of(seed, num_nodes, true)
}

/// The same, whose solver is told times in whole microseconds or not.
fn simulation_of(seed: u64, num_nodes: usize, in_microseconds: bool) -> Simulation {
    simulation_with(seed, num_nodes, in_microseconds, 20_000)
}

/// The same, whose solver makes so many moves: a replay's solver makes 20,000.
fn simulation_with(
    seed: u64,
    num_nodes: usize,
    in_microseconds: bool,
    max_moves: u64,
) -> Simulation {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let size = Size { nodes: 1, gpus: 4, tasks: 7, steps: (200, 900), techniques: 2 };
    let mut workload = Workload::draw(&mut rng, &size);
    let spec = workload.nodes[0].clone();
    let nodes = (0..num_nodes).map(|index| Node { name: format!("n{index}"), ..spec.clone() });
    workload.nodes = nodes.collect();
    if seed.is_multiple_of(3) {
        workload.measure();
    }
    let policy = &mut workload.config.policy;
    policy.interval_s = 200.0;
    policy.trial_budget = saturn_engine::TrialBudget::Worthwhile;
    let manners = Manners {
        look_up_every: 1,
        // As the worker has it (`observer.py`).
        tell_every_s: 0.25,
        teardown_s: 0.3,
        trial_s: 0.0,
        trial_steps: policy.warmup_steps + policy.timed_steps,
        trials_train: true,
        trial_noise: 0.0,
    };
    let by_proof = ByProof { proven_s: 1.0, unproven_s: 1.0, around_s: 0.1, hopeful_s: None };
    let by_proof = Some(by_proof);
    let planner = Planner { by_proof, in_microseconds, ..Planner::of_moves(max_moves) };
    let calm = Calm { planner, manners, save_every_s: 60.0, seed };
    calm.simulation(workload)
}

/// The run of a simulation, and its replay. Then the run's journal.
fn both(mut simulation: Simulation) -> (f64, Replayed, Vec<(Record, f64)>) {
    assert_eq!(simulation.run(MAX_S), Some(RunEnd::Complete), "{:?}", simulation.violations);
    let replayed = replay(&simulation.journal, &|| false).unwrap();
    let realised_s = Spent::of(&simulation.journal).makespan_s;
    assert!((replayed.realised.makespan_s - realised_s).abs() < 1e-9);
    (realised_s, replayed, simulation.journal)
}

/// Replays the runs of ten seeds, or of `REPLAY_NUM`. Each should end when its run ended: there is
/// no noise, and a journal has all that counts.
///
/// One run of five may part from its replay, and may then end up to a tenth earlier or later. A
/// search of the solver goes elsewhere where a time is at the edge of a microsecond, and the last
/// bits of times are not the same on every machine. Of 40 seeds, 3 to 6 part, by 6.4% at most.
fn replay_exactly(make: impl Fn(u64) -> Simulation) {
    let mut parted = Vec::new();
    let num = std::env::var("REPLAY_NUM").map_or(10, |num| num.parse().unwrap());
    for seed in 0..num {
        let (realised_s, replayed, journal) = both(make(seed));
        let difference = replayed.simulated.makespan_s / realised_s - 1.0;
        if difference.abs() < EXACT {
            continue;
        }
        let (run, again) = (decisions(&journal), decisions(&replayed.journal));
        let is_other = |(one, other): &(&(f64, String), &(f64, String))| {
            one.1 != other.1 || (one.0 - other.0).abs() > 1e-6
        };
        // Plans that are equally good may differ.
        let parting = run.iter().zip(&again).find(is_other);
        let text = format!("seed {seed}: {difference:+.4}, from {parting:#?} on");
        assert!(difference.abs() < 0.1, "{text}");
        parted.push(text);
    }
    assert!(parted.len() * 5 <= usize::try_from(num).unwrap(), "{}", parted.join("\n"));
}

/// What was decided in a run, and when, seconds.
fn decisions(journal: &[(Record, f64)]) -> Vec<(f64, String)> {
    let decision = |(record, at_s): &(Record, f64)| {
        let text = match record {
            Record::Launched { task, purpose, strategy, gang, until_step, .. } => {
                let key = strategy.key();
                format!("{purpose:?} of {task:?} {key:?} on {gang:?} until {until_step:?}")
            }
            Record::Stopping { attempt, reason } => format!("{attempt:?} stops: {reason:?}"),
            Record::Until { attempt, step } => format!("{attempt:?} goes until {step:?}"),
            Record::WentOn { attempt, step } => format!("{attempt:?} goes on from {step}"),
            Record::Checkpointed { attempt, step, .. } => format!("{attempt:?} saves {step}"),
            Record::TrialsChosen { trials, .. } => format!("{trials:?}"),
            Record::TaskEnded { task, .. } => format!("{task:?} ends"),
            Record::Planned { plan } => {
                let places = plan.places.iter();
                let places = places.map(|one| (one.task, &one.strategy, &one.gang, one.until_step));
                format!("{:?}", places.collect::<Vec<_>>())
            }
            _ => return None,
        };
        Some((*at_s, text))
    };
    journal.iter().filter_map(decision).collect()
}

#[test]
fn a_run_of_the_simulator_replays_to_its_makespan() {
    replay_exactly(|seed| simulation(seed, 1));
}

#[test]
fn equally_good_plans_are_decided_as_in_the_run() {
    let is_exact = |(nodes, seed): &(usize, u64)| {
        let (realised_s, replayed, _) = both(simulation_with(*seed, *nodes, true, 100_000));
        (replayed.simulated.makespan_s / realised_s - 1.0).abs() < EXACT
    };
    let all = [1, 2].into_iter().flat_map(|nodes| (0..10).map(move |seed| (nodes, seed)));
    let num_exact = all.filter(is_exact).count();
    // One of five may part, as above: 17 do not. Without the run's plans 14 of 20 did not, when that
    // was last tried.
    assert!(num_exact >= 16, "{num_exact} of 20");
}

#[test]
fn faults_come_again_where_they_were() {
    replay_exactly(|seed| {
        let mut simulation = simulation(seed, 2);
        for fault in [Fault::RankCrash, Fault::RankKilled] {
            simulation.world.odds.insert(fault, 0.1);
        }
        simulation
    });
}

#[test]
fn nodes_and_drivers_go_and_come_when_they_did() {
    replay_exactly(|seed| {
        let mut simulation = simulation(seed, 2);
        simulation.plan_deed(70.0, Deed::NodeGoes("n1".to_owned()));
        let back = simulation.world.nodes().last().unwrap().clone();
        simulation.plan_deed(110.0, Deed::NodeComes(back));
        simulation.plan_deed(150.0, Deed::Ask(Command::Stop { at_once: false }));
        simulation
    });
}

#[test]
fn a_dead_node_does_nothing_until_it_is_missed() {
    replay_exactly(|seed| {
        let mut simulation = simulation(seed, 2);
        while simulation.state().ended.is_none() && simulation.world.now_s() < 70.0 {
            simulation.step();
        }
        // What trained there has saved a step of which nobody has heard.
        let tasks: Vec<_> = simulation.state().task_ids().collect();
        let found = tasks.into_iter().map(|task| {
            let step = simulation.world.saved_step(task) + 1;
            (task, Found { step, unheard: 1 })
        });
        let found = found.collect();
        simulation.plan_deed(71.0, Deed::NodeFallsSilent { name: "n1".to_owned(), found });
        simulation.plan_deed(110.0, Deed::NodeGoes("n1".to_owned()));
        simulation
    });
}

#[test]
fn a_node_that_dies_again_does_nothing_in_its_second_life_either() {
    replay_exactly(|seed| {
        let mut simulation = simulation(seed, 2);
        let second = simulation.world.nodes().last().unwrap().clone();
        let is_busy = |simulation: &Simulation| {
            let nodes = &simulation.state().nodes;
            nodes.get(1).is_some_and(|node| node.devices.iter().any(|one| one.held_by.is_some()))
        };
        for (from_s, missed_s) in [(40.0, 80.0), (90.0, 160.0)] {
            let is_under_way = |simulation: &Simulation| {
                simulation.state().ended.is_none() && simulation.world.now_s() < missed_s - 10.0
            };
            while is_under_way(&simulation)
                && (simulation.world.now_s() < from_s || !is_busy(&simulation))
            {
                simulation.step();
            }
            // In its second life it dies before anything on it has said a word.
            let now_s = simulation.world.now_s();
            let name = second.name.clone();
            let silent = Deed::NodeFallsSilent { name: name.clone(), found: BTreeMap::new() };
            simulation.plan_deed(now_s + 0.01, silent);
            simulation.plan_deed(missed_s, Deed::NodeGoes(name));
            simulation.plan_deed(missed_s + 10.0, Deed::NodeComes(second.clone()));
            while is_under_way(&simulation) || simulation.world.now_s() < missed_s + 10.0 {
                if simulation.state().ended.is_some() {
                    break;
                }
                simulation.step();
            }
        }
        simulation
    });
}

/// A run in which a task is paused and taken up again, and another is stopped by a stopper.
fn said(seed: u64) -> Simulation {
    let mut simulation = simulation(seed, 1);
    let ruled = |task: &str, step: u64, ruling: Ruling| {
        let judgement = Judgement {
            step,
            values: Metrics::from([("loss".to_owned(), Some(0.5))]),
            ruling: Some(ruling),
            reason: "it does badly".to_owned(),
        };
        let judgements = vec![NamedJudgement { task: task.to_owned(), judgement }];
        Deed::Ask(Command::Judge { judgements })
    };
    simulation.plan_deed(20.0, Deed::Ask(Command::Pause { task: "t0".to_owned() }));
    simulation.plan_deed(90.0, Deed::Ask(Command::Unpause { task: "t0".to_owned() }));
    if simulation.state().tasks.len() != 1 {
        simulation.plan_deed(180.0, ruled("t2", 7, Ruling::Stop));
    }
    simulation
}

#[test]
fn what_people_and_stoppers_said_is_said_again() {
    replay_exactly(said);
}

#[test]
fn a_journal_that_does_not_say_when_solves_were_asked_for_replays_nearly() {
    let mut all: Vec<f64> = (0..20)
        .map(|seed| {
            // The solvers of such runs were told times to the last bit.
            let (_, _, mut journal) = both(simulation_of(seed, 1, false));
            journal.retain(|(record, _)| !matches!(record, Record::Solved { .. }));
            let replayed = replay(&journal, &|| false).unwrap();
            (replayed.simulated.makespan_s / replayed.realised.makespan_s - 1.0).abs()
        })
        .collect();
    all.sort_by(f64::total_cmp);
    assert!(all[15] < EXACT && all[18] < 0.01, "{all:?}");
}

#[test]
fn where_the_time_went_adds_up_to_the_makespan() {
    for seed in 0..6 {
        let (_, replayed, _) = both(simulation(seed, 2));
        for Spent {
            trials_s,
            starting_s,
            steps_s,
            evaluations_s,
            checkpoints_s,
            ends_s,
            idle_s,
            absent_s,
            makespan_s,
            ..
        } in [replayed.realised, replayed.simulated]
        {
            let parts = [trials_s, starting_s, steps_s, evaluations_s, checkpoints_s, ends_s];
            assert!(parts.iter().all(|part| *part >= 0.0) && idle_s > -1e-6 && absent_s >= 0.0);
            let all_s: f64 = parts.iter().sum::<f64>() + idle_s + absent_s;
            assert!((all_s - makespan_s).abs() < 1e-6, "{all_s} {makespan_s}");
        }
    }
}

#[test]
fn a_journal_without_its_end_is_refused() {
    let mut simulation = simulation(4, 1);
    simulation.run(MAX_S);
    let journal = &simulation.journal;
    let refused = |records: &[(Record, f64)]| replay(records, &|| false).unwrap_err();
    assert_eq!(refused(&[]), ReplayError::NoBeginning);
    assert_eq!(refused(&journal[1..]), ReplayError::NoBeginning);
    let tasks = simulation.state().tasks.len();
    for end in [2, journal.len() / 2, journal.len() - 1] {
        let told = refused(&journal[..end]);
        assert!(matches!(told, ReplayError::NotEnded { .. }), "{end}: {told}");
    }
    let told = refused(&journal[..journal.len() / 2]).to_string();
    assert!(told.contains(&format!("of its {tasks} tasks are open")), "{told}");
    assert_eq!(replay(journal, &|| true).unwrap_err(), ReplayError::Interrupted);
}

#[test]
fn equal_journals_give_equal_replays() {
    let (_, one, _) = both(simulation(7, 2));
    let (_, other, _) = both(simulation(7, 2));
    assert_eq!(one, other);
}
