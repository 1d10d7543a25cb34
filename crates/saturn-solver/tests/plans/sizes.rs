//! Plans for several numbers of nodes: never worse with more, right by brute force, within bounds.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{TINY, brute_force, cases, problems};
use proptest::prelude::*;
use saturn_core::{Candidate, Cluster, HeldDevices, Node, Problem, ProblemTask, Running, check};
use saturn_solver::{
    Clock, FrozenClock, Further, Objective, RestOfRun, Sized, longest, on_nodes, solve_further,
    solve_sizes, with_further,
};

fn sizes(problem: &Problem, node: &Node, counts: &[usize]) -> Vec<Sized> {
    solve_sizes(problem, node, counts, 0, &FrozenClock, &mut |_| {}).unwrap()
}

/// Drawn tasks, alike to every node; some may be switched.
fn pool() -> impl Strategy<Value = (Problem, Node)> {
    (problems(TINY), 1u32..4, any::<bool>()).prop_map(|(mut problem, gpus, may_switch)| {
        let node = Node::new("n", gpus, problem.cluster.nodes[0].gpu_type.clone());
        problem.cluster.nodes = vec![node.clone()];
        problem.deadline_s = None;
        for task in &mut problem.tasks {
            let strategies = std::mem::take(&mut task.strategies);
            *task = ProblemTask {
                switch_cost_s: may_switch.then_some(1.0),
                ..ProblemTask::new(task.name.clone(), strategies)
            };
            for one in &mut task.strategies {
                (one.gpus, one.gpu_type) = (one.gpus.min(gpus), None);
            }
        }
        (problem, node)
    })
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn more_nodes_are_never_longer_and_bounds_hold((problem, node) in pool()) {
        let found = sizes(&problem, &node, &[1, 2, 4]);
        let floor_s = longest(&problem).unwrap().1;
        for size in &found {
            prop_assert!(size.plan.is_usable());
            let on = on_nodes(&problem, &node, size.nodes);
            prop_assert!(check(&on, &size.plan).is_ok());
            prop_assert!(size.plan.lower_bound_s <= size.plan.makespan_s);
            prop_assert!(size.plan.lower_bound_s >= floor_s * (1.0 - 1e-9));
            // Whole tasks at their best, by trying all plans: a plan may only gain by switches.
            let best_s = brute_force(&on).0;
            prop_assert!(size.plan.makespan_s <= best_s * (1.0 + 1e-9), "{} > {best_s}", size.plan.makespan_s);
            prop_assert!(size.plan.lower_bound_s <= best_s * (1.0 + 1e-9));
        }
        for pair in found.windows(2) {
            prop_assert!(pair[1].plan.makespan_s <= pair[0].plan.makespan_s);
            // Of whole tasks they may be larger, by the part that switches must gain.
            let slack = if problem.tasks[0].switch_cost_s.is_some() { 0.02 } else { 0.0 };
            let least_s = pair[1].plan.lower_bound_s * (1.0 - slack);
            prop_assert!(least_s <= pair[0].plan.lower_bound_s);
        }
    }
}

/// Tasks of which each takes so many seconds on one device, and half on two.
fn halving(seconds: &[f64]) -> Problem {
    let candidate = |gpus: u32, runtime_s: f64| Candidate {
        technique: "ddp".into(),
        gpus,
        gpu_type: None,
        runtime_s,
        pack: true,
        host_bytes: 0,
        relative_error: 0.0,
    };
    let task = |(index, all_s): (usize, &f64)| ProblemTask {
        switch_cost_s: Some(1.0),
        ..ProblemTask::new(
            format!("t{index}"),
            vec![candidate(1, *all_s), candidate(2, all_s / 2.0)],
        )
    };
    Problem::new(Cluster::default(), seconds.iter().enumerate().map(task).collect())
}

#[test]
fn from_where_the_longest_task_bounds_nothing_changes() {
    let problem = halving(&[100.0, 60.0, 60.0, 20.0]);
    assert_eq!(longest(&problem), Some((0, 50.0)));
    let found = sizes(&problem, &Node::new("n", 2, "gpu"), &[1, 2, 3, 8, 16]);
    let ends_s: Vec<f64> = found.iter().map(|size| size.plan.makespan_s).collect();
    // The work of 240 device-seconds scales perfectly: nothing is lost on one node.
    assert!((ends_s[0] - 120.0).abs() < 1e-6, "{ends_s:?}");
    assert!(ends_s[1] < ends_s[0], "{ends_s:?}");
    for size in &found[2..] {
        assert!((size.plan.makespan_s - 50.0).abs() < 1e-6, "{ends_s:?}");
        assert!((size.plan.lower_bound_s - 50.0).abs() < 1e-6);
    }
}

