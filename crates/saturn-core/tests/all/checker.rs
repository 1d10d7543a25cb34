//! Tests that the checker accepts correct plans and names each fault of wrong ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use saturn_core::{
    Assignment, Gang, Objective, Placement, Plan, PlanStatus, Problem, WHOLE, check,
};

/// Two nodes of 4 `a` and one of 2 `b`. Runtimes are 10 s for all but the last strategy.
fn problem() -> Problem {
    Problem::from_json(
        r#"{"cluster": {"nodes": [
            {"gpus": 4, "type": "a"}, {"gpus": 4, "type": "a"}, {"gpus": 2, "type": "b"}]},
          "tasks": [
            {"name": "x", "strategies": [
              {"technique": "ddp", "gpus": 2, "runtime_s": 10},
              {"technique": "ddp", "gpus": 1, "type": "a", "runtime_s": 10},
              {"technique": "fsdp", "gpus": 6, "type": "a", "runtime_s": 10},
              {"technique": "pipeline", "gpus": 6, "type": "a", "runtime_s": 10, "pack": true}]},
            {"name": "y", "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 5}]}]}"#,
    )
    .unwrap()
}

/// A node and devices of it.
type Part<'a> = (usize, &'a [u32]);

fn gang(parts: &[Part]) -> Gang {
    parts
        .iter()
        .map(|(node, devices)| Placement { node: *node, devices: devices.to_vec() })
        .collect()
}

fn assignment(task: usize, strategy: usize, parts: &[Part], from: f64, to: f64) -> Assignment {
    segment(task, strategy, parts, WHOLE, from, to)
}

fn segment(
    task: usize,
    strategy: usize,
    parts: &[Part],
    share: f64,
    from: f64,
    to: f64,
) -> Assignment {
    Assignment { task, strategy, gang: gang(parts), share, start_s: from, end_s: to }
}

/// `x` under `strategy` on `parts` from 0 to 10, then `y` on node 2 from 0 to 5.
fn plan(strategy: usize, parts: &[Part]) -> Plan {
    let assignments = vec![
        assignment(0, strategy, parts, 0.0, 10.0),
        assignment(1, 0, &[(2, &[0, 1])], 0.0, 5.0),
    ];
    Plan { lower_bound_s: 5.0, ..Plan::of(&problem(), Objective::Makespan, assignments) }
}

/// The plan with the values recomputed that these tests do not vary.
fn counted(plan: Plan) -> Plan {
    let Plan { completion_s, cost, .. } =
        Plan::of(&problem(), Objective::Makespan, plan.assignments.clone());
    Plan { completion_s, cost, ..plan }
}

