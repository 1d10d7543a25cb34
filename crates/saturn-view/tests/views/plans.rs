//! Tests of plans of planning problems: as text, and as a page.

use saturn_core::{
    Objective, Outcome, Plan, PlanStatus, Problem, Reason, Refutation, Robust, SolveEnd,
};
use saturn_view::{Paint, plan_html, plan_text};

fn problem() -> Problem {
    Problem::from_json(
        r#"{"cluster": {"nodes": [{"name": "big", "gpus": 4}, {"name": "small", "gpus": 2}]},
            "tasks": [
              {"name": "gpt2-lr1e-5", "strategies": [{"technique": "fsdp", "gpus": 4, "runtime_s": 5210}]},
              {"name": "vit <large>", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 9000}]},
              {"name": "gpt2-with-a-very-long-name-for-a-task", "strategies":
                [{"technique": "pipeline", "gpus": 2, "runtime_s": 4100.5}]},
              {"name": "t", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 40}]}
            ]}"#,
    )
    .unwrap()
}

fn plan() -> Plan {
    let place = |task: usize, node: usize, devices: &[u32], start_s: f64, end_s: f64| {
        saturn_core::Assignment {
            task,
            strategy: 0,
            gang: vec![saturn_core::Placement { node, devices: devices.to_vec() }],
            share: saturn_core::WHOLE,
            start_s,
            end_s,
        }
    };
    let assignments = vec![
        place(0, 0, &[0, 1, 2, 3], 0.0, 5210.0),
        place(1, 1, &[0], 0.0, 9000.0),
        place(3, 1, &[1], 0.0, 40.0),
        place(2, 0, &[0, 1], 5210.0, 9310.5),
    ];
    Plan {
        status: PlanStatus::Optimal,
        ended: SolveEnd::Complete,
        lower_bound_s: 9310.5,
        solve_s: 0.21,
        ..Plan::of(&problem(), Objective::Makespan, assignments)
    }
}

#[test]
fn the_script_is_a_right_plan() {
    assert_eq!(saturn_core::check(&problem(), &plan()), Ok(()));
}

#[test]
fn a_plan_as_text() {
    insta::assert_snapshot!(plan_text(&problem(), &plan(), Some(22_000.0), 100, Paint::PLAIN));
}

#[test]
fn what_drawn_runtimes_say_is_told() {
    let value = |value| Outcome { missed_s: 0.0, tardiness: 0.0, value };
    let mut robust = Robust {
        draws: 200,
        plans: 9,
        quantile: 0.8,
        outcome: value(9_600.0),
        best_value: 9_000.0,
        best_outcome: Outcome { missed_s: 60.0, tardiness: 2.5, value: 12_000.0 },
    };
    let told = |robust: &Robust| {
        let plan = Plan { robust: Some(Box::new(robust.clone())), ..plan() };
        let text = plan_text(&problem(), &plan, None, 100, Paint::PLAIN);
        text.lines().find(|line| line.contains("draws")).map(str::to_owned).unwrap()
    };
    assert_eq!(
        told(&robust),
        "in 80.0 % of 200 draws of runtimes: at most makespan 2 h 40 min; the best plan as planned \
         (makespan 2 h 30 min) comes to deadlines missed by 1 min 00 s, tardiness 2.5, makespan 3 h 20 min"
    );
    robust.best_outcome = robust.outcome;
    assert_eq!(
        told(&robust),
        "in 80.0 % of 200 draws of runtimes: at most makespan 2 h 40 min; none of 9 plans does better"
    );
}

