//! What is left of a run on further nodes: strategies that only they can hold, tasks' deadlines, and
//! prices.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use saturn_core::{
    Candidate, Cluster, HeldDevices, Node, Objective, Problem, ProblemTask, Running, Wide, check,
};
use saturn_solver::{
    Clock, FrozenClock, Further, ManyPrices, RestOfRun, RestPlans, num_left_out, one_price,
    solve_further, solve_rest, widened, with_further,
};

fn candidate(gpus: u32, runtime_s: f64) -> Candidate {
    let (technique, gpu_type) = ("ddp".into(), Some("gpu".into()));
    Candidate {
        technique,
        gpus,
        gpu_type,
        runtime_s,
        pack: true,
        host_bytes: 0,
        relative_error: 0.0,
    }
}

/// Two tasks on a node of two devices. The first takes 100 s on one device, the second 40 s.
fn two_tasks() -> Problem {
    let task = |name: &str, runtime_s| ProblemTask::new(name, vec![candidate(1, runtime_s)]);
    let cluster = Cluster { nodes: vec![Node::new("own", 2, "gpu")] };
    Problem::new(cluster, vec![task("long", 100.0), task("short", 40.0)])
}

fn rest<'a>(problem: &'a Problem, wide: &'a [Wide]) -> RestOfRun<'a> {
    RestOfRun {
        problem,
        wide,
        objective: Objective::Makespan,
        max_switches: 0,
        min_switch_gain: 0.0,
        min_move_gain: 0.0,
        min_move_gain_s: 0.0,
        warm_start: None,
    }
}

/// On four devices the first task takes 30 s.
fn on_four(across: Option<u32>) -> Wide {
    Wide { task: Some(0), group: 0, candidate: candidate(4, 30.0), across, max_nodes: 4 }
}

#[test]
fn tasks_that_run_are_moved_for_what_the_run_itself_asks() {
    let mut problem = two_tasks();
    problem.tasks[1].strategies[0].runtime_s = 100.0;
    let long = &mut problem.tasks[0];
    long.strategies.push(candidate(2, 60.0));
    long.switch_cost_s = Some(1.0);
    long.running = Some(Running {
        technique: "ddp".to_owned(),
        gpus: 2,
        gpu_type: Some("gpu".to_owned()),
        placement: vec![HeldDevices { node: "own".to_owned(), devices: vec![0, 1] }],
        movable: true,
    });
    let node = Node::new("more", 2, "gpu");
    let makespan_s = |(min_move_gain, min_move_gain_s)| {
        let rest = RestOfRun { min_move_gain, min_move_gain_s, ..rest(&problem, &[]) };
        let further = Further { node: &node, counts: &[0] };
        let found = solve_further(&rest, further, 0, &FrozenClock, &mut |_| {}).unwrap();
        found[0].plan.makespan_s
    };
    // On one device it ends after 101 s, beside the other task; left alone it ends at 60 s, and the
    // other at 160 s.
    let found: Vec<f64> = [(0.3, 5.0), (0.4, 5.0), (0.0, 60.0)].map(makespan_s).to_vec();
    assert_eq!(found, [101.0, 160.0, 160.0]);
}

fn makespans_s(problem: &Problem, wide: &[Wide], gpus: u32) -> Vec<f64> {
    let node = Node::new("more", gpus, "gpu");
    let further = Further { node: &node, counts: &[0, 1] };
    let found = solve_further(&rest(problem, wide), further, 0, &FrozenClock, &mut |_| {}).unwrap();
    let on = with_further(&widened(problem, wide, &node), &node, 1);
    check(&on, &found[1].plan).unwrap();
    found.iter().map(|size| size.plan.makespan_s).collect()
}

