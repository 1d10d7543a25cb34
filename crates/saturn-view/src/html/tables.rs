//! The report's tables: tasks, plans, unused devices, failures.

use maud::{Markup, html};
use saturn_engine::{PlanSource, Stage};

use crate::html::curves::spark;
use crate::html::parts::{long_table, not_shown, task_class};
use crate::layout::units::{clock, duration, number, percent, signed_percent};
use crate::phrases::words::{PRACTICE_ESTIMATE, plan_status, technique_on};
use crate::report::data::{PlanReport, Report, TaskReport};

/// Relative errors of estimates beyond this are marked.
const NOTABLE_ERROR: f64 = 0.15;
/// The most rows of each table.
const MAX_TASKS: usize = 1000;
const MAX_PLANS: usize = 100;
const MAX_FAILURES: usize = 50;
const MAX_DEVICES: usize = 100;

/// The table of tasks, planned and realised.
pub(super) fn tasks(report: &Report) -> Markup {
    let head = html! {
        tr {
            th { "task" } th { "status" } th { "loss" } th.n { "final" }
            th.n { "steps" } th { "strategy" } th.n { "start" } th.n { "end" }
            th.n { "planned" }
            th.n title="the sum over its training attempts, from launch to end; waiting between them \
                        doesn't count" { "training" }
            th.n title="time for which training stood still for checkpoints; background \
                        writing doesn't count" { "saving" }
            th.n title="training over planned time, less one; only for tasks that trained in one \
                        attempt as first planned" { "estimate error" }
            th.n { "attempts" }
        }
    };
    let tasks = report.tasks.iter().enumerate().take(MAX_TASKS);
    let rows: Vec<Markup> = tasks.map(|(index, task)| task_row(index, task)).collect();
    html! {
        (long_table(&head, &rows, "task"))
        (not_shown(report.tasks.len().saturating_sub(MAX_TASKS), "task"))
    }
}

/// The CSS class and the words for a task's status.
pub(super) fn status_words(status: Stage) -> (&'static str, &'static str) {
    let class = match status {
        Stage::Done => "good",
        Stage::Diverged | Stage::Failed => "bad",
        Stage::Cancelled | Stage::Stopped => "dim",
        Stage::Running | Stage::Paused | Stage::Held => "warn",
        Stage::Waiting | Stage::Measuring | Stage::Inspecting | Stage::Unmeasured => "",
    };
    (class, status.word())
}

fn task_row(index: usize, task: &TaskReport) -> Markup {
    let (class, status) = status_words(task.status);
    let steps = match task.steps {
        Some(steps) if steps != task.step => format!("{} / {steps}", task.step),
        _ => task.step.to_string(),
    };
    let strategy = match (&task.technique, task.gpus) {
        (Some(technique), Some(gpus)) => technique_on(technique, gpus),
        _ => "–".to_owned(),
    };
    let at = |seconds: Option<f64>| seconds.map_or("–".to_owned(), clock);
    let taken = |seconds: Option<f64>| seconds.map_or("–".to_owned(), duration);
    let error = task.estimate_error.map_or("–".to_owned(), signed_percent);
    let is_notable = task.estimate_error.is_some_and(|error| error.abs() > NOTABLE_ERROR);
    html! {
        tr data-task=(index) {
            td.task { i.dot.(task_class(index)) {} (task.name) }
            td class=(class) title=[task.error.as_ref()] { (status) }
            td { (spark(&task_class(index), &task.losses)) }
            td.n { b { (task.final_loss.map_or("–".to_owned(), number)) } }
            td.n { (steps) }
            td { (strategy) }
            td.n { (at(task.start_s)) }
            td.n { (at(task.end_s)) }
            td.n { (taken(task.planned_s)) }
            td.n { (taken(task.train_s)) }
            td.n { (taken(task.train_s.map(|_| task.blocked_s))) }
            td.n.warn[is_notable] { (error) }
            td.n { (task.attempts) }
        }
    }
}

