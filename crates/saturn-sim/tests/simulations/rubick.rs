//! `rubick-like`: GPUs go where a GPU gains most, techniques change with them, and no task with a
//! request is slower than asked for.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_sim::policy::{Case, Held, Outcome};

use crate::cases::{case, outcome};

const COSTS: &str = "costs = { load_s = 10, save_s = 5, checkpoint_every_s = 1e8 }";
const STEEP: &str = "step_s = { ddp = { 1 = 1.0, 2 = 0.5, 4 = 0.25 } }";
const FLAT: &str = "step_s = { ddp = { 1 = 1.0, 2 = 0.95, 4 = 0.9 } }";

fn rubick(case: &Case) -> Outcome {
    outcome("rubick-like", case)
}

/// GPU counts of a task's spans, in the order of time.
fn counts(outcome: &Outcome, job: usize) -> Vec<u32> {
    let mut spans: Vec<_> = outcome.spans.iter().filter(|span| span.job == job).collect();
    spans.sort_by(|a, b| a.launched_s.total_cmp(&b.launched_s));
    spans.iter().map(|span| span.gpus).collect()
}

#[test]
fn gpus_go_to_the_steep_curve_and_come_back_when_it_ends() {
    let text = |of: &str| format!("[[tasks]]\nname = \"{of}\"\nsteps = 4000\n");
    let case = case(&format!(
        "{COSTS}\n[[nodes]]\ngpus = 5\n{}{STEEP}\n{}{FLAT}\n",
        text("steep"),
        text("flat")
    ));
    let outcome = rubick(&case);
    assert_eq!(counts(&outcome, 0), [4]);
    // The flat task has its minimum, and all GPUs that its curve knows once the other has ended.
    assert_eq!(counts(&outcome, 1), [1, 4]);
}

#[test]
fn a_task_that_trains_gives_gpus_to_a_task_that_comes() {
    let case = case(&format!(
        "{COSTS}\n[[nodes]]\ngpus = 4\n[[tasks]]\nname = \"flat\"\nsteps = 9000\n{FLAT}\n\
         [[tasks]]\nname = \"steep\"\nsteps = 4000\narrive_s = 2000\n{STEEP}\n"
    ));
    let outcome = rubick(&case);
    // The steep curve knows no three GPUs.
    assert_eq!(counts(&outcome, 0), [4, 2, 4]);
    assert_eq!(counts(&outcome, 1), [2]);
}

#[test]
fn the_technique_is_the_fastest_for_the_gpus() {
    let both = "step_s = { ddp = { 1 = 1.0, 2 = 0.7 }, fsdp = { 2 = 0.9, 4 = 0.3 } }";
    let case = case(&format!(
        "{COSTS}\n[[nodes]]\ngpus = 4\n[[tasks]]\nname = \"a\"\ncount = 4\nsteps = 4000\n{both}\n\
         [[tasks]]\nname = \"b\"\nsteps = 20000\n{both}\n"
    ));
    let spans = rubick(&case).spans;
    let used: BTreeSet<(u32, String)> =
        spans.into_iter().map(|span| (span.gpus, span.technique)).collect();
    assert!(used.contains(&(1, "ddp".to_owned())) && used.contains(&(4, "fsdp".to_owned())));
    assert!(!used.contains(&(2, "fsdp".to_owned())), "{used:?}");
}

#[test]
fn a_task_with_a_request_waits_rather_than_train_slower_than_asked_for() {
    let text = |asks: &str| {
        format!(
            "{COSTS}\n[[nodes]]\ngpus = 4\n[[tasks]]\nname = \"a\"\ncount = 2\nsteps = 1000\n\
             {asks}\nstep_s = {{ ddp = {{ 1 = 1.0, 2 = 0.6, 4 = 0.4 }} }}\n"
        )
    };
    // Without a request each has two GPUs.
    assert_eq!(counts(&rubick(&case(&text(""))), 1), [2]);
    assert_eq!(counts(&rubick(&case(&text("asks_gpus = 4"))), 1), [4]);
}

#[test]
fn a_task_that_one_gpu_hardly_trains_begins_with_more() {
    let offloaded = "step_s = { offload = { 1 = 20.0 }, fsdp = { 4 = 1.0 } }";
    let case = case(&format!(
        "{COSTS}\n[[nodes]]\ngpus = 4\n[[tasks]]\nname = \"a\"\nsteps = 1000\n{STEEP}\n\
         [[tasks]]\nname = \"large\"\ncount = 2\nsteps = 1000\n{offloaded}\n"
    ));
    let outcome = rubick(&case);
    assert_eq!([counts(&outcome, 1), counts(&outcome, 2)].concat(), [4, 4]);
}

/// A drawn workload: curves of any power, requests of some tasks, arrivals, faults, trials.
fn drawn(seed: u64, is_faulty: bool) -> Case {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let trials = rng.random_bool(0.5);
    let mut text = format!("trials = {trials}\ncosts = {{ load_s = 20, save_s = 10 }}\n");
    if is_faulty {
        text += "faults = { lost = { every_s = 9000, away_s = 700 }, \
                 early = { share = 0.3, at = 0.5 } }\n";
    }
    for _ in 0..rng.random_range(1..3) {
        writeln!(text, "[[nodes]]\ngpus = {}", [2, 4, 8][rng.random_range(0..3)]).unwrap();
    }
    for index in 0..rng.random_range(1..7) {
        let power = rng.random_range(0.3..1.2);
        let curve = |base: f64| {
            let of = |gpus: u32| format!("{gpus} = {:.6}", base / f64::from(gpus).powf(power));
            [1, 2, 4, 8].map(of).join(", ")
        };
        let asks = ["", "asks_gpus = 1\n", "asks_gpus = 2\n"][rng.random_range(0..3)];
        writeln!(
            text,
            "[[tasks]]\nname = \"t{index}\"\nsteps = {}\narrive_s = {}\n{asks}\
             step_s = {{ ddp = {{ {} }}, fsdp = {{ {} }} }}",
            rng.random_range(500..9000),
            rng.random_range(0..9000),
            curve(1.0),
            curve(1.1)
        )
        .unwrap();
    }
    case(&text).drawn(0.1, seed)
}

#[test]
fn on_any_workload_it_ends_after_the_bound_moves_rarely_and_keeps_to_requests() {
    let mut num_moves = 0;
    for seed in 0..60 {
        let is_faulty = seed % 2 == 1;
        let case = drawn(seed, is_faulty);
        // `simulate` has the outcome checked by the core checker.
        let outcome = rubick(&case);
        assert_eq!(outcome, rubick(&case), "seed {seed}");
        assert!(outcome.makespan_s() >= case.lower_bound_s().unwrap() * (1.0 - 1e-9), "{seed}");
        let believed_s = |job: usize, technique: &str, gpus: u32| {
            case.believed.groups[&case.jobs[job].group].techniques[technique].measured[&gpus]
        };
        for span in outcome.spans.iter().filter(|span| span.held == Held::Training) {
            let Some(asks) = case.jobs[span.job].asks else { continue };
            let asked_s = ["ddp", "fsdp"].map(|name| believed_s(span.job, name, asks));
            let step_s = believed_s(span.job, &span.technique, span.gpus);
            assert!(step_s <= asked_s[0].min(asked_s[1]), "seed {seed}");
        }
        // Each move comes a thousand seconds after the launch before, or later.
        let most = case.jobs.len() as f64 * outcome.makespan_s() / 1000.0;
        assert!(is_faulty || outcome.num_moves() as f64 <= most, "seed {seed}");
        num_moves += outcome.num_moves();
    }
    assert!(num_moves > 20, "{num_moves}");
}
