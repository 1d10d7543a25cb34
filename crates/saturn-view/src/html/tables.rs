//! The report's tables: tasks, plans, failures.

use super::losses::spark;
use super::{concat, escape};
use crate::report::{Report, TaskReport, TaskReportStatus};
use crate::units::{clock, duration, number, percent, signed_percent};
use crate::words::{plan_status, technique_on};

/// Errors of an estimate beyond this are marked.
const NOTABLE_ERROR: f64 = 0.15;

/// Tasks, planned and realised.
pub(super) fn tasks(report: &Report) -> String {
    let zero_s = report.reference_plan().map_or(0.0, |plan| plan.at_s);
    let rows = report.tasks.iter().enumerate().map(|(index, task)| task_row(index, task, zero_s));
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>task</th><th>status</th><th>loss</th>\
         <th class=\"n\">final</th><th class=\"n\">steps</th><th>strategy</th><th class=\"n\">start</th>\
         <th class=\"n\">end</th><th class=\"n\">planned</th><th class=\"n\">realised</th>\
         <th class=\"n\" title=\"for how much of the realised time training stood still for checkpoints; what \
         is written while training goes on doesn't count\">saving</th>\
         <th class=\"n\" title=\"realised over planned time, less one; only for tasks that trained in one \
         attempt as first planned\">estimate error</th><th class=\"n\">attempts</th></tr></thead>\
         <tbody>{}</tbody></table></div>",
        concat(rows),
    )
}

fn task_row(index: usize, task: &TaskReport, zero_s: f64) -> String {
    let (class, status) = match task.status {
        TaskReportStatus::Done => ("good", "done"),
        TaskReportStatus::Failed => ("bad", "failed"),
        TaskReportStatus::Cancelled => ("dim", "cancelled"),
        TaskReportStatus::Running => ("warn", "running"),
        TaskReportStatus::Paused => ("warn", "paused"),
        TaskReportStatus::Waiting => ("", "waiting"),
        TaskReportStatus::Measuring => ("", "measuring"),
    };
    let steps = match task.steps {
        Some(steps) if steps != task.step => format!("{} / {steps}", task.step),
        _ => task.step.to_string(),
    };
    let strategy = match (&task.technique, task.gpus) {
        (Some(technique), Some(gpus)) => technique_on(technique, gpus),
        _ => "–".to_owned(),
    };
    let since =
        |seconds: Option<f64>| seconds.map_or("–".to_owned(), |at_s| clock(at_s - zero_s));
    let taken = |seconds: Option<f64>| seconds.map_or("–".to_owned(), duration);
    let error = task.estimate_error.map_or("–".to_owned(), signed_percent);
    let is_notable = task.estimate_error.is_some_and(|error| error.abs() > NOTABLE_ERROR);
    format!(
        "<tr data-task=\"{index}\"><td class=\"task\"><i class=\"dot t{index}\"></i>{}</td>\
         <td class=\"{class}\">{status}</td><td>{}</td><td class=\"n\"><b>{}</b></td>\
         <td class=\"n\">{steps}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n {}\">{error}</td>\
         <td class=\"n\">{}</td></tr>",
        escape(&task.name),
        spark(index, &task.losses),
        task.final_loss.map_or("–".to_owned(), number),
        escape(&strategy),
        since(task.start_s),
        since(task.end_s),
        taken(task.planned_s),
        taken(task.realised_s),
        taken(task.realised_s.map(|_| task.blocked_s)),
        if is_notable { "warn" } else { "" },
        task.attempts,
    )
}

/// The plans that were in force, and what current practice would take; empty without one.
pub(super) fn plans(report: &Report) -> String {
    let Some(reference) = report.reference_plan() else { return String::new() };
    let rows = report.plans.iter().map(|plan| {
        let at_s = plan.at_s - reference.at_s;
        format!(
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
            clock(at_s),
            plan.tasks.len(),
            duration(plan.makespan_s),
            clock(at_s + plan.makespan_s),
            duration(plan.lower_bound_s),
            percent(plan.gap),
            plan_status(plan.status),
            duration(plan.solve_s),
        )
    });
    let current_practice = reference.current_practice_s.map(|seconds| {
        format!(
            "<p>Current practice, all devices for one task at a time and its best technique, would take \
             <b>{}</b> by the same profile: {:.2} × the plan{}.</p>",
            duration(seconds),
            seconds / reference.makespan_s.max(1e-9),
            report.totals.makespan_s.map_or(String::new(), |makespan_s| format!(
                ", {:.2} × what was realised",
                seconds / makespan_s.max(1e-9)
            )),
        )
    });
    format!(
        "{}<div class=\"scroll\"><table class=\"slim\"><thead><tr><th class=\"n\">adopted at</th><th class=\"n\">tasks</th>\
         <th class=\"n\">makespan</th><th class=\"n\">end</th><th class=\"n\">lower bound</th>\
         <th class=\"n\">gap</th><th>status</th><th class=\"n\">solved in</th></tr></thead>\
         <tbody>{}</tbody></table></div>",
        current_practice.unwrap_or_default(),
        concat(rows),
    )
}

/// Tasks that were given up, with the workers' own tracebacks; empty without any.
pub(super) fn failures(report: &Report) -> String {
    let failed = report.tasks.iter().enumerate().filter_map(|(index, task)| {
        let error = task.error.as_ref().filter(|_| task.status == TaskReportStatus::Failed)?;
        let traceback = if task.traceback.trim().is_empty() {
            String::new()
        } else {
            format!("<pre>{}</pre>", escape(task.traceback.trim()))
        };
        Some(format!(
            "<article data-task=\"{index}\"><h3><i class=\"dot t{index}\"></i>{}</h3><p class=\"bad\">{}</p>\
             {traceback}<p class=\"note\">Logs of its attempts: {}/attempts/</p></article>",
            escape(&task.name),
            escape(error),
            escape(&task.dir),
        ))
    });
    let failed = concat(failed);
    if failed.is_empty() {
        return failed;
    }
    format!("<section class=\"failures\"><h2>Failures</h2>{failed}</section>\n")
}
