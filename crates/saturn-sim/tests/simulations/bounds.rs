//! The lower bound where checkpoints take much of the time: no policy ends before it, and it counts
//! them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_sim::policy::{Case, POLICIES};

use crate::cases::{case, outcome, seeds};

/// Six tasks on a node. An attempt saves every few steps, and most tasks are shorter on one
/// strategy than the time between two checkpoints.
fn drawn(seed: u64, more: &str) -> Case {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = format!(
        "{more}costs = {{ load_s = 5, save_s = {}, checkpoint_every_s = {} }}\n[[nodes]]\ngpus = 4\n",
        rng.random_range(5..20),
        rng.random_range(20..300),
    );
    for kind in 0..6 {
        let base = rng.random_range(0.5..3.0);
        let (two, four) = (base / rng.random_range(1.3..2.0), base / rng.random_range(2.0..4.0));
        let steps = rng.random_range(20..1500);
        let (every, takes_s) = (rng.random_range(3..400), rng.random_range(5..300));
        let evaluate = match kind % 3 {
            _ if more.is_empty() => String::new(),
            0 => format!("evaluate = {{ takes_s = {takes_s} }}\n"),
            _ => format!("evaluate = {{ every_steps = {every}, takes_s = {takes_s} }}\n"),
        };
        write!(
            text,
            "[[tasks]]\nname = \"k{kind}\"\nsteps = {steps}\n{evaluate}\
             step_s = {{ ddp = {{ 1 = {base:.4}, 2 = {two:.4}, 4 = {four:.4} }} }}\n",
        )
        .unwrap();
    }
    case(&text)
}

#[test]
fn no_policy_ends_before_the_lower_bound_which_counts_checkpoints() {
    let mut closest: Vec<f64> = Vec::new();
    for seed in seeds(5) {
        let case = drawn(seed, "");
        let bound_s = case.lower_bound_s().unwrap();
        let ratios = POLICIES.map(|policy| {
            let ratio = outcome(policy.name(), &case).makespan_s() / bound_s;
            assert!(ratio >= 1.0 - 1e-9, "{}, seed {seed}: {ratio}", policy.name());
            ratio
        });
        closest.push(ratios.into_iter().fold(f64::INFINITY, f64::min));
    }
    closest.sort_by(f64::total_cmp);
    // A bound with one checkpoint a task is a twentieth lower.
    assert!(closest[closest.len() / 2] < 1.04, "{closest:?}");
}

#[test]
fn no_policy_ends_before_the_lower_bound_with_evaluations_and_trials() {
    for more in ["# evaluations\n", "trials = true\n"] {
        for seed in seeds(2) {
            let case = drawn(seed, more);
            let bound_s = case.lower_bound_s().unwrap();
            for policy in POLICIES {
                let ratio = outcome(policy.name(), &case).makespan_s() / bound_s;
                assert!(ratio >= 1.0 - 1e-9, "{}, seed {seed}, {more}: {ratio}", policy.name());
            }
        }
    }
    // The last step and the evaluation may be on another device than the steps before.
    let pipeline = case(
        "costs = { load_s = 0, save_s = 0 }\n[[nodes]]\ngpus = 8\n\
         [[tasks]]\nname = \"t\"\ncount = 4\nsteps = 1000\nevaluate = { takes_s = 900 }\n\
         step_s = { ddp = { 1 = 100, 7 = 1 } }\n",
    );
    assert!(pipeline.lower_bound_s().unwrap() <= 5000.0);
}
