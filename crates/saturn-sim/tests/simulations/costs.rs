//! What a workload says of evaluations and neighbours is what every policy pays.

use saturn_sim::policy::{MORE_POLICIES, POLICIES, Policy};

use crate::cases::{case, outcome};

fn all() -> impl Iterator<Item = &'static dyn Policy> {
    POLICIES.into_iter().chain(MORE_POLICIES)
}

/// Tasks of 1,000 s on one device, with launches of 40 s and checkpoints of 10 s.
fn tasks(count: u64, gpus: u32, costs: &str, more: &str) -> String {
    format!(
        "[costs]\nload_s = 40\nsave_s = 10\ncheckpoint_every_s = 1e8\n{costs}\n\
         [[nodes]]\ngpus = {gpus}\n\
         [[tasks]]\nname = \"t\"\ncount = {count}\nsteps = 1000\n\
         step_s = {{ ddp = {{ 1 = 1.0 }} }}\n{more}\n"
    )
}

#[test]
fn evaluations_take_their_time_and_are_planned() {
    for (more, evaluations_s) in [
        ("evaluate = { every_steps = 300, takes_s = 20 }", 80.0),
        ("evaluate = { every_steps = 500, takes_s = 20 }", 40.0),
        ("evaluate = { takes_s = 20 }", 20.0),
        ("", 0.0),
    ] {
        let case = case(&tasks(1, 1, "", more));
        let expected_s = 1050.0 + evaluations_s;
        assert!((case.lower_bound_s().unwrap() - expected_s).abs() < 1e-3, "{more}");
        for policy in all() {
            let makespan_s = outcome(policy.name(), &case).makespan_s();
            // A solve takes a second.
            let range = expected_s - 1e-6..expected_s + 1.5;
            assert!(range.contains(&makespan_s), "{}, {more}: {makespan_s} s", policy.name());
        }
    }
}

#[test]
fn tasks_of_one_model_may_evaluate_differently() {
    let text = "costs = { load_s = 40, save_s = 10 }\n[[nodes]]\ngpus = 2\n\
                [[tasks]]\nname = \"plain\"\nsteps = 100\nmodel = \"m\"\n\
                [[tasks]]\nname = \"evaluated\"\nsteps = 100\nmodel = \"m\"\n\
                evaluate = { every_steps = 10, takes_s = 30 }\n";
    let table = saturn_sim::Table::from_csv("model,gpus,nodes,technique,step_s\nm,1,1,ddp,1\n");
    let file = saturn_sim::WorkloadFile::parse(&format!("profile = \"p.csv\"\n{text}"));
    let case = file.unwrap().case(Some(&table.unwrap())).unwrap();
    for policy in ["saturn", "fifo"] {
        let ends_s = outcome(policy, &case).ends_s;
        assert!((150.0..152.0).contains(&ends_s[0]), "{policy}: {ends_s:?}");
        assert!((450.0..452.0).contains(&ends_s[1]), "{policy}: {ends_s:?}");
    }
}

#[test]
fn steps_take_longer_beside_a_neighbour_and_only_then() {
    let is_practice = |policy: &&dyn Policy| policy.name().starts_with("current-practice");
    let beside = "neighbours = 1.5";
    for policy in all().filter(|policy| !is_practice(policy)) {
        let alone_s = outcome(policy.name(), &case(&tasks(1, 2, beside, ""))).makespan_s();
        assert!((1050.0..1051.5).contains(&alone_s), "{}: {alone_s} s", policy.name());
        let both_s = outcome(policy.name(), &case(&tasks(2, 2, beside, ""))).makespan_s();
        assert!((1550.0..1552.0).contains(&both_s), "{}: {both_s} s", policy.name());
    }
    // Two train beside each other, then the third alone.
    let last_s = outcome("fifo", &case(&tasks(3, 2, beside, ""))).makespan_s();
    assert!((2600.0..2601.0).contains(&last_s), "{last_s} s");
    // Within a step of 60 s: 210 s at half the pace are 1.75 steps, and 3.25 are left.
    let long = "[costs]\nload_s = 40\nsave_s = 10\nneighbours = 2\n[[nodes]]\ngpus = 2\n\
                [[tasks]]\nname = \"long\"\nsteps = 5\nstep_s = { ddp = { 1 = 60 } }\n\
                [[tasks]]\nname = \"short\"\nsteps = 1\nstep_s = { ddp = { 1 = 100 } }\n";
    let ends_s = outcome("fifo", &case(long)).ends_s;
    assert!((ends_s[1] - 250.0).abs() < 1e-6 && (ends_s[0] - 455.0).abs() < 1e-6, "{ends_s:?}");
    // Once the neighbour has ended, steps take as long as alone.
    let short = "[[tasks]]\nname = \"short\"\nsteps = 100\nstep_s = { ddp = { 1 = 1.0 } }\n";
    let two = case(&format!("{}{short}", tasks(1, 2, beside, "")));
    let ends_s = outcome("fifo", &two).ends_s;
    // Both launch at once; for 160 s after loading (100 slow steps and a checkpoint) they share.
    let shared_s = 100.0 * 1.5 + 10.0;
    assert!((ends_s[0] - (1050.0 + shared_s * (1.0 - 1.0 / 1.5))).abs() < 2.0, "{ends_s:?}");
}