#[test]
fn further_nodes_hold_strategies_that_the_runs_nodes_cannot() {
    let problem = two_tasks();
    assert_eq!(makespans_s(&problem, &[], 4), [100.0, 100.0]);
    // Within a node of four devices, and across two nodes of two.
    assert_eq!(makespans_s(&problem, &[on_four(None)], 4), [100.0, 40.0]);
    // Across two nodes of two devices: the second task waits, or goes first.
    assert_eq!(makespans_s(&problem, &[on_four(Some(2))], 2), [100.0, 70.0]);
    // A gang of one node is no gang of two nodes, and the reverse.
    assert_eq!(makespans_s(&problem, &[on_four(None)], 2), [100.0, 100.0]);
    assert_eq!(makespans_s(&problem, &[on_four(Some(2))], 4), [100.0, 100.0]);
    // No gang takes more nodes than the run allows.
    let narrow = Wide { max_nodes: 1, ..on_four(Some(2)) };
    assert_eq!(makespans_s(&problem, &[narrow], 2), [100.0, 100.0]);
    // The run's own two nodes of two devices are not taken for one of four.
    let mut two_nodes = two_tasks();
    two_nodes.cluster.nodes.push(Node::new("other", 2, "gpu"));
    assert_eq!(makespans_s(&two_nodes, &[on_four(None)], 4), [100.0, 40.0]);
}

#[test]
fn strategies_that_are_left_out_are_counted_once_for_a_group() {
    let other = Wide { task: Some(1), ..on_four(None) };
    let unusable = Wide { task: None, group: 1, ..on_four(None) };
    let wide = [on_four(None), other, unusable];
    let node = |gpus| Node::new("more", gpus, "gpu");
    assert_eq!(num_left_out(&wide, None), 2);
    assert_eq!(num_left_out(&wide, Some(&node(2))), 2);
    assert_eq!(num_left_out(&wide, Some(&node(4))), 1);
    assert_eq!(num_left_out(&wide, Some(&Node::new("more", 4, "other"))), 2);
}

/// Plans of the two tasks, due at a time, and of both if only `kept` are left.
fn plans(due_s: f64, kept: Option<usize>) -> RestPlans {
    let mut all = two_tasks();
    all.cluster.nodes[0].gpus = 1;
    for task in &mut all.tasks {
        task.deadline_s = Some(due_s);
    }
    let mut left = all.clone();
    left.tasks.truncate(kept.unwrap_or(2));
    let node = Node::new("more", 1, "gpu");
    let further = Further { node: &node, counts: &[0, 1] };
    let (rest, whole) = (rest(&left, &[]), rest(&all, &[]));
    let mut rounds = Vec::new();
    let mut done = |sizes, of| rounds.push((sizes, of));
    let all = kept.map(|_| &whole);
    let found = solve_rest(&rest, all, further, 0, &FrozenClock, &mut done).unwrap();
    assert_eq!(rounds[..2], [(1, 2), (2, 2)]);
    found
}

#[test]
fn soft_deadlines_count_where_hard_deadlines_are_left_out() {
    let mut problem = two_tasks();
    problem.cluster.nodes[0].gpus = 1;
    problem.tasks[0].deadline_s = Some(10.0);
    let short = &mut problem.tasks[1];
    (short.deadline_s, short.late_price, short.most_late_s) = (Some(50.0), Some(1.0), Some(5.0));
    let node = Node::new("more", 1, "gpu");
    let further = Further { node: &node, counts: &[0] };
    let rest = rest(&problem, &[]);
    let found = solve_rest(&rest, None, further, 0, &FrozenClock, &mut |_, _| {}).unwrap();
    assert!(found.leaves_out_deadlines);
    let plan = &found.sizes[0].plan;
    let short = plan.assignments.iter().find(|one| one.task == 1).unwrap();
    assert!((short.end_s - 40.0).abs() < 0.5, "it comes before the task that is late in any case");
}