/// The plans that were in force, and the time of current practice; empty without a reference plan.
pub(super) fn plans(report: &Report) -> Markup {
    let Some(reference) = report.reference_plan() else { return Markup::default() };
    let num_skipped = report.plans.len().saturating_sub(MAX_PLANS);
    let shown = &report.plans[num_skipped..];
    html! {
        @if let Some(seconds) = reference.current_practice_s {
            p {
                "Current practice, all devices for one task at a time and its best technique, would \
                 take " b { (duration(seconds)) }
                @if report.totals.current_practice_is_estimate {
                    ", " (PRACTICE_ESTIMATE)
                } @else {
                    " by the same profile: "
                    (format!("{:.2}", seconds / reference.makespan_s.max(1e-9))) " × the plan"
                    @let realised_s = report.totals.makespan_s;
                    @if let Some(makespan_s) = realised_s.filter(|_| report.totals.did_all_that_was_planned) {
                        ", " (format!("{:.2}", seconds / makespan_s.max(1e-9))) " × what was realised"
                    }
                }
                "."
            }
        }
        @if num_skipped > 0 {
            p.note { "The last " (shown.len()) " of " (report.plans.len()) "; report.json has all." }
        }
        div.scroll {
            table.slim {
                thead {
                    tr {
                        th.n { "adopted at" } th.n { "places" } th.n { "makespan" }
                        th.n title="makespan of the plan before, if it had a place for every task" {
                            "instead of"
                        }
                        th.n { "end" }
                        th.n title="by the estimates at that time no plan is shorter" { "lower bound" }
                        th.n { "gap" } th { "status" }
                        th { "by" } th.n { "solved in" }
                    }
                }
                tbody {
                    @for plan in shown { (plan_row(plan)) }
                }
            }
        }
    }
}

fn plan_row(plan: &PlanReport) -> Markup {
    let has_bound = plan.lower_bound_s > 0.0;
    let dash = || "–".to_owned();
    let num_places = plan.tasks.len();
    let (by, why) = match &plan.source {
        PlanSource::Solver => ("the solver", None),
        PlanSource::Extended { reason } => ("extension", reason.as_ref()),
    };
    html! {
        tr {
            td.n { (clock(plan.at_s)) }
            td.n { (if num_places > 0 { num_places.to_string() } else { dash() }) }
            td.n { (duration(plan.makespan_s)) }
            td.n { (plan.instead_of_s.map_or_else(dash, duration)) }
            td.n { (clock(plan.at_s + plan.makespan_s)) }
            td.n { (if has_bound { duration(plan.lower_bound_s) } else { dash() }) }
            td.n { (if has_bound { percent(plan.gap) } else { dash() }) }
            td { (if has_bound { plan_status(plan.status) } else { "nothing proven" }) }
            td title=[why] { (by) }
            td.n { (if has_bound { duration(plan.solve_s) } else { dash() }) }
        }
    }
}

/// Devices that are set aside or gone, and why; empty if there is none.
pub(super) fn unused_devices(report: &Report) -> Markup {
    let unused = || report.devices.iter().filter(|one| !one.is_there || one.set_aside.is_some());
    let num_unused = unused().count();
    if num_unused == 0 {
        return Markup::default();
    }
    html! {
        div.scroll {
            table.slim {
                thead { tr { th { "node" } th.n { "device" } th { "type" } th { "why" } } }
                tbody {
                    @for device in unused().take(MAX_DEVICES) {
                        tr {
                            td { (device.node_name) }
                            td.n { (device.device) }
                            td { (device.gpu_type) }
                            td.why {
                                @match &device.set_aside {
                                    Some(why) if device.is_there => { (why) },
                                    _ => "it is not there any more",
                                }
                            }
                        }
                    }
                }
            }
        }
        (not_shown(num_unused.saturating_sub(MAX_DEVICES), "device"))
    }
}

/// Failed tasks, with the workers' tracebacks; empty if there is none.
pub(super) fn failures(report: &Report) -> Markup {
    let failed = || {
        let tasks = report.tasks.iter().enumerate();
        tasks.filter(|(_, task)| task.status == Stage::Failed)
    };
    let num_failed = failed().count();
    if num_failed == 0 {
        return Markup::default();
    }
    html! {
        section.failures {
            h2 { "Failures" }
            @for (index, task) in failed().take(MAX_FAILURES) {
                article data-task=(index) {
                    h3 { i.dot.(task_class(index)) {} (task.name) }
                    p.bad { (task.error.as_deref().unwrap_or_default()) }
                    @if !task.traceback.trim().is_empty() { pre { (task.traceback.trim()) } }
                    p.note { "Logs of its attempts: " (task.dir) "/attempts/" }
                }
            }
            (not_shown(num_failed.saturating_sub(MAX_FAILURES), "task"))
        }
    }
}
