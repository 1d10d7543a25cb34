//! A page that compares runs: numbers, Gantt charts on one time axis, curves of tasks of the same
//! name in one chart, and how each task ran in each run.
//!
//! In the Gantt charts, looks distinguish tasks, and tasks of the same name look alike. In the
//! curves, looks distinguish runs.

use maud::{Markup, html};

use crate::facts::run_status::RunStatus;
use crate::html::curves::{Chart, ChartSize, Curve, key};
use crate::html::evaluations;
use crate::html::frame::{Page, badge, section};
use crate::html::overview::is_below_bound;
use crate::html::parts::{long_table, not_shown, task_class};
use crate::html::schedule;
use crate::layout::units::{count, duration, number, percent};
use crate::phrases::words::{pool, technique_on};
use crate::report::comparison::{
    ComparedRun, ComparedTask, Comparison, TaskInRun, places, task_names,
};
use crate::report::data::{Report, TaskReport};

/// The most rows of the table of tasks.
const MAX_TASKS: usize = 1000;
/// The most charts of curves that are visible at first, and the most that are folded away.
const MAX_CHARTS: usize = 8;
const MAX_FOLDED: usize = 52;

/// Renders a self-contained page that compares runs. Each run is called by its report's `name`.
pub fn comparison_html(reports: &[Report]) -> String {
    let comparison = Comparison::of(reports);
    let names = task_names(reports);
    let run_names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    let subtitle =
        format!("{} · {}", run_names.join(", "), count(comparison.tasks.len(), "task name"));
    let body = html! {
        (section("Runs", &runs(&comparison)))
        (section("Schedules", &schedules(reports, &names)))
        (section("Curves", &curves(reports, &names)))
        (section("Tasks", &tasks(&comparison)))
    };
    let title = format!("{} side by side", count(reports.len(), "run"));
    let num_looks = names.len().max(reports.len());
    Page { title: &title, subtitle: &subtitle, badge: None, num_tasks: num_looks, body }.render()
}

/// The key that highlights everything of a run together.
fn run_key(run: usize) -> String {
    format!("r{run}")
}

fn runs(comparison: &Comparison) -> Markup {
    let longest_s = |of: fn(&ComparedRun) -> Option<f64>| {
        comparison.runs.iter().filter_map(of).fold(1e-9, f64::max)
    };
    let longest_s = longest_s(|run| run.totals.total_s);
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "run" } th { "status" } th { "devices" }
                        th.n title="from the first task's arrival to the end of the last training attempt, trials included" { "start to end" }
                        th {}
                        th.n title="all devices for one task at a time, its best technique, from start to end" { "current practice" }
                        th.n title="from the plan with a place for every task to the end of the last training attempt" { "makespan" }
                        th.n title="makespan of that plan" { "planned" }
                        th.n title="of that makespan: by the run's estimates no plan is shorter" { "lower bound" }
                        th.n title="devices times seconds that training held" { "training" }
                        th.n title="devices times seconds that trials held" { "trials" }
                        th.n title="share of the devices' time within the makespan that training held" { "in use" }
                        th.n { "done" } th { "best task" }
                    }
                }
                tbody {
                    @for (index, run) in comparison.runs.iter().enumerate() { (run_row(index, run, longest_s)) }
                }
            }
        }
    }
}

fn run_row(index: usize, run: &ComparedRun, longest_s: f64) -> Markup {
    let totals = &run.totals;
    let dash = || "–".to_owned();
    let taken = |seconds: Option<f64>| seconds.map_or_else(dash, duration);
    let compared = |seconds: Option<f64>| seconds.filter(|_| totals.is_compared(run.status));
    let device_time = |seconds: f64| if seconds > 0.0 { duration(seconds) } else { dash() };
    let (class, status) = badge(run.status, totals.done, totals.failed);
    let num_devices = u32::try_from(run.devices).unwrap_or(u32::MAX);
    html! {
        tr data-task=(run_key(index)) {
            td.task { (key(&task_class(index))) " " b { (run.name) } }
            td.(class) { (status) }
            td { (pool(run.device_kind, num_devices, run.device_memory_bytes)) }
            td.n { b { (taken(totals.total_s)) } }
            td {
                @if let Some(total_s) = totals.total_s {
                    div.share.wide { i.main style=(format!("width:{:.1}%", total_s / longest_s * 100.0)) {} }
                }
            }
            td.n { (taken(compared(totals.current_practice_total_s))) }
            td.n { (taken(totals.makespan_s)) }
            td.n { (taken(compared(totals.planned_makespan_s))) }
            td.n {
                (taken(compared(totals.lower_bound_s)))
                @if is_below_bound(totals, run.status) { " (estimates too long)" }
            }
            td.n { (device_time(run.training_device_s)) }
            td.n { (device_time(run.trials_device_s)) }
            td.n { (totals.device_use.map_or_else(dash, percent)) }
            td.n { (totals.done) " of " (totals.tasks) }
            td {
                @match &run.best {
                    Some(best) => { (best.task) " " span.note { (best.metric) " " } b { (number(best.value)) } },
                    None => "–",
                }
            }
        }
    }
}

fn schedules(reports: &[Report], names: &[&str]) -> Markup {
    let ends = reports.iter().map(schedule::end_s);
    let to_s = ends.fold(1e-9, f64::max);
    let charts: Vec<_> = reports
        .iter()
        .map(|report| {
            let mut chart = schedule::realised(report, to_s);
            let places = places(report, names);
            for bar in &mut chart.bars {
                bar.task = places.get(bar.task).copied().unwrap_or(bar.task);
            }
            chart
        })
        .collect();
    html! {
        p.note { "Each on its own clock, all on one axis. A task has the same look in every run; pale bars are trials." }
        @for (report, chart) in reports.iter().zip(&charts) {
            h3 {
                (report.name)
                span.note {
                    @match report.totals.total_s {
                        Some(total_s) if report.status == RunStatus::Complete => (duration(total_s)),
                        _ => (report.status.word()),
                    }
                }
            }
            (chart.markup())
        }
    }
}