fn faults(plan: &Plan) -> String {
    match check(&problem(), plan) {
        Ok(()) => "none".to_owned(),
        Err(violations) => {
            violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
    }
}

#[test]
fn right_plans_pass() {
    assert_eq!(faults(&plan(0, &[(0, &[1, 3])])), "none");
    assert_eq!(faults(&plan(1, &[(1, &[0])])), "none");
    assert_eq!(faults(&plan(2, &[(0, &[0, 1, 2, 3]), (1, &[0, 1, 2, 3])])), "none");
    assert_eq!(faults(&plan(3, &[(0, &[0, 1, 2, 3]), (1, &[0, 2])])), "none");
    let mut after = plan(0, &[(2, &[0, 1])]);
    after.assignments[0].start_s = 5.0;
    after.assignments[0].end_s = 15.0;
    after.makespan_s = 15.0;
    assert_eq!(faults(&counted(after)), "none");
}

#[test]
fn times_may_be_off_by_a_billionth_of_the_makespan() {
    let mut problem = problem();
    problem.tasks[0].strategies[0].runtime_s = 1e4;
    let off_by = |off_s: f64| {
        let assignments = vec![
            assignment(0, 0, &[(2, &[0, 1])], 0.0, 1e4),
            assignment(1, 0, &[(2, &[0, 1])], 1e4 - off_s, 1e4 + 5.0 - off_s),
        ];
        check(&problem, &Plan::of(&problem, Objective::Makespan, assignments))
    };
    assert_eq!(off_by(5e-6), Ok(()));
    assert!(off_by(2e-5).is_err());
}

#[test]
fn wrong_gangs_are_named() {
    let cases: &[(usize, &[Part])] = &[
        (0, &[(0, &[1])]),
        (0, &[(0, &[1, 1])]),
        (0, &[(0, &[2, 1])]),
        (0, &[(0, &[3, 4])]),
        (0, &[(7, &[0, 1])]),
        (0, &[(0, &[0]), (1, &[0])]),
        (0, &[(0, &[0]), (0, &[1])]),
        (0, &[]),
        (1, &[(2, &[0])]),
        (2, &[(0, &[0, 1, 2, 3]), (1, &[0, 1])]),
        (2, &[(0, &[0, 1, 2, 3])]),
        (2, &[(0, &[0, 1, 2, 3]), (2, &[0, 1])]),
        (3, &[(0, &[0, 1, 2, 3]), (1, &[0, 1, 2, 3])]),
        (3, &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ];
    let table: Vec<String> =
        cases.iter().map(|(strategy, parts)| faults(&plan(*strategy, parts))).collect();
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn wrong_plans_are_named() {
    let good = plan(0, &[(0, &[0, 1])]);
    let change = |edit: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        edit(&mut plan);
        faults(&counted(plan))
    };
    let table = [
        change(&|plan| plan.assignments[1].task = 0),
        change(&|plan| plan.assignments[1].task = 9),
        change(&|plan| plan.assignments[1].strategy = 9),
        change(&|plan| drop(plan.assignments.pop())),
        change(&|plan| plan.assignments[1].gang = gang(&[(0, &[1, 2])])),
        change(&|plan| plan.assignments[1].start_s = -1.0),
        change(&|plan| plan.assignments[1].start_s = f64::NAN),
        change(&|plan| plan.assignments[1].end_s = 4.0),
        change(&|plan| plan.makespan_s = 9.0),
        change(&|plan| plan.makespan_s = f64::NAN),
        change(&|plan| plan.lower_bound_s = 11.0),
        change(&|plan| plan.lower_bound_s = f64::NAN),
        change(&|plan| plan.status = PlanStatus::Optimal),
        change(&|plan| plan.status = PlanStatus::Infeasible),
        change(&|plan| plan.status = PlanStatus::TimedOut),
    ];
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn what_there_is_not_is_named_though_two_hold_it_at_once() {
    let wrong = |task: usize, node: usize| {
        let held = [(node, &[0, 1][..])];
        let assignments =
            vec![assignment(0, 0, &held, 0.0, 10.0), assignment(task, 0, &held, 0.0, 5.0)];
        faults(&Plan { assignments, ..plan(0, &[(0, &[0, 1])]) })
    };
    assert!(wrong(2, 0).contains('2'), "{}", wrong(2, 0));
    assert!(wrong(1, 3).contains('3'), "{}", wrong(1, 3));
}

/// [`problem`], in which task 0 may be switched at 3 s.
fn switchable() -> Problem {
    let mut problem = problem();
    problem.tasks[0].switch_cost_s = Some(3.0);
    problem
}

/// `x` in two segments. The first does 0.4 on device 1 of node 0 from 0 to 4. The second pays 3 s
/// and does 0.6 on two devices of node 1 from 5 to 14.
fn split_plan() -> Plan {
    let assignments = vec![
        segment(0, 1, &[(0, &[1])], 0.4, 0.0, 4.0),
        assignment(1, 0, &[(2, &[0, 1])], 0.0, 5.0),
        segment(0, 0, &[(1, &[0, 1])], 0.6, 5.0, 14.0),
    ];
    Plan { lower_bound_s: 5.0, ..Plan::of(&problem(), Objective::Makespan, assignments) }
}

#[test]
fn segments_that_do_the_work_once_pass() {
    assert_eq!(check(&switchable(), &split_plan()), Ok(()));
    let mut free = switchable();
    free.tasks[0].switch_cost_s = Some(0.0);
    let mut plan = split_plan();
    plan.assignments[2].end_s = 11.0;
    plan.makespan_s = 11.0;
    assert_eq!(check(&free, &counted(plan)), Ok(()));
}

#[test]
fn wrong_segments_are_named() {
    let change = |edit: &dyn Fn(&mut Plan)| {
        let mut plan = split_plan();
        edit(&mut plan);
        match check(&switchable(), &counted(plan)) {
            Ok(()) => "none".to_owned(),
            Err(violations) => {
                violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
        }
    };
    let table = [
        // Shares that sum to 0.9 and to 1.1, with matching times.
        change(&|plan| {
            plan.assignments[2].share = 0.5;
            plan.assignments[2].end_s = 13.0;
            plan.makespan_s = 13.0;
        }),
        change(&|plan| {
            plan.assignments[0].share = 0.5;
            plan.assignments[0].end_s = 5.0;
        }),
        change(&|plan| {
            plan.assignments[0].share = -0.4;
            plan.assignments[2].share = 1.4;
        }),
        change(&|plan| plan.assignments[0].share = f64::NAN),
        // The switch is not paid.
        change(&|plan| {
            plan.assignments[2].end_s = 11.0;
            plan.makespan_s = 11.0;
        }),
        // The switch is paid in the first segment.
        change(&|plan| {
            plan.assignments[0].end_s = 7.0;
            plan.assignments[2].start_s = 7.0;
            plan.assignments[2].end_s = 13.0;
            plan.makespan_s = 13.0;
        }),
        // The second segment has its own devices, but starts before the first has ended.
        change(&|plan| {
            plan.assignments[2].start_s = 3.0;
            plan.assignments[2].end_s = 12.0;
            plan.makespan_s = 12.0;
        }),
        // Only the first segment is there.
        change(&|plan| {
            plan.assignments.pop();
            plan.makespan_s = 5.0;
        }),
    ];
    insta::assert_snapshot!(table.join("\n"));
    let violations = check(&problem(), &split_plan()).unwrap_err();
    assert!(violations[0].to_string().contains("no switch cost"), "{violations:?}");
}

#[test]
fn an_overlap_with_a_task_that_is_not_the_last_is_seen() {
    let problem = Problem::from_json(
        r#"{"cluster": {"nodes": [{"gpus": 1}]}, "tasks": [
            {"name": "long", "strategies": [{"technique": "t", "gpus": 1, "runtime_s": 10}]},
            {"name": "a", "strategies": [{"technique": "t", "gpus": 1, "runtime_s": 1}]},
            {"name": "b", "strategies": [{"technique": "t", "gpus": 1, "runtime_s": 1}]}]}"#,
    )
    .unwrap();
    let assignments = vec![
        assignment(0, 0, &[(0, &[0])], 0.0, 10.0),
        assignment(1, 0, &[(0, &[0])], 1.0, 2.0),
        assignment(2, 0, &[(0, &[0])], 5.0, 6.0),
    ];
    let plan = Plan::of(&problem, Objective::Makespan, assignments);
    assert_eq!(check(&problem, &plan).unwrap_err().len(), 2);
}

#[test]
fn a_plan_is_carried_over_by_names() {
    let old = problem();
    let plan = plan(0, &[(0, &[1, 3])]);
    assert_eq!(plan.carried_over(&old, &old), plan);
    let mut new = problem();
    new.tasks.remove(0);
    new.cluster.nodes.remove(1);
    let carried = plan.carried_over(&old, &new);
    assert_eq!(carried.assignments, [assignment(0, 0, &[(1, &[0, 1])], 0.0, 5.0)]);
    new.cluster.nodes.remove(1);
    assert_eq!(plan.carried_over(&old, &new).assignments, []);
}

#[test]
fn a_task_is_carried_over_with_all_of_its_segments_or_none() {
    let old = switchable();
    assert_eq!(split_plan().carried_over(&old, &old), split_plan());
    let mut new = switchable();
    new.tasks[0].strategies.remove(1);
    let carried = split_plan().carried_over(&old, &new);
    assert_eq!(carried.assignments, [assignment(1, 0, &[(2, &[0, 1])], 0.0, 5.0)]);
}

#[test]
fn segments_are_written_with_their_shares() {
    insta::assert_snapshot!(split_plan().to_json(&switchable()));
}

#[test]
fn plans_are_written_with_names() {
    let mut optimal = plan(0, &[(0, &[0, 1])]);
    optimal.status = PlanStatus::Optimal;
    optimal.lower_bound_s = 10.0;
    insta::assert_snapshot!(optimal.to_json(&problem()));
}
