//! A page for the plan of a planning problem.

use maud::{Markup, html};
use saturn_core::{Objective, Plan, Problem};

use crate::html::frame::{Page, tile};
use crate::html::gantt::{Bar, Device, Gantt, Mark};
use crate::html::parts::task_class;
use crate::layout::units::{count, duration, percent};
use crate::phrases::limits;
use crate::phrases::words::{devices, gang_devices, technique_on, with_share};
use crate::plans::table::{amount, current_practice_claim, plan_claim};

/// Renders a self-contained page that shows `plan`, an answer to `problem`. `name` is the page's
/// title.
pub fn plan_html(
    problem: &Problem,
    plan: &Plan,
    current_practice_s: Option<f64>,
    name: &str,
) -> String {
    let body = if plan.is_usable() {
        html! {
            (tiles(plan, current_practice_s))
            section { h2 { "Plan" } (gantt(problem, plan).markup()) }
            (table(problem, plan))
            (limits_list(problem, plan))
        }
    } else {
        html! {
            section {
                h2 { "No plan" }
                ul {
                    @for one in &plan.reasons {
                        li {
                            @if let Some(task) = one.task.and_then(|task| problem.tasks.get(task)) {
                                b { (task.name) } ": "
                            }
                            (one.reason)
                        }
                    }
                }
            }
        }
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

fn tiles(plan: &Plan, current_practice_s: Option<f64>) -> Markup {
    let longest_s = current_practice_s.unwrap_or(0.0).max(plan.makespan_s).max(1e-9);
    let current_practice = current_practice_s.map(|seconds| {
        tile(
            "Current practice",
            &duration(seconds),
            &format!("{:.2} × as long", seconds / plan.makespan_s.max(1e-9)),
            Some(("other", seconds / longest_s)),
            &current_practice_claim(seconds, plan.makespan_s, false),
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
        "by these estimates no plan is shorter",
        Some(("bound", plan.lower_bound_s / longest_s)),
        "proven",
    );
    let objective = (plan.objective != Objective::Makespan).then(|| objective_tile(plan));
    html! {
        div.tiles {
            @for tile in [objective, Some(makespan), Some(bound), current_practice].into_iter().flatten() {
                (tile)
            }
        }
    }
}

/// The tile for a plan's value under an objective other than the makespan.
fn objective_tile(plan: &Plan) -> Markup {
    let bound = amount(plan.objective, plan.bound());
    let gap = if plan.gap().is_finite() { percent(plan.gap()) } else { "unknown".to_owned() };
    let is_cost = plan.objective == Objective::Cost;
    tile(
        if is_cost { "Cost" } else { "Weighted completion" },
        &amount(plan.objective, plan.value()),
        &format!("lower bound {bound} by these estimates, gap {gap}"),
        None,
        if is_cost {
            "price of every node while it holds anything"
        } else {
            "sum of weight times end over all tasks"
        },
    )
}

/// The common deadline, how deadlines are kept, and the windows and prices of nodes.
fn limits_list(problem: &Problem, plan: &Plan) -> Markup {
    let limits = limits::of_plan(problem, plan);
    html! {
        @if !limits.is_empty() {
            section {
                h2 { "Deadlines and nodes" }
                ul { @for line in &limits { li { (line) } } }
            }
        }
    }
}

fn gantt(problem: &Problem, plan: &Plan) -> Gantt {
    let nodes = &problem.cluster.nodes;
    let devices = nodes.iter().enumerate().flat_map(|(node, spec)| {
        (0..spec.gpus).map(move |id| Device {
            node,
            node_name: if nodes.len() > 1 { spec.name.clone() } else { String::new() },
            id,
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
                "{strategy}\n{} → {}  ({})",
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
        devices: devices.collect(),
        bars: bars.collect(),
        marks: vec![Mark {
            at_s: plan.lower_bound_s,
            label: "lower bound".to_owned(),
            tip: format!("lower bound {} by these estimates", duration(plan.lower_bound_s)),
            class: "bound",
        }],
        to_s: plan.makespan_s,
        live: None,
    }
}

fn table(problem: &Problem, plan: &Plan) -> Markup {
    let has_limits = problem.tasks.iter().any(|task| !limits::of_task(task).is_empty());
    let rows = plan.assignments.iter().filter_map(|assignment| {
        let task = problem.tasks.get(assignment.task)?;
        let strategy = task.strategies.get(assignment.strategy)?;
        Some(html! {
            tr data-task=(assignment.task) {
                td { i.dot.(task_class(assignment.task)) {} (task.name) }
                td { (with_share(&strategy.technique, assignment.share)) }
                td.n { (strategy.gpus) }
                td { (devices(&problem.cluster, &assignment.gang)) }
                td.n { (duration(assignment.start_s)) }
                td.n { (duration(assignment.end_s)) }
                @if has_limits { td { (limits::of_task(task)) } }
            }
        })
    });
    html! {
        section {
            h2 { "Tasks" }
            div.scroll {
                table {
                    thead {
                        tr {
                            th { "task" } th { "technique" } th.n { "GPUs" } th { "devices" }
                            th.n { "start" } th.n { "end" }
                            @if has_limits { th { "limits" } }
                        }
                    }
                    tbody { @for row in rows { (row) } }
                }
            }
        }
    }
}