/// Charts of losses and evaluations for tasks that several runs have. Tasks that most runs have
/// come first.
fn curves(reports: &[Report], names: &[&str]) -> Markup {
    let mut of_names: Vec<Vec<(usize, &TaskReport)>> = vec![Vec::new(); names.len()];
    for (run, report) in reports.iter().enumerate() {
        for (task, place) in report.tasks.iter().zip(places(report, names)) {
            of_names[place].push((run, task));
        }
    }
    let mut shared: Vec<&Vec<(usize, &TaskReport)>> =
        of_names.iter().filter(|tasks| tasks.len() > 1).collect();
    shared.sort_by_key(|tasks| std::cmp::Reverse(tasks.len()));
    let charts: Vec<(String, Markup)> = shared
        .iter()
        .flat_map(|tasks| [loss_chart(reports, tasks), evaluation_chart(reports, tasks)])
        .flatten()
        .collect();
    if charts.is_empty() {
        return Markup::default();
    }
    let multiples = |charts: &[(String, Markup)]| {
        html! {
            div.multiples {
                @for (title, chart) in charts { div { h3 { (title) } (chart) } }
            }
        }
    };
    let (seen, rest) = charts.split_at(charts.len().min(MAX_CHARTS));
    let (folded, left_out) = rest.split_at(rest.len().min(MAX_FOLDED));
    html! {
        p.note { "A line a run, for tasks that more than one of them has. Losses are smoothed." }
        (multiples(seen))
        @if !folded.is_empty() {
            details.fold { summary { b { (count(folded.len(), "more chart")) } } (multiples(folded)) }
        }
        @if !left_out.is_empty() {
            p.note { (count(left_out.len(), "more chart")) " are left out; each run's own report has its curves." }
        }
    }
}

fn loss_chart(reports: &[Report], tasks: &[(usize, &TaskReport)]) -> Option<(String, Markup)> {
    let points = |task: &TaskReport| (task.losses.clone(), task.final_loss);
    chart(reports, tasks, "loss", true, points)
}

/// A chart of the metric that the first of these tasks is judged by.
fn evaluation_chart(
    reports: &[Report],
    tasks: &[(usize, &TaskReport)],
) -> Option<(String, Markup)> {
    let metric = tasks.iter().find_map(|(_, task)| {
        evaluations::chief_name(task, task.evaluation.as_ref()?.last.as_ref()?)
    })?;
    let points = |task: &TaskReport| {
        let points = evaluations::points(task, metric);
        let last = points.last().map(|point| point.1);
        (points, last)
    };
    chart(reports, tasks, metric, false, points)
}

fn chart(
    reports: &[Report],
    tasks: &[(usize, &TaskReport)],
    metric: &str,
    is_noisy: bool,
    points: impl Fn(&TaskReport) -> (Vec<crate::report::metrics::LossPoint>, Option<f64>),
) -> Option<(String, Markup)> {
    let curves = tasks.iter().filter_map(|(run, task)| {
        let (points, value) = points(task);
        let (key, class) = (run_key(*run), task_class(*run));
        let name = reports[*run].name.as_str();
        (!points.is_empty()).then_some(Curve { key, class, name, points, value })
    });
    let curves: Vec<Curve> = curves.collect();
    // A single curve has nothing to be compared with.
    if curves.len() < 2 {
        return None;
    }
    let title = format!("{}: {metric}", tasks.first()?.1.name);
    let label = format!("{title}, by step, of each run");
    Some((title, Chart { label, size: ChartSize::Small, is_noisy, axis: "step", curves }.markup()))
}

fn tasks(comparison: &Comparison) -> Markup {
    let num_left_out = comparison.tasks.len().saturating_sub(MAX_TASKS);
    let head = html! { tr { th { "task" } @for run in &comparison.runs { th { (run.name) } } } };
    let rows = comparison.tasks.iter().enumerate().take(MAX_TASKS);
    let rows: Vec<Markup> = rows.map(|(index, task)| task_row(index, task)).collect();
    html! {
        p.note { "How each task ran in each run: strategy, time, and how well it did. The shortest time is bold." }
        (long_table(&head, &rows, "task"))
        (not_shown(num_left_out, "task"))
    }
}

fn task_row(index: usize, task: &ComparedTask) -> Markup {
    let times = task.runs.iter().flatten().filter_map(|one| one.train_s);
    let shortest_s = times.fold(f64::INFINITY, f64::min);
    html! {
        tr data-task=(index) {
            td.task { i.dot.(task_class(index)) {} (task.name) }
            @for one in &task.runs {
                @match one {
                    Some(one) => (cell(one, shortest_s)),
                    None => td.dim { "–" },
                }
            }
        }
    }
}

fn cell(one: &TaskInRun, shortest_s: f64) -> Markup {
    let (class, status) = crate::html::tables::status_words(one.status);
    let strategy = one.technique.as_ref().zip(one.gpus);
    let is_shortest = one.train_s.is_some_and(|time_s| time_s <= shortest_s);
    html! {
        td {
            @if let Some((technique, gpus)) = strategy { (technique_on(technique, gpus)) " · " }
            @if let Some(time_s) = one.train_s {
                @if is_shortest { b { (duration(time_s)) } } @else { (duration(time_s)) }
            }
            div.note {
                span.(class) { (status) }
                @if let Some(value) = one.value { " · " (one.metric) " " (number(value)) }
                @if one.attempts > 1 { " · " (count(one.attempts, "attempt")) }
            }
        }
    }
}
