//! The end of a run's output: what was done, how long it took compared with the plan, and what to
//! do next.

use saturn_core::names::escape_terminal;
use saturn_engine::{Mode, RunEnd, State, TaskEnd, TaskId, TaskStatus};

use crate::explain::failures::failure_words;
use crate::facts::counts::{TaskCounts, TrialCounts};
use crate::facts::device_use::DeviceUse;
use crate::facts::history::History;
use crate::facts::outcome::{
    did_all_that_was_planned, lateness, practice_total_s, realised_makespan_s, reference_plan,
    startup_s, total_s,
};
use crate::layout::paint::Paint;
use crate::layout::units::{clock, count, duration, percent, signed_percent};
use crate::phrases::device_uses::shares;
use crate::phrases::limits;
use crate::phrases::tasks::done_words;
use crate::phrases::words::{PRACTICE_ESTIMATE, resume_command, shell_quoted};

/// The most failed tasks that are named one by one.
const MAX_FAILURES: usize = 20;

/// Where a run's results are, as paths for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Results {
    /// The run directory.
    pub run_dir: String,
    /// The path of `report.html`, if it was written.
    pub report: Option<String>,
    /// The path of `profile.json`, if it was written.
    pub profile: Option<String>,
}

/// The summary of a run that has ended or whose driver gives up.
pub fn summary(state: &State, history: &History, results: &Results, paint: Paint) -> Vec<String> {
    let mut lines = vec![String::new()];
    let is_interrupted = state.ended == Some(RunEnd::Interrupted)
        || state.ended.is_none() && state.interrupted.is_some();
    if state.config.mode == Mode::Search {
        lines.push(search_line(state, is_interrupted, paint));
    } else {
        lines.extend(training_lines(state, history, is_interrupted, paint));
        lines.extend(device_line(state, history, paint).filter(|_| !is_interrupted));
    }
    lines.extend(failure_lines(state, history, results, paint));
    let places = [("report", &results.report), ("profile", &results.profile)];
    for (label, path) in places {
        if let Some(path) = path {
            lines.push(format!("{}{}", paint.dim(&format!("{label:9}")), escape_terminal(path)));
        }
    }
    lines.push(format!("{}{}", paint.dim("run      "), escape_terminal(&results.run_dir)));
    if is_interrupted {
        let command = resume_command(state, &shell_quoted(&results.run_dir));
        lines.push(format!(
            "{}{}",
            paint.dim("resume   "),
            paint.command(&escape_terminal(&command))
        ));
    }
    lines
}

fn search_line(state: &State, is_interrupted: bool, paint: Paint) -> String {
    let counts = TrialCounts::of(state);
    let outcomes = [
        (counts.measured, "measured"),
        (counts.not_applicable, "not applicable"),
        (counts.out_of_memory, "out of memory"),
        (counts.failed, "failed"),
        (counts.open + counts.running, "left"),
    ];
    let outcomes: Vec<String> = outcomes
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    let num_all = counts.known() + counts.ruled_out + counts.open + counts.running;
    let text = if num_all == 0 {
        "no strategy is known yet".to_owned()
    } else {
        format!("{}: {}", count(num_all, "strategy"), outcomes.join(", "))
    };
    if is_interrupted { paint.warn(&format!("interrupted: {text}")) } else { paint.bold(&text) }
}