#[test]
fn deadlines_count_if_the_most_nodes_keep_them() {
    // One device takes 140 s, two take 100 s.
    let usable = |found: &RestPlans| {
        found.sizes.iter().map(|size| size.plan.is_usable()).collect::<Vec<_>>()
    };
    let found = plans(150.0, None);
    assert_eq!((usable(&found), &found.late[..]), (vec![true, true], &[][..]));
    let found = plans(120.0, None);
    assert_eq!((usable(&found), &found.late[..]), (vec![false, true], &[1][..]));
    assert!(!found.leaves_out_deadlines && found.with_all_tasks.is_none());
    let found = plans(90.0, None);
    assert_eq!((usable(&found), &found.late[..]), (vec![true, true], &[][..]));
    assert!(found.leaves_out_deadlines);
    // The long task alone keeps its deadline where both miss it.
    let found = plans(120.0, Some(1));
    assert_eq!((usable(&found), found.leaves_out_deadlines), (vec![true, true], false));
    assert!(found.with_all_tasks_is_late && !found.with_all_tasks.unwrap().plan.is_usable());
    // Deadlines that are left out of the sizes are left out of the run as it is.
    let found = plans(90.0, Some(1));
    assert!(found.leaves_out_deadlines && !found.with_all_tasks_is_late);
    assert!(found.with_all_tasks.unwrap().plan.is_usable());
}

/// A clock that Ctrl-C stops.
#[derive(Default)]
struct Stopped(AtomicBool);

impl Clock for Stopped {
    fn elapsed_s(&self) -> f64 {
        0.0
    }

    fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_size_without_a_plan_is_unexplained_if_ctrl_c_came_before_the_reason() {
    let mut all = two_tasks();
    all.cluster.nodes[0].gpus = 1;
    for task in &mut all.tasks {
        task.deadline_s = Some(120.0);
    }
    let node = Node::new("more", 1, "gpu");
    // One device misses the deadlines, two keep them.
    let further = Further { node: &node, counts: &[0, 1] };
    let whole = rest(&all, &[]);
    let stopped_after = |most: usize| {
        let (clock, mut num_done) = (Stopped::default(), 0);
        let mut done = |_, _| {
            num_done += 1;
            clock.0.store(num_done >= most, Ordering::Relaxed);
        };
        solve_rest(&whole, Some(&whole), further, 0, &clock, &mut done).unwrap()
    };
    let found = stopped_after(2);
    assert_eq!((&found.late[..], &found.unexplained[..]), (&[][..], &[1][..]));
    assert!(found.with_all_tasks.is_none());
    let found = stopped_after(4);
    assert_eq!((&found.late[..], &found.unexplained[..]), (&[1][..], &[][..]));
    assert!(found.with_all_tasks_is_unexplained && !found.with_all_tasks_is_late);
    let found = stopped_after(9);
    assert!(!found.with_all_tasks_is_unexplained && found.with_all_tasks_is_late);
}

#[test]
fn one_price_holds_for_equal_nodes() {
    let node = |gpus, price_per_hour| Node { price_per_hour, ..Node::new("n", gpus, "gpu") };
    let present = [node(2, 3.0), node(2, 3.0)];
    assert_eq!(one_price(&present, Some(&node(2, 3.0)), None), Ok(Some(3.0)));
    assert_eq!(one_price(&present, None, None), Ok(Some(3.0)));
    assert_eq!(one_price(&present, Some(&node(2, 0.0)), None), Ok(None));
    assert_eq!(one_price(&present, Some(&node(2, 4.0)), None), Err(ManyPrices));
    // A price that is asked for holds whatever the nodes say, but not for nodes of two sizes.
    assert_eq!(one_price(&present, Some(&node(2, 4.0)), Some(5.0)), Ok(Some(5.0)));
    assert_eq!(one_price(&present, Some(&node(4, 3.0)), Some(5.0)), Err(ManyPrices));
    assert_eq!(one_price(&[node(2, 1.0), node(4, 1.0)], None, Some(5.0)), Err(ManyPrices));
}