#[test]
fn a_plan_on_a_narrow_terminal() {
    let text = plan_text(&problem(), &plan(), None, 60, Paint::PLAIN);
    for line in text.lines().skip(1) {
        assert!(saturn_view::text::width(line) <= 60, "{line}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn no_plan_says_why() {
    let mut problem = problem();
    problem.tasks[0].strategies[0].gpus = 16;
    let refutation = Some(Refutation::NoPlace);
    let reason =
        |(task, reason)| Reason { task: Some(task), reason, refutation: refutation.clone() };
    let plan = Plan {
        status: PlanStatus::Infeasible,
        reasons: problem.unplaceable().into_iter().map(reason).collect(),
        ..Plan::none(Objective::Makespan)
    };
    insta::assert_snapshot!(plan_text(&problem, &plan, None, 100, Paint::PLAIN));
    assert!(plan_html(&problem, &plan, None, "none").contains("No plan"));
    let given_up = Plan { status: PlanStatus::TimedOut, ended: SolveEnd::Complete, ..plan.clone() };
    let text = plan_text(&problem, &given_up, None, 100, Paint::PLAIN);
    assert!(text.contains("no plan was found after"), "{text}");
    let cut_short = Plan { ended: SolveEnd::Limit, ..given_up };
    let text = plan_text(&problem, &cut_short, None, 100, Paint::PLAIN);
    assert!(text.contains("timed out without a plan after"), "{text}");
}

#[test]
fn a_plan_as_a_page() {
    let page = plan_html(&problem(), &plan(), Some(22_000.0), "a <plan>");
    assert!(
        page.contains("a &lt;plan&gt;") && !page.contains("<large>") && !page.contains("http:")
    );
    let from = page.find("<section>").unwrap();
    let to = page.find("<footer>").unwrap();
    insta::assert_snapshot!(page[from..to].replace("><", ">\n<"));
}

/// A problem with every kind of fact, and its cheapest plan.
fn bound_plan() -> (Problem, Plan) {
    let problem = Problem::from_json(
        r#"{"cluster": {"nodes": [
              {"name": "home", "gpus": 2, "price_per_hour": 3600},
              {"name": "spot", "gpus": 2, "price_per_hour": 360.5, "available_from_s": 5,
               "available_until_s": 80}]},
            "deadline_s": 200,
            "tasks": [
              {"name": "old", "running": {"technique": "ddp", "gpus": 1,
                 "placement": [{"node": "home", "devices": [1]}]},
               "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 30}]},
              {"name": "base <1>", "release_s": 2, "weight": 2.5, "not_nodes": ["home"],
               "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 10}]},
              {"name": "tuned", "after": ["base <1>"], "only_nodes": ["spot"], "deadline_s": 60,
               "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 10}]}]}"#,
    )
    .unwrap();
    let place = |task: usize, node: usize, devices: &[u32], start_s: f64, end_s: f64| {
        saturn_core::Assignment {
            task,
            strategy: 0,
            gang: vec![saturn_core::Placement { node, devices: devices.to_vec() }],
            share: saturn_core::WHOLE,
            start_s,
            end_s,
        }
    };
    let assignments = vec![
        place(0, 0, &[1], 0.0, 30.0),
        place(1, 1, &[0], 5.0, 15.0),
        place(2, 1, &[0, 1], 15.0, 25.0),
    ];
    let plan = Plan {
        cost_bound: 31.0,
        lower_bound_s: 30.0,
        solve_s: 0.5,
        ..Plan::of(&problem, Objective::Cost, assignments)
    };
    (problem, plan)
}

#[test]
fn limits_and_cost_are_told() {
    let (problem, plan) = bound_plan();
    assert_eq!(saturn_core::check(&problem, &plan), Ok(()));
    insta::assert_snapshot!(plan_text(&problem, &plan, None, 120, Paint::PLAIN));
    let page = plan_html(&problem, &plan, None, "bound");
    assert!(!page.contains("<1>"));
    let from = page.find("<div class=\"tiles\">").unwrap();
    let to = page.find("<section>").unwrap();
    let table = page.find("<h2>Tasks").unwrap();
    let end = page.find("<footer>").unwrap();
    insta::assert_snapshot!(
        format!("{}\n{}", &page[from..to], &page[table..end]).replace("><", ">\n<")
    );
}

/// The same problem, with its last task in two segments and a switch that costs 100 s.
#[test]
fn segments_say_what_share_of_their_task_they_are() {
    let mut problem = problem();
    problem.tasks[2].switch_cost_s = Some(100.0);
    let mut plan = plan();
    plan.status = PlanStatus::Feasible;
    let whole = plan.assignments.pop().unwrap();
    let middle = whole.start_s + 0.375 * 4100.5;
    let first = saturn_core::Assignment { share: 0.375, end_s: middle, ..whole.clone() };
    let end_s = middle + 0.625 * 4100.5 + 100.0;
    let gang = vec![saturn_core::Placement { node: 0, devices: vec![2, 3] }];
    let second = saturn_core::Assignment { share: 0.625, start_s: middle, end_s, gang, ..whole };
    let mut assignments = std::mem::take(&mut plan.assignments);
    assignments.extend([first, second]);
    plan.set_assignments(&problem, assignments);
    assert_eq!(saturn_core::check(&problem, &plan), Ok(()));
    insta::assert_snapshot!(plan_text(&problem, &plan, None, 100, Paint::PLAIN));
    let page = plan_html(&problem, &plan, None, "cut");
    assert!(page.contains("pipeline, 38 %") || page.contains("pipeline, 37.5 %"), "{page}");
}

/// A deadline that the plan keeps, and one that it misses: the checker refuses such a plan, and other
/// programs may make one.
#[test]
fn how_late_tasks_end_is_told_by_mean_percentile_and_worst() {
    let (mut problem, plan) = bound_plan();
    let text = plan_text(&problem, &plan, None, 120, Paint::PLAIN);
    assert!(text.contains("all 3 deadlines are kept"), "{text}");
    problem.deadline_s = None;
    let text = plan_text(&problem, &plan, None, 120, Paint::PLAIN);
    assert!(text.contains("the one deadline is kept"), "{text}");
    for (task, due_s) in [(0, 20.0), (1, 14.0), (2, 60.0)] {
        problem.tasks[task].deadline_s = Some(due_s);
    }
    let late = "2 of 3 deadlines missed: 3.7 s late on average over all 3, 10 s at the 90th percentile, \
                10 s at worst";
    let text = plan_text(&problem, &plan, None, 120, Paint::PLAIN);
    assert!(text.contains(late), "{text}");
    assert!(plan_html(&problem, &plan, None, "late").contains(late));
    let lateness = plan.lateness(&problem).unwrap();
    assert!((lateness.mean_s - 11.0 / 3.0).abs() < 1e-9, "{lateness:?}");
    let file: serde_json::Value = serde_json::from_str(&plan.to_json(&problem)).unwrap();
    let found: saturn_core::Lateness = serde_json::from_value(file["lateness"].clone()).unwrap();
    assert_eq!(found, lateness);
}

#[test]
fn whose_a_task_is_and_what_its_owner_may_hold_is_told() {
    let (mut problem, plan) = bound_plan();
    problem.owners = vec![saturn_core::Owner { name: "ada\u{7}".to_owned(), max_gpus: 1 }];
    problem.tasks[0].owner = Some("ada\u{7}".to_owned());
    let text = plan_text(&problem, &plan, None, 160, Paint::PLAIN);
    assert!(text.contains("of ada\\u{7}"), "{text}");
    assert!(text.contains("ada\\u{7} may hold 1 GPU at once"), "{text}");
}

#[test]
fn a_soft_deadline_is_told_with_its_price_and_ceiling() {
    let (mut problem, plan) = bound_plan();
    problem.tasks[0].deadline_s = Some(20.0);
    problem.tasks[0].late_price = Some(2.5);
    let text = plan_text(&problem, &plan, None, 160, Paint::PLAIN);
    assert!(text.contains("by 0:20 (soft: 2.5 a second)"), "{text}");
    problem.tasks[0].most_late_s = Some(300.0);
    let text = plan_text(&problem, &plan, None, 160, Paint::PLAIN);
    assert!(text.contains("by 0:20 (soft: 2.5 a second, at most 5 min"), "{text}");
    assert!(text.contains("1 of 3 deadlines missed: 3.3 s late on average"), "{text}");
}
