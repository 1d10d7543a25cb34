//! Plans for weighted completion whose last tasks end early too.

use saturn_core::{Plan, Problem};
use saturn_solver::{FrozenClock, Objective, Options, solve};

/// 48 tasks of different lengths and weights on six nodes.
fn many() -> Problem {
    let task = |index: u32| {
        let runtime_s = 20 + index * 37 % 101;
        let strategies: Vec<String> = [(1, 1.0), (2, 0.57), (4, 0.34)]
            .iter()
            .map(|(gpus, share)| {
                let runtime_s = f64::from(runtime_s) * share;
                format!(r#"{{"technique": "x", "gpus": {gpus}, "runtime_s": {runtime_s}}}"#)
            })
            .collect();
        let (strategies, weight) = (strategies.join(","), 1 + index * 7 % 4);
        format!(r#"{{"name": "t{index}", "weight": {weight}, "strategies": [{strategies}]}}"#)
    };
    let tasks: Vec<String> = (0..48).map(task).collect();
    let nodes = [r#"{"gpus": 4}"#; 6].join(",");
    let text = format!(r#"{{"cluster": {{"nodes": [{nodes}]}}, "tasks": [{}]}}"#, tasks.join(","));
    Problem::from_json(&text).unwrap()
}

#[test]
fn a_short_tail_costs_little_weighted_completion() {
    let problem = many();
    let with = |tail| {
        let options = Options {
            objective: Objective::Completion,
            max_moves: Some(150_000),
            tail,
            ..Options::default()
        };
        solve(&problem, &options, &FrozenClock).unwrap()
    };
    let free = with(None);
    let ends = |plan: &Plan| plan.makespan_s / free.lower_bound_s;
    let costs = |plan: &Plan| plan.completion_s / free.completion_s;
    println!("free: ends {:.3}", ends(&free));
    assert!(ends(&free) > 1.3);
    for tail in [1.3, 1.25] {
        let plan = with(Some(tail));
        println!("tail {tail}: ends {:.3}, costs {:.4}", ends(&plan), costs(&plan));
        assert!(ends(&plan) <= tail * (1.0 + 1e-9), "{tail}: {}", ends(&plan));
        assert!((1.0 - 1e-3..1.02).contains(&costs(&plan)), "{tail}: {}", costs(&plan));
        assert!(plan.tardiness == 0.0, "no task has a soft deadline of its own");
    }
    let refused = Options { tail: Some(1.2), ..Options::default() };
    assert!(solve(&problem, &refused, &FrozenClock).is_err(), "the makespan has no tail");
}
