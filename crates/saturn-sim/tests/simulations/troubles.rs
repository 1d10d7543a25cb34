//! Nodes that are lost and come back, nodes that are slow, and tasks that end early: all policies
//! live through the same faults, and pay for them by the same rules.

use saturn_sim::policy::{Case, Moves, POLICIES, policy, simulate};

use crate::cases::{case, outcome, seeds};

/// Two nodes and three kinds of tasks, some of which come later.
fn pool(faults: &str) -> Case {
    case(&format!(
        r#"
        costs = {{ load_s = 20, save_s = 5, checkpoint_every_s = 600 }}
        {faults}
        [[nodes]]
        gpus = 4
        [[nodes]]
        gpus = 2
        [[tasks]]
        name = "wide"
        count = 2
        steps = 3000
        step_s = {{ ddp = {{ 4 = 0.5 }} }}
        [[tasks]]
        name = "any"
        count = 4
        steps = 4000
        asks_gpus = 2
        step_s = {{ ddp = {{ 1 = 1.0, 2 = 0.6, 4 = 0.4 }}, fsdp = {{ 2 = 0.7 }} }}
        [[tasks]]
        name = "late"
        count = 3
        steps = 2000
        asks_gpus = 1
        step_s = {{ ddp = {{ 1 = 1.0, 2 = 0.6 }} }}
        arrivals = {{ kind = "poisson", every_s = 1000 }}
        "#
    ))
}

const ALL: &str = "faults = { lost = { every_s = 3000, away_s = 700 }, \
                   slow = { every_s = 2000, lasts_s = 900, factor = 2.5 }, \
                   early = { share = 0.4, at = 0.5 } }";

#[test]
fn every_policy_ends_through_faults_and_not_before_the_lower_bound() {
    for trials in ["", "trials = true\n"] {
        for seed in seeds(1) {
            let case = pool(&format!("{trials}{ALL}")).drawn(0.1, seed);
            let bound_s = case.lower_bound_s().unwrap();
            for policy in POLICIES {
                // `simulate` checks that no lost node is used.
                let first = outcome(policy.name(), &case);
                assert!(first.makespan_s() >= bound_s, "{}, seed {seed}", policy.name());
                if seed == 0 {
                    assert_eq!(first, outcome(policy.name(), &case), "{}", policy.name());
                }
            }
        }
    }
}

/// One task on one device, of 100 s between two checkpoints.
fn alone(faults: &str) -> Case {
    case(&format!(
        "costs = {{ load_s = 10, save_s = 0, checkpoint_every_s = 100 }}\n{faults}\n\
         [[nodes]]\ngpus = 1\n[[tasks]]\nname = \"a\"\nsteps = 5000\n\
         step_s = {{ ddp = {{ 1 = 1.0 }} }}\n"
    ))
}

#[test]
fn a_task_on_a_lost_node_goes_back_to_its_last_checkpoint() {
    let case = alone("faults = { lost = { every_s = 1500, away_s = 300 } }").drawn(0.0, 3);
    for policy in POLICIES {
        let outcome = outcome(policy.name(), &case);
        assert!(outcome.spans.len() > 2, "{}", policy.name());
        let mut left_s = 5000.0;
        for (index, span) in outcome.spans.iter().enumerate() {
            let trained_s = (span.ended_s - span.launched_s - 10.0).max(0.0);
            if index + 1 == outcome.spans.len() {
                assert!((trained_s - left_s).abs() < 1e-6, "{}: {trained_s}", policy.name());
                break;
            }
            // What was trained since the last full 100 s is lost, and the node is away.
            left_s -= (trained_s / 100.0).floor() * 100.0;
            let away_s = outcome.spans[index + 1].launched_s - span.ended_s;
            assert!((300.0..303.0).contains(&away_s), "{}: {away_s}", policy.name());
        }
    }
}