#[test]
fn equal_seeds_give_equal_answers_and_what_does_not_fit_has_no_plan() {
    let problem = halving(&[70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0]);
    let node = Node::new("n", 2, "gpu");
    assert_eq!(sizes(&problem, &node, &[1, 2, 3]), sizes(&problem, &node, &[1, 2, 3]));
    let mut wide = halving(&[70.0, 60.0]);
    wide.tasks[0].strategies.remove(0);
    wide.tasks[0].strategies[0].gpus = 4;
    let found = sizes(&wide, &node, &[1, 2]);
    assert_eq!(found.iter().map(|size| size.plan.is_usable()).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn an_interrupted_clock_leaves_what_is_done() {
    struct Stopped(std::sync::atomic::AtomicUsize);
    impl Clock for Stopped {
        fn elapsed_s(&self) -> f64 {
            0.0
        }
        fn is_interrupted(&self) -> bool {
            self.0.load(std::sync::atomic::Ordering::Relaxed) >= 2
        }
    }
    let problem = halving(&[70.0, 60.0, 50.0, 40.0, 30.0]);
    let clock = Stopped(std::sync::atomic::AtomicUsize::new(0));
    let mut done = |sizes: usize| clock.0.store(sizes, std::sync::atomic::Ordering::Relaxed);
    let node = Node::new("n", 2, "gpu");
    let found = solve_sizes(&problem, &node, &[1, 2, 3, 4], 0, &clock, &mut done).unwrap();
    assert_eq!(found.iter().map(|size| size.nodes).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn further_nodes_join_those_of_a_run_whose_tasks_stay_where_they_are() {
    let mut problem = halving(&[70.0, 60.0, 50.0, 40.0]);
    // A name that a further node might have had.
    problem.cluster.nodes = vec![Node::new("further-0", 2, "gpu")];
    for task in &mut problem.tasks {
        for one in &mut task.strategies {
            one.gpu_type = Some("gpu".into());
        }
    }
    // The first task runs on one device, and can't be moved.
    problem.tasks[0].switch_cost_s = None;
    problem.tasks[0].running = Some(Running {
        technique: "ddp".to_owned(),
        gpus: 1,
        gpu_type: Some("gpu".to_owned()),
        placement: vec![HeldDevices { node: "further-0".to_owned(), devices: vec![1] }],
        movable: false,
    });
    let rest = |warm_start| RestOfRun {
        problem: &problem,
        wide: &[],
        objective: Objective::Makespan,
        max_switches: 1,
        min_switch_gain: 0.02,
        min_move_gain: 0.0,
        min_move_gain_s: 0.0,
        warm_start,
    };
    let node = Node::new("n", 2, "gpu");
    let solve = |counts: &[usize], rest: &RestOfRun| {
        let further = Further { node: &node, counts };
        solve_further(rest, further, 0, &FrozenClock, &mut |_| {}).unwrap()
    };
    let found = solve(&[0, 1, 3], &rest(None));
    assert_eq!(found.iter().map(|size| size.nodes).collect::<Vec<_>>(), [1, 2, 4]);
    for (size, further) in found.iter().zip([0, 1, 3]) {
        let on = with_further(&problem, &node, further);
        assert_eq!(on.cluster.nodes.len(), size.nodes);
        check(&on, &size.plan).unwrap();
        let first = size.plan.assignments.iter().find(|one| one.task == 0).unwrap();
        assert_eq!((first.gang[0].node, &first.gang[0].devices[..]), (0, &[1][..]));
    }
    let ends_s: Vec<f64> = found.iter().map(|size| size.plan.makespan_s).collect();
    // 220 device-seconds on two devices; the running task holds one of them for 70 s to the end.
    assert!(ends_s[0] >= 110.0 && ends_s.is_sorted_by(|a, b| a >= b), "{ends_s:?}");
    assert!((ends_s[2] - 70.0).abs() < 1e-6, "the task that runs bounds it: {ends_s:?}");
    // The plan in force is never made worse.
    let again = solve(&[0], &rest(Some(&found[0].plan)));
    assert!(again[0].plan.makespan_s <= ends_s[0]);
}
