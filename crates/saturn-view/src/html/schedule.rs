//! The Gantt charts of a run: the plan, what happened, and the trials. All use the run's clock.

use maud::{Markup, html};
use saturn_engine::Purpose;

use crate::html::gantt::{Bar, Device, Gantt, Mark};
use crate::layout::units::{clock, count, duration};
use crate::phrases::words::{gang_devices, technique_on, with_share};
use crate::report::data::{AttemptReport, PlanReport, Report};

/// The planned chart above the realised chart, on one time scale from the run's beginning. Empty
/// unless some plan has a place for every task.
pub(super) fn planned_and_realised(report: &Report) -> Markup {
    let Some(plan) = report.reference_plan() else { return Markup::default() };
    let realised_end_s = end_s(report).max(plan.at_s);
    let to_s = realised_end_s.max(plan.at_s + plan.makespan_s);
    html! {
        h3 {
            "As planned "
            span.note {
                (duration(plan.makespan_s)) " by the plan with a place for every task, in force from "
                (clock(plan.at_s))
            }
        }
        (planned(report, plan, to_s).markup())
        h3 {
            "As it went "
            span.note {
                (duration(realised_end_s - plan.at_s)) " realised; a bar's pale beginning is loading"
            }
        }
        (realised(report, to_s).markup())
    }
}

/// When the last training attempt ended, or the time of the last record if one is live; 0 without
/// training attempts.
pub(super) fn end_s(report: &Report) -> f64 {
    let training = report.attempts.iter().filter(|one| one.purpose == Purpose::Train);
    training.map(|attempt| attempt.ended_s.unwrap_or(report.now_s)).fold(0.0, f64::max)
}

/// The chart of trials, from the run's beginning; empty if no trial ran.
pub(super) fn trials(report: &Report) -> Markup {
    let bars: Vec<Bar> = report
        .attempts
        .iter()
        .filter(|attempt| attempt.purpose == Purpose::Trial)
        .map(|attempt| attempt_bar(report, attempt))
        .collect();
    if bars.is_empty() {
        return Markup::default();
    }
    let to_s = bars.iter().map(|bar| bar.end_s).fold(0.0, f64::max);
    let chart = Gantt {
        title: "Trials on each device over time".to_owned(),
        devices: devices(report),
        bars,
        marks: Vec::new(),
        to_s,
        live: None,
    };
    chart.markup()
}

fn devices(report: &Report) -> Vec<Device> {
    let has_nodes = report.devices.iter().any(|device| device.node > 0);
    let devices = report.devices.iter().map(|device| Device {
        node: device.node,
        node_name: if has_nodes { device.node_name.clone() } else { String::new() },
        id: device.device,
    });
    devices.collect()
}

fn planned(report: &Report, plan: &PlanReport, to_s: f64) -> Gantt {
    let bars = plan.tasks.iter().map(|planned| {
        let name = report.task_name(planned.task);
        let strategy = technique_on(&planned.technique, planned.gpus);
        let strategy = with_share(&strategy, planned.share);
        Bar {
            task: planned.task,
            label: name.to_owned(),
            detail: strategy.clone(),
            tip: format!(
                "{strategy}\nplanned {} → {}  ({}{})",
                clock(planned.start_s),
                clock(planned.end_s),
                duration(planned.end_s - planned.start_s),
                if planned.is_estimate { ", estimated, not measured" } else { "" },
            ),
            class: "",
            devices: gang_devices(&planned.gang),
            start_s: planned.start_s,
            end_s: planned.end_s,
            ready_s: None,
        }
    });
    let bound = (plan.lower_bound_s > 0.0).then(|| Mark {
        at_s: plan.at_s + plan.lower_bound_s,
        label: "lower bound".to_owned(),
        tip: format!(
            "lower bound {}: by these estimates no plan is shorter",
            duration(plan.lower_bound_s)
        ),
        class: "bound",
    });
    Gantt {
        title: format!("The plan of {}", count(plan.num_tasks(), "task")),
        devices: devices(report),
        bars: bars.collect(),
        marks: bound.into_iter().collect(),
        to_s,
        live: None,
    }
}

/// The chart of what ran, with marks where plans changed.
pub(super) fn realised(report: &Report, to_s: f64) -> Gantt {
    let plan = report.reference_plan();
    let others =
        report.plans.iter().filter(|other| plan.is_some_and(|plan| other.at_s > plan.at_s));
    let replans = others.map(|replan| Mark {
        at_s: replan.at_s,
        label: String::new(),
        tip: format!("new plan at {}: {} more", clock(replan.at_s), duration(replan.makespan_s)),
        class: "replan",
    });
    let end = plan.map(|plan| Mark {
        at_s: plan.at_s + plan.makespan_s,
        label: "planned end".to_owned(),
        tip: format!("planned end, after {}", duration(plan.makespan_s)),
        class: "planned",
    });
    Gantt {
        title: "What ran on each device over time".to_owned(),
        devices: devices(report),
        bars: report.attempts.iter().map(|attempt| attempt_bar(report, attempt)).collect(),
        marks: replans.chain(end).collect(),
        to_s,
        live: None,
    }
}

/// An attempt as a bar.
fn attempt_bar(report: &Report, attempt: &AttemptReport) -> Bar {
    let name = report.task_name(attempt.task);
    let end_s = attempt.ended_s.unwrap_or(report.now_s);
    let strategy = technique_on(&attempt.technique, attempt.gpus);
    let how = attempt.how.as_deref().unwrap_or("running");
    let class = match (attempt.purpose, how) {
        (Purpose::Inspection | Purpose::Trial, _) => "trial",
        (Purpose::Train, "failed" | "killed" | "lost" | "abandoned") => "failed",
        (Purpose::Train, _) => "",
    };
    let steps = match (attempt.purpose, attempt.from_step) {
        (Purpose::Train, Some(from)) => format!("\nsteps {from} → {}", attempt.step),
        _ => String::new(),
    };
    let error = attempt.error.as_ref().map(|error| format!("\n{error}")).unwrap_or_default();
    let purpose = match attempt.purpose {
        Purpose::Inspection => "inspection",
        Purpose::Trial => "trial",
        Purpose::Train => "attempt",
    };
    Bar {
        task: attempt.task,
        label: name.to_owned(),
        detail: strategy.clone(),
        tip: format!(
            "{purpose} {} · {strategy} · {how}\n{} → {}  ({}){steps}{error}",
            attempt.attempt,
            clock(attempt.launched_s),
            clock(end_s),
            duration(end_s - attempt.launched_s),
        ),
        class,
        devices: gang_devices(&attempt.gang),
        start_s: attempt.launched_s,
        end_s,
        ready_s: attempt.started_s,
    }
}
