//! Limits, interruption and impossible problems are answered as data.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "time limits are tested against a clock")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use saturn_core::{HeldDevices, Node, PlanStatus, Problem, ProblemTask, Running, SolveEnd};
use saturn_solver::{Backend, Clock, FrozenClock, Objective, Options, SolveError, solve};

struct WallClock(Instant);

impl Clock for WallClock {
    fn elapsed_s(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Interrupts after it has been asked so many times.
struct Impatient(AtomicU64);

impl Clock for Impatient {
    fn elapsed_s(&self) -> f64 {
        0.0
    }

    fn is_interrupted(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > 20
    }
}

/// Stands still until it has been asked for the time so many times. From then on no time is left.
struct Leaping {
    looks: u64,
    asked: AtomicU64,
}

impl Leaping {
    fn after(looks: u64) -> Self {
        Self { looks, asked: AtomicU64::new(0) }
    }
}

impl Clock for Leaping {
    fn elapsed_s(&self) -> f64 {
        if self.asked.fetch_add(1, Ordering::Relaxed) < self.looks { 0.0 } else { 1e12 }
    }
}

/// Twelve tasks on two nodes of eight GPUs, with no two runtimes alike.
fn problem() -> Problem {
    let tasks: Vec<String> = (0..12)
        .map(|task| {
            let strategies: Vec<String> = [1u32, 2, 3, 4, 6, 8]
                .iter()
                .map(|gpus| {
                    let work = 1000.0 + 137.0 * f64::from(task);
                    let runtime = work * (0.08 + 0.92 / f64::from(*gpus));
                    format!(r#"{{"technique": "ddp", "gpus": {gpus}, "runtime_s": {runtime}}}"#)
                })
                .collect();
            format!(r#"{{"name": "t{task}", "strategies": [{}]}}"#, strategies.join(","))
        })
        .collect();
    let text = format!(
        r#"{{"cluster": {{"nodes": [{{"gpus": 8}}, {{"gpus": 8}}]}}, "tasks": [{}]}}"#,
        tasks.join(",")
    );
    Problem::from_json(&text).unwrap()
}

#[test]
fn a_time_limit_is_kept_by_every_backend() {
    for &backend in Backend::ALL {
        let clock = WallClock(Instant::now());
        let options = Options { backend, time_limit_s: 0.5, ..Options::default() };
        let plan = solve(&problem(), &options, &clock).unwrap();
        assert!(plan.is_usable());
        // Six times its limit: a busy machine may give a thread nothing for that long.
        assert!(clock.elapsed_s() < 3.0, "{backend} took {} s", clock.elapsed_s());
        assert!(plan.solve_s > 0.0);
    }
}

#[test]
fn no_time_means_no_plan_but_a_bound() {
    let options = Options { time_limit_s: 0.0, ..Options::default() };
    let plan = solve(&problem(), &options, &FrozenClock).unwrap();
    assert_eq!(plan.status, PlanStatus::TimedOut);
    assert!(plan.lower_bound_s > 0.0);
}

#[test]
fn no_time_is_the_reason_for_no_plan() {
    let options = Options { time_limit_s: 0.0, ..Options::default() };
    for objective in Objective::ALL {
        let options = Options { objective: *objective, ..options.clone() };
        let plan = solve(&problem(), &options, &FrozenClock).unwrap();
        let reasons: Vec<&str> = plan.reasons.iter().map(|one| one.reason.as_str()).collect();
        assert_eq!(reasons, ["the time limit was reached before the search began"], "{objective}");
    }
}

/// However much of the time the bounds take, a plan takes a moment.
#[test]
fn a_plan_comes_even_if_the_time_is_over_before_the_search_begins() {
    let untimed = problem();
    let mut forbidden = problem();
    forbidden.tasks[2].not_nodes = vec!["n1".to_owned()];
    let mut timed = problem();
    timed.cluster.nodes[1].available_from_s = 100.0;
    timed.cluster.nodes[1].available_until_s = Some(9_000.0);
    timed.tasks.truncate(5);
    for (name, problem) in [("untimed", untimed), ("forbidden", forbidden), ("timed", timed)] {
        for backend in [Backend::Auto, Backend::Search, Backend::Milp] {
            for &objective in Objective::ALL {
                let options = Options { backend, objective, ..Options::default() };
                for looks in (0..12).chain([20, 40, 80]) {
                    let plan = solve(&problem, &options, &Leaping::after(looks)).unwrap();
                    assert!(plan.is_usable(), "{name} {backend} {objective} {looks}: {plan:?}");
                }
            }
        }
    }
}

/// So many tasks that are alike, on so many nodes.
fn large_problem(num_tasks: usize, num_nodes: usize) -> Problem {
    let mut large = problem();
    let task = large.tasks[0].clone();
    let named = |index: usize| ProblemTask { name: format!("t{index}"), ..task.clone() };
    large.tasks = (0..num_tasks).map(named).collect();
    let node = |index: usize| Node::new(format!("n{index}"), 8, "gpu");
    large.cluster.nodes = (0..num_nodes).map(node).collect();
    large
}

/// To check a plan of thousands of tasks takes some hundredths of a second. At 0.97 s the search for it
/// is over.
#[test]
fn a_search_leaves_time_for_the_check_of_its_plan() {
    struct Standing(AtomicU64);
    impl Clock for Standing {
        fn elapsed_s(&self) -> f64 {
            let is_over = self.0.fetch_add(1, Ordering::Relaxed) > 20_000;
            if is_over { f64::INFINITY } else { 0.97 }
        }
    }
    let clock = Standing(AtomicU64::new(0));
    let options = Options { time_limit_s: 1.0, threads: 1, ..Options::default() };
    let plan = solve(&large_problem(10_000, 100), &options, &clock).unwrap();
    assert_eq!((plan.status, plan.ended), (PlanStatus::Feasible, SolveEnd::Limit));
    let num_looks = clock.0.into_inner();
    assert!(num_looks < 1_000, "{num_looks} looks");
}

/// The plan in which all that runs stays was found. The bound of plans with moves would take a while.
#[test]
fn no_moves_are_looked_for_when_the_time_is_over() {
    let plan_of = |num_tasks: usize| {
        let mut large = large_problem(num_tasks, 400);
        large.tasks[0].switch_cost_s = Some(10.0);
        large.tasks[0].running = Some(Running {
            technique: "ddp".to_owned(),
            gpus: 8,
            gpu_type: None,
            placement: vec![HeldDevices { node: "n0".to_owned(), devices: (0..8).collect() }],
            movable: true,
        });
        let options = Options { min_move_gain: 0.02, ..Options::default() };
        solve(&large, &options, &Leaping::after(0)).unwrap()
    };
    let (small, large) = (plan_of(100), plan_of(400));
    assert!(small.is_usable() && small.lower_bound_s > 0.0, "{}", small.lower_bound_s);
    assert!(large.is_usable() && large.lower_bound_s == 0.0, "{}", large.lower_bound_s);
}

/// A plan of so many tasks on so many nodes takes longer than a moment.
#[test]
fn a_large_plan_is_not_built_when_the_time_is_over() {
    let large = large_problem(1_000, 400);
    let options = Options { objective: Objective::Completion, ..Options::default() };
    let plan = solve(&large, &options, &Leaping::after(0)).unwrap();
    assert_eq!((plan.status, plan.ended), (PlanStatus::TimedOut, SolveEnd::Limit));
    assert!(!plan.reasons.is_empty() && plan.completion_bound_s > 0.0, "{plan:?}");
    assert!(solve(&large, &options, &Leaping::after(100_000)).unwrap().is_usable());
}

/// Under a clock that stands still the time limit is nothing to go by: a program that HiGHS may work on
/// for that long would be solved on a quick machine alone.
#[test]
fn where_moves_are_the_limit_the_time_limit_changes_no_plan() {
    let mut problem = problem();
    problem.tasks.truncate(5);
    for (index, node) in problem.cluster.nodes.iter_mut().enumerate() {
        node.price_per_hour = 1.0 + index as f64;
    }
    // Three tasks on two devices: a linear program finds the shares of their pieces.
    let mut switched = self::problem();
    switched.tasks.truncate(3);
    switched.cluster.nodes.truncate(1);
    switched.cluster.nodes[0].gpus = 2;
    switched.tasks.iter_mut().for_each(|task| task.switch_cost_s = Some(5.0));
    let cases = [
        (&problem, Objective::Cost, 0),
        (&problem, Objective::Completion, 0),
        (&switched, Objective::Makespan, 1),
    ];
    for (problem, objective, max_switches) in cases {
        let options =
            Options { objective, max_switches, max_moves: Some(20_000), ..Options::default() };
        let plan = |time_limit_s: f64| {
            solve(problem, &Options { time_limit_s, ..options.clone() }, &FrozenClock).unwrap()
        };
        assert_eq!(plan(1e-12), plan(1e6), "{objective}");
    }
}

/// Two tasks go on as they run, one on each of two nodes that cost something: there is nothing to
/// search, and the search proves nothing.
#[test]
fn a_search_that_has_nothing_left_to_try_does_not_end_at_a_limit() {
    let mut problem = problem();
    problem.tasks.truncate(2);
    for (task, node) in problem.tasks.iter_mut().zip(&mut problem.cluster.nodes) {
        node.price_per_hour = 1.0;
        task.running = Some(Running {
            technique: "ddp".to_owned(),
            gpus: 1,
            gpu_type: None,
            placement: vec![HeldDevices { node: node.name.clone(), devices: vec![0] }],
            movable: false,
        });
    }
    let options =
        Options { backend: Backend::Search, objective: Objective::Cost, ..Options::default() };
    let plan = solve(&problem, &options, &FrozenClock).unwrap();
    assert_eq!((plan.status, plan.ended), (PlanStatus::Feasible, SolveEnd::Complete));
    // There was no time to see that.
    let plan = solve(&problem, &options, &Leaping::after(5)).unwrap();
    assert_eq!((plan.status, plan.ended), (PlanStatus::Feasible, SolveEnd::Limit));
    // More moves might do more.
    let options = Options { max_moves: Some(100), ..options };
    let plan = solve(&problem, &options, &FrozenClock).unwrap();
    assert_eq!((plan.status, plan.ended), (PlanStatus::Feasible, SolveEnd::Limit));
}

#[test]
fn an_interrupted_solve_gives_what_it_has() {
    let options = Options { time_limit_s: 1e6, ..Options::default() };
    let plan = solve(&problem(), &options, &Impatient(AtomicU64::new(0))).unwrap();
    assert_eq!(plan.status, PlanStatus::Feasible);
    assert_eq!(plan.assignments.len(), 12);
}

#[test]
fn a_task_that_fits_nowhere_makes_the_problem_infeasible() {
    let mut problem = problem();
    problem.tasks[3].strategies.retain(|one| one.gpus == 8);
    problem.tasks[3].strategies[0].gpus = 17;
    let plan = solve(&problem, &Options::default(), &FrozenClock).unwrap();
    assert_eq!(plan.status, PlanStatus::Infeasible);
    assert!(plan.to_json(&problem).contains(r#""task":"t3""#));
}

#[test]
fn invalid_problems_and_options_are_errors() {
    let mut broken = problem();
    broken.tasks[0].strategies[0].runtime_s = f64::NAN;
    let error = solve(&broken, &Options::default(), &FrozenClock).unwrap_err();
    assert!(matches!(error, SolveError::Problem(_)), "{error}");
    for options in [
        Options { time_limit_s: f64::NAN, ..Options::default() },
        Options { time_limit_s: -1.0, ..Options::default() },
        Options { threads: 0, ..Options::default() },
    ] {
        let error = solve(&problem(), &options, &FrozenClock).unwrap_err();
        assert!(matches!(error, SolveError::Option { .. }), "{error}");
    }
}

#[test]
fn names_are_parsed_and_others_refused() {
    for &backend in Backend::ALL {
        assert_eq!(backend.name().parse::<Backend>().unwrap(), backend);
    }
    assert_eq!("completion".parse::<Objective>().unwrap(), Objective::Completion);
    assert_eq!(
        "gurobi".parse::<Backend>().unwrap_err().to_string(),
        "`solver` is `gurobi`: expected one of `auto` `milp` `search` `current-practice` \
         `optimus` `max` `min` `random`"
    );
}

#[test]
fn a_warm_start_is_never_made_worse() {
    let options = Options { max_moves: Some(200_000), ..Options::default() };
    let good = solve(&problem(), &options, &FrozenClock).unwrap();
    let again = Options {
        backend: Backend::Search,
        max_moves: Some(1),
        warm_start: Some(good.clone()),
        ..Options::default()
    };
    let warm = solve(&problem(), &again, &FrozenClock).unwrap();
    assert!(warm.makespan_s <= good.makespan_s);
}

#[test]
fn a_warm_start_of_another_problem_is_used_as_far_as_it_fits() {
    let options = Options { max_moves: Some(20_000), ..Options::default() };
    let plan = solve(&problem(), &options, &FrozenClock).unwrap();
    let mut smaller = problem();
    smaller.cluster.nodes.pop();
    smaller.tasks.truncate(7);
    let again = Options { warm_start: Some(plan), ..options };
    assert!(solve(&smaller, &again, &FrozenClock).unwrap().is_usable());
}

#[test]
fn current_practice_runs_one_task_at_a_time() {
    let options = Options { backend: Backend::CurrentPractice, ..Options::default() };
    let plan = solve(&problem(), &options, &FrozenClock).unwrap();
    for (index, one) in plan.assignments.iter().enumerate() {
        for other in &plan.assignments[index + 1..] {
            let apart = other.start_s >= one.end_s - 1e-6;
            assert!(apart || other.gang[0].node != one.gang[0].node);
        }
    }
    assert!(plan.assignments.iter().all(|one| one.gang[0].devices.len() == 8));
}

#[test]
fn a_task_that_may_not_start_yet_holds_up_no_queue() {
    let task = |name: &str, runtime: u32, release: u32| {
        format!(
            r#"{{"name": "{name}", "release_s": {release},
                 "strategies": [{{"technique": "ddp", "gpus": 8, "runtime_s": {runtime}}}]}}"#
        )
    };
    let mut tasks = vec![task("tonight", 600, 36_000)];
    tasks.extend((0..5).map(|index| task(&format!("now-{index}"), 7_000, 0)));
    let text =
        format!(r#"{{"cluster": {{"nodes": [{{"gpus": 8}}]}}, "tasks": [{}]}}"#, tasks.join(","));
    let problem = Problem::from_json(&text).unwrap();
    let options = Options { backend: Backend::CurrentPractice, ..Options::default() };
    let plan = solve(&problem, &options, &FrozenClock).unwrap();
    let tonight = plan.assignments.iter().find(|one| one.task == 0).unwrap();
    assert!((tonight.start_s - 36_000.0).abs() < 1e-6, "{plan:?}");
    assert!((plan.makespan_s - 36_600.0).abs() < 1e-6, "{plan:?}");
}
