//! Owners: what they would take alone on their share, and how far a policy is from that.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use saturn_sim::policy::{Case, MORE_POLICIES, POLICIES};

use crate::cases::{case, outcome, seeds};

/// Two tasks of one owner and four of another; each takes 110 s on one GPU.
fn two_owners(nodes: &str, step_s: &str) -> Case {
    let mut text = format!("costs = {{ load_s = 10, save_s = 0 }}\n{nodes}\n");
    for (owner, count) in [("lena", 2), ("omar", 4)] {
        write!(
            text,
            "[[tasks]]\nname = \"{owner}\"\nowner = \"{owner}\"\ncount = {count}\nsteps = 100\n\
             asks_gpus = 1\narrive_s = 500\nstep_s = {{ ddp = {{ {step_s} }} }}\n"
        )
        .unwrap();
    }
    case(&text)
}

#[test]
fn a_share_is_an_equal_part_of_the_gpus() {
    let near = |found: Vec<f64>, wanted: [f64; 2]| {
        assert!(
            found.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-3),
            "{found:?}"
        );
    };
    let nodes = |gpus: u32, count: u32| format!("[[nodes]]\ngpus = {gpus}\ncount = {count}");
    near(two_owners(&nodes(4, 1), "1 = 1.0").alone_s().unwrap(), [110.0, 220.0]);
    // Three GPUs for each: one node of two, and one GPU of the next.
    near(two_owners(&nodes(2, 3), "1 = 1.0").alone_s().unwrap(), [110.0, 220.0]);
    // A task that needs two GPUs has them, though the share is one.
    near(two_owners(&nodes(2, 1), "2 = 1.0").alone_s().unwrap(), [220.0, 440.0]);
    assert!(
        case(
            "[[nodes]]\ngpus = 1\n[[tasks]]\nname = \"a\"\nsteps = 1\n\
         step_s = { ddp = { 1 = 1.0 } }\n"
        )
        .alone_s()
        .unwrap()
        .is_empty()
    );
}

#[test]
fn a_ratio_counts_from_the_arrival_of_an_owners_first_task() {
    let case = two_owners("[[nodes]]\ngpus = 4", "1 = 1.0");
    let (worst, mean) = outcome("fifo", &case).fairness(&case, &case.alone_s().unwrap()).unwrap();
    assert!((worst - 1.0).abs() < 1e-3 && (mean - 1.0).abs() < 1e-3, "{worst} {mean}");
}

/// One owner fills the pool, and then another comes with one short task.
const UNFAIR: &str = r#"
costs = { load_s = 10, save_s = 5, checkpoint_every_s = 1e8 }
[[nodes]]
gpus = 2
[[tasks]]
name = "many"
owner = "lena"
count = 8
steps = 3000
asks_gpus = 1
step_s = { ddp = { 1 = 1.0, 2 = 0.6 } }
[[tasks]]
name = "one"
owner = "omar"
arrive_s = 50
steps = 600
asks_gpus = 1
step_s = { ddp = { 1 = 1.0 } }
"#;

#[test]
fn themis_like_levels_out_what_a_queue_does_not() {
    let case = case(UNFAIR);
    let alone_s = case.alone_s().unwrap();
    let worst = |name: &str| outcome(name, &case).fairness(&case, &alone_s).unwrap().0;
    let (queue, fair) = (worst("fifo"), worst("themis-like"));
    assert!(queue > 15.0 && fair < 4.0, "{queue}, {fair}");
    // A task of the first owner was stopped for the other's.
    assert!(outcome("themis-like", &case).num_moves() > 0);
}

#[test]
fn policies_by_name_alone_end_through_trials_and_faults() {
    let more = "trials = true\nfaults = { lost = { every_s = 4000, away_s = 500 } }\n";
    for seed in seeds(1) {
        let case = case(&format!("{more}{UNFAIR}")).drawn(0.2, seed);
        let bound_s = case.lower_bound_s().unwrap();
        for policy in MORE_POLICIES {
            assert!(outcome(policy.name(), &case).makespan_s() >= bound_s, "{}", policy.name());
            assert!(POLICIES.iter().all(|usual| usual.name() != policy.name()));
        }
    }
}