fn training_lines(
    state: &State,
    history: &History,
    is_interrupted: bool,
    paint: Paint,
) -> Vec<String> {
    let counts = TaskCounts::of(state);
    let mut others = Vec::new();
    if counts.diverged > 0 {
        others.push(format!(", {}", paint.bad(&format!("{} diverged", counts.diverged))));
    }
    if counts.failed > 0 {
        others.push(format!(", {}", paint.bad(&format!("{} failed", counts.failed))));
    }
    if counts.cancelled > 0 {
        others.push(format!(", {} cancelled", counts.cancelled));
    }
    if counts.stopped > 0 {
        others.push(format!(", {} stopped early", counts.stopped));
    }
    let others = others.concat();
    let (done, more) = done_words(&counts, is_interrupted && !state.is_closed);
    let deadlines = lateness(state, history).map(|late| {
        let text = limits::lateness(&late);
        let text = if late.num_late > 0 { paint.warn(&text) } else { text };
        format!("{}{text}", paint.dim("lateness "))
    });
    if is_interrupted {
        let first = format!("{}{others}{more}", paint.warn(&format!("interrupted: {done}")));
        return std::iter::once(first).chain(deadlines).collect();
    }
    let in_all = total_s(state, history).map(|total_s| {
        let startup_s = startup_s(state, history);
        let starting =
            (startup_s > 0.0).then(|| format!(", {} of it to start", duration(startup_s)));
        format!(" in {}{}", paint.bold(&duration(total_s)), starting.unwrap_or_default())
    });
    let mut lines = vec![format!("{}{}{others}", paint.good(&done), in_all.unwrap_or_default())];
    lines.extend(deadlines);
    let Some(realised_s) = realised_makespan_s(history) else { return lines };
    let Some(plan) = reference_plan(history) else { return lines };
    let label = paint.dim("makespan ");
    let realised =
        format!("{label}{} from the plan at {} on", duration(realised_s), clock(plan.at_s));
    if !did_all_that_was_planned(state, history) {
        lines.push(format!("{realised}; not comparable with the plan: some tasks ended early"));
        return lines;
    }
    let bound = if plan.lower_bound_s > 0.0 {
        let are_too_long =
            if realised_s < plan.lower_bound_s { ", which were too long" } else { "" };
        format!(", {} lower bound by these estimates{are_too_long}", duration(plan.lower_bound_s))
    } else {
        String::new()
    };
    lines.push(format!(
        "{realised}, {} planned ({}){bound}",
        duration(plan.makespan_s),
        signed_percent(realised_s / plan.makespan_s.max(1e-9) - 1.0),
    ));
    if let Some((practice_s, total_s)) = practice_total_s(history).zip(total_s(state, history)) {
        let takes = duration(practice_s);
        let practice = "by current practice from start to end";
        lines.push(if plan.practice_is_estimate {
            format!("         about {takes} {practice}, {PRACTICE_ESTIMATE}")
        } else {
            let ratio = practice_s / total_s.max(1e-9);
            format!(
                "         {takes} {practice}, from the same profile: {ratio:.2} × the whole run"
            )
        });
    }
    lines
}

/// Where the time of the devices went; `None` if nothing trained.
fn device_line(state: &State, history: &History, paint: Paint) -> Option<String> {
    let spent = history.device_time.spent(state);
    let (all_s, trains_s) = (spent.sum(), spent.of(DeviceUse::Trains));
    let others = shares(&spent.longest_first(), all_s);
    let others = if others.is_empty() { others } else { format!("; {others}") };
    let label = paint.dim("devices  ");
    let trained = percent(trains_s / all_s.max(1e-9));
    (trains_s > 0.0).then(|| format!("{label}trained {trained} of their time{others}"))
}

/// The failed tasks, each in a few words: lines before these have its error in full, and a command
/// shows it again.
fn failure_lines(state: &State, history: &History, results: &Results, paint: Paint) -> Vec<String> {
    let failed: Vec<(TaskId, &str)> = state
        .task_ids()
        .filter_map(|task| match &state.task(task).status {
            TaskStatus::Ended(TaskEnd::Failed { error, .. }) => Some((task, error.as_str())),
            _ => None,
        })
        .collect();
    let line = |(task, error): &(TaskId, &str)| {
        let name = paint.bad(&escape_terminal(state.name(*task)));
        let why = failure_words(state, history, *task, error);
        format!("{}{name}: {why}", paint.dim("failed   "))
    };
    let mut lines: Vec<String> = failed.iter().take(MAX_FAILURES).map(line).collect();
    let num_more = failed.len().saturating_sub(MAX_FAILURES);
    if num_more > 0 {
        lines.push(format!("{}and {num_more} more; the report has all", paint.dim("         ")));
    }
    let which = match failed[..] {
        [] => return lines,
        [(task, _)] => shell_quoted(state.name(task)),
        _ => "TASK".to_owned(),
    };
    let command = format!("saturn explain {} {which}", shell_quoted(&results.run_dir));
    let command = paint.command(&escape_terminal(&command));
    lines.push(format!("{}{command}", paint.dim("         why: ")));
    lines
}