#[test]
fn steps_on_a_slow_node_take_longer_for_a_while() {
    let slow = "faults = { slow = { every_s = 0.01, lasts_s = 1000, factor = 2 } }";
    for policy in POLICIES {
        let took_s = |case: &Case| outcome(policy.name(), case).makespan_s();
        // The node is well for moments alone.
        let ratio = (took_s(&alone(slow)) - 10.0) / (took_s(&alone("")) - 10.0);
        assert!((1.99..=2.001).contains(&ratio), "{}: {ratio}", policy.name());
    }
}

#[test]
fn a_share_of_the_tasks_ends_early() {
    let early = |share: f64| format!("faults = {{ early = {{ share = {share}, at = 0.25 }} }}");
    for policy in POLICIES {
        let makespan_s = outcome(policy.name(), &alone(&early(1.0))).makespan_s();
        assert!((1260.0..1262.0).contains(&makespan_s), "{}: {makespan_s}", policy.name());
    }
    assert!((alone(&early(1.0)).lower_bound_s().unwrap() - 1260.0).abs() < 1e-3);
    let num_early = |seed: u64| {
        let case = pool(&early(0.5)).drawn(0.0, seed);
        case.jobs.iter().filter(|job| job.ends_after.is_some()).count()
    };
    let nums: Vec<usize> = (0..20).map(num_early).collect();
    // Of nine tasks each time.
    assert!((70..110).contains(&nums.iter().sum::<usize>()), "{nums:?}");
    assert_eq!(nums, (0..20).map(num_early).collect::<Vec<_>>());
}

#[test]
fn tasks_that_never_get_to_a_checkpoint_are_given_up() {
    // Between two losses there is no time for a launch and a hundred steps.
    let case = case(
        "costs = { load_s = 10, save_s = 0, checkpoint_every_s = 100 }\n\
         faults = { lost = { every_s = 5, away_s = 5 } }\n\
         [[nodes]]\ngpus = 1\n[[tasks]]\nname = \"a\"\nsteps = 100\n\
         step_s = { ddp = { 1 = 1.0 } }\n",
    );
    for name in ["saturn", "fifo"] {
        let error = simulate(policy(name).unwrap(), &case, &|| false).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{name}` is not done after ")), "{error}");
    }
}

/// A node that is twice as slow for an hour, again and again, and more tasks than fit it at once.
const OFTEN_SLOW: &str = r#"
    costs = { load_s = 45, save_s = 15 }
    faults = { slow = { every_s = 5000, lasts_s = 3600, factor = 2 } }
    [[nodes]]
    gpus = 8
    [[tasks]]
    name = "large"
    count = 3
    steps = 6000
    step_s = { fsdp = { 4 = 2.6, 8 = 1.35 }, pipeline = { 2 = 4.9, 4 = 2.7, 8 = 1.5 } }
    [[tasks]]
    name = "middle"
    count = 3
    steps = 10000
    step_s = { ddp = { 2 = 1.6, 4 = 0.85, 8 = 0.46 }, fsdp = { 2 = 1.5, 4 = 0.86, 8 = 0.5 } }
    [[tasks]]
    name = "small"
    count = 4
    steps = 20000
    step_s = { ddp = { 1 = 1.0, 2 = 0.52, 4 = 0.28, 8 = 0.16 }, fsdp = { 2 = 0.53, 4 = 0.29, 8 = 0.17 } }
"#;

#[test]
fn tasks_on_a_slow_node_are_not_moved_in_vain() {
    let moves = |seed: u64| {
        let moves = Moves { first: 5000, again: 5000 };
        let case = Case { moves, ..case(OFTEN_SLOW) }.drawn(0.0, seed);
        outcome("saturn", &case).spans.len() - case.jobs.len()
    };
    let moves: Vec<usize> = (0..3).map(moves).collect();
    // There is nowhere to go. What the first plan left out may still gain by a few moves.
    assert!(moves.iter().sum::<usize>() <= 20, "{moves:?}");
}
