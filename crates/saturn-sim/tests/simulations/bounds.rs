//! The lower bound where checkpoints take much of the time: no policy ends before it, and it counts
//! them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_sim::policy::{Case, POLICIES};

use crate::cases::{case, outcome};

/// Six tasks on a node. An attempt saves every few steps, and most tasks are shorter on one
/// strategy than the time between two checkpoints.
fn drawn(seed: u64) -> Case {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = format!(
        "costs = {{ load_s = 5, save_s = {}, checkpoint_every_s = {} }}\n[[nodes]]\ngpus = 4\n",
        rng.random_range(5..20),
        rng.random_range(20..300),
    );
    for kind in 0..6 {
        let base = rng.random_range(0.5..3.0);
        let (two, four) = (base / rng.random_range(1.3..2.0), base / rng.random_range(2.0..4.0));
        let steps = rng.random_range(20..1500);
        write!(
            text,
            "[[tasks]]\nname = \"k{kind}\"\nsteps = {steps}\n\
             step_s = {{ ddp = {{ 1 = {base:.4}, 2 = {two:.4}, 4 = {four:.4} }} }}\n",
        )
        .unwrap();
    }
    case(&text)
}

#[test]
fn no_policy_ends_before_the_lower_bound_which_counts_checkpoints() {
    let mut closest: Vec<f64> = Vec::new();
    for seed in 0..12 {
        let case = drawn(seed);
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
    assert!(closest[6] < 1.04, "{closest:?}");
}
