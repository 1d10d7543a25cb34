//! A page for the plan of a planning problem alone.

use saturn_core::{Objective, Plan, Problem, Reason};

use super::gantt::{Bar, Gantt, Mark, Row};
use super::page::{Page, tile};
use super::{concat, escape};
use crate::limits;
use crate::plan_table::{amount, current_practice_claim, plan_claim};
use crate::units::{count, duration, percent};
use crate::words::{devices, gang_devices, technique_on, with_share};

/// A self-contained page that shows `plan`, an answer to `problem`; `name` is what it is called.
pub fn plan_html(
    problem: &Problem,
    plan: &Plan,
    current_practice_s: Option<f64>,
    name: &str,
) -> String {
    let body = if plan.is_usable() {
        concat([
            tiles(plan, current_practice_s),
            format!(
                "<section><h2>Plan</h2><div class=\"scroll\">{}</div></section>",
                gantt(problem, plan).svg()
            ),
            table(problem, plan),
            limits_list(problem),
        ])
    } else {
        let reasons = plan.reasons.iter().map(|Reason { task, reason }| {
            let task = task.and_then(|task| problem.tasks.get(task));
            let of = task.map(|task| format!("<b>{}</b>: ", escape(&task.name)));
            format!("<li>{}{}</li>", of.unwrap_or_default(), escape(reason))
        });
        format!("<section><h2>No plan</h2><ul>{}</ul></section>", concat(reasons))
    };
    let subtitle = format!(
        "{} on {} · {}",
        count(problem.tasks.len(), "task"),
        count(problem.cluster.num_gpus() as usize, "GPU"),
        plan_claim(plan),
    );
    Page { title: name, subtitle: &subtitle, badge: None, num_tasks: problem.tasks.len(), body }
        .render()
}

fn tiles(plan: &Plan, current_practice_s: Option<f64>) -> String {
    let longest_s = current_practice_s.unwrap_or(0.0).max(plan.makespan_s).max(1e-9);
    let current_practice = current_practice_s.map(|seconds| {
        tile(
            "Current practice",
            &duration(seconds),
            &format!("{:.2} × as long", seconds / plan.makespan_s.max(1e-9)),
            Some(("other", seconds / longest_s)),
            &current_practice_claim(seconds, plan.makespan_s),
        )
    });
    let makespan = tile(
        "Makespan",
        &duration(plan.makespan_s),
        &if plan.objective == Objective::Makespan {
            format!("gap {}", percent(plan.gap()))
        } else {
            String::new()
        },
        Some(("main", plan.makespan_s / longest_s)),
        "completion of the last task",
    );
    let bound = tile(
        "Lower bound",
        &duration(plan.lower_bound_s),
        "no plan is shorter",
        Some(("bound", plan.lower_bound_s / longest_s)),
        "proven",
    );
    let objective = (plan.objective != Objective::Makespan).then(|| objective_tile(plan));
    let current_practice = current_practice.unwrap_or_default();
    let objective = objective.unwrap_or_default();
    format!("<div class=\"tiles\">{objective}{makespan}{bound}{current_practice}</div>")
}

/// What the plan is worth under an objective that is not the makespan.
fn objective_tile(plan: &Plan) -> String {
    let bound = amount(plan.objective, plan.bound());
    let gap = if plan.gap().is_finite() { percent(plan.gap()) } else { "unknown".to_owned() };
    let is_cost = plan.objective == Objective::Cost;
    tile(
        if is_cost { "Cost" } else { "Weighted completion" },
        &amount(plan.objective, plan.value()),
        &format!("lower bound {bound}, gap {gap}"),
        None,
        if is_cost {
            "price of every node while it holds anything"
        } else {
            "sum of weight times end over all tasks"
        },
    )
}

/// The windows and prices of nodes, and the deadline of all.
fn limits_list(problem: &Problem) -> String {
    let limits = limits::of_problem(problem);
    if limits.is_empty() {
        return String::new();
    }
    let items = limits.iter().map(|line| format!("<li>{}</li>", escape(line)));
    format!("<section><h2>Nodes and deadline</h2><ul>{}</ul></section>", concat(items))
}

fn gantt(problem: &Problem, plan: &Plan) -> Gantt {
    let nodes = &problem.cluster.nodes;
    let rows = nodes.iter().enumerate().flat_map(|(node, spec)| {
        (0..spec.gpus).map(move |device| Row {
            node,
            node_name: if nodes.len() > 1 { spec.name.clone() } else { String::new() },
            device,
        })
    });
    let bars = plan.assignments.iter().filter_map(|assignment| {
        let task = problem.tasks.get(assignment.task)?;
        let strategy = task.strategies.get(assignment.strategy)?;
        let strategy = technique_on(&strategy.technique, strategy.gpus);
        let strategy = with_share(&strategy, assignment.share);
        Some(Bar {
            task: assignment.task,
            label: task.name.clone(),
            detail: strategy.clone(),
            tip: format!(
                "{}\n{strategy}\n{} → {}  ({})",
                task.name,
                duration(assignment.start_s),
                duration(assignment.end_s),
                duration(assignment.end_s - assignment.start_s),
            ),
            class: "",
            devices: gang_devices(&assignment.gang),
            start_s: assignment.start_s,
            end_s: assignment.end_s,
            ready_s: None,
        })
    });
    Gantt {
        title: "The plan: tasks on devices over time".to_owned(),
        rows: rows.collect(),
        bars: bars.collect(),
        marks: vec![Mark {
            at_s: plan.lower_bound_s,
            label: "lower bound".to_owned(),
            tip: format!("lower bound {}", duration(plan.lower_bound_s)),
            class: "bound",
        }],
        from_s: 0.0,
        to_s: plan.makespan_s,
    }
}

fn table(problem: &Problem, plan: &Plan) -> String {
    let has_limits = problem.tasks.iter().any(|task| !limits::of_task(task).is_empty());
    let head = if has_limits { "<th>limits</th>" } else { "" };
    let rows = plan.assignments.iter().filter_map(|assignment| {
        let task = problem.tasks.get(assignment.task)?;
        let strategy = task.strategies.get(assignment.strategy)?;
        Some(format!(
            "<tr data-task=\"{index}\"><td><i class=\"dot t{index}\"></i>{}</td><td>{}</td>\
             <td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>{}</tr>",
            escape(&task.name),
            escape(&with_share(&strategy.technique, assignment.share)),
            strategy.gpus,
            escape(&devices(&problem.cluster, &assignment.gang)),
            duration(assignment.start_s),
            duration(assignment.end_s),
            if has_limits {
                format!("<td>{}</td>", escape(&limits::of_task(task)))
            } else {
                String::new()
            },
            index = assignment.task,
        ))
    });
    format!(
        "<section><h2>Tasks</h2><div class=\"scroll\"><table><thead><tr><th>task</th><th>technique\
         </th><th class=\"n\">GPUs</th><th>devices</th><th class=\"n\">start</th><th class=\"n\">end\
         </th>{head}</tr></thead><tbody>{}</tbody></table></div></section>",
        concat(rows)
    )
}
