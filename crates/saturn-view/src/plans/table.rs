//! A plan as text: the table of its tasks, and what is proven of it.

use std::fmt::Write;

use saturn_core::names::escape_terminal;
use saturn_core::{Objective, Outcome, Plan, PlanStatus, Problem, Reason, Robust, SolveEnd};
use saturn_engine::{RunPlan, State};

use crate::layout::paint::Paint;
use crate::layout::text::{Align, Table};
use crate::layout::units::{clock, count, duration, percent};
use crate::phrases::limits;
use crate::phrases::words;

/// The most places of a run's plan that are shown; the report has all.
const MAX_PLACES: usize = 60;
/// The mark before an end that rests on an estimate.
const ESTIMATE: &str = "~";

/// The table of a run's plan. Times count from the plan's adoption.
pub fn run_plan_lines(
    state: &State,
    plan: &RunPlan,
    max_width: usize,
    paint: Paint,
) -> Vec<String> {
    let config = &state.config;
    let mut table = Table::new(plan_columns(words::device_kind(config.device_kind, 2)));
    for place in plan.places.iter().take(MAX_PLACES) {
        let mark = if place.is_estimate { ESTIMATE } else { "" };
        table.push(vec![
            escape_terminal(state.name(place.task)),
            words::with_share(&escape_terminal(&place.strategy.technique), place.share),
            place.strategy.gpus.to_string(),
            words::devices(&state.cluster, &place.gang),
            format!("+{}", clock(place.start_s - plan.at_s)),
            format!("{mark}+{}", clock(place.end_s - plan.at_s)),
        ]);
    }
    let mut lines = table.lines(max_width, paint, |row, column, cell| {
        if column == 0 { paint.task(plan.places[row].task.0, cell) } else { cell.to_owned() }
    });
    if plan.places.iter().take(MAX_PLACES).any(|place| place.is_estimate) {
        lines.push(paint.dim(&format!(
            "{ESTIMATE} estimated: its strategy is measured by the first steps that train under it"
        )));
    }
    let num_more = plan.places.len().saturating_sub(MAX_PLACES);
    lines.extend(
        (num_more > 0).then(|| paint.dim(&format!("and {num_more} more; the report has all"))),
    );
    lines
}

/// The table of a planning problem's plan, by start.
pub fn plan_lines(problem: &Problem, plan: &Plan, max_width: usize, paint: Paint) -> Vec<String> {
    let has_limits = problem.tasks.iter().any(|task| !limits::of_task(task).is_empty());
    let mut columns = plan_columns("GPUs");
    if has_limits {
        columns.push(("limits", Align::Left));
    }
    let mut table = Table::new(columns);
    for assignment in &plan.assignments {
        let (Some(task), Some(strategy)) = (
            problem.tasks.get(assignment.task),
            problem
                .tasks
                .get(assignment.task)
                .and_then(|one| one.strategies.get(assignment.strategy)),
        ) else {
            continue;
        };
        let mut row = vec![
            escape_terminal(&task.name),
            words::with_share(&escape_terminal(&strategy.technique), assignment.share),
            strategy.gpus.to_string(),
            words::devices(&problem.cluster, &assignment.gang),
            clock(assignment.start_s),
            clock(assignment.end_s),
        ];
        if has_limits {
            row.push(limits::of_task(task));
        }
        table.push(row);
    }
    let tasks: Vec<usize> = plan.assignments.iter().map(|assignment| assignment.task).collect();
    table.lines(max_width, paint, |row, column, cell| {
        if column == 0 { paint.task(tasks[row], cell) } else { cell.to_owned() }
    })
}

fn plan_columns(devices: &'static str) -> Vec<(&'static str, Align)> {
    vec![
        ("task", Align::Left),
        ("technique", Align::Left),
        (devices, Align::Right),
        ("devices", Align::Left),
        ("start", Align::Right),
        ("end", Align::Right),
    ]
}

/// What is proven of a run's plan: `makespan 2 min 31 s, lower bound 2 min 29 s by these estimates,
/// gap 1.3 % (not proven optimal), solved in 2.0 s`.
pub fn run_plan_claim(plan: &RunPlan) -> String {
    claim(plan.makespan_s, plan.lower_bound_s, plan.gap(), plan.status, plan.solve_s)
}

/// The same for a planning problem's plan and its objective. If the objective is not the makespan,
/// the line gives the makespan too.
pub fn plan_claim(plan: &Plan) -> String {
    if plan.is_usable() {
        let Plan { status, makespan_s, solve_s, .. } = *plan;
        if plan.objective == Objective::Makespan {
            return claim(makespan_s, plan.lower_bound_s, plan.gap(), status, solve_s);
        }
        let gap = if plan.gap().is_finite() { percent(plan.gap()) } else { "unknown".to_owned() };
        format!(
            "{} {}, lower bound {}, gap {gap} ({}), makespan {}, solved in {}",
            objective_name(plan.objective),
            amount(plan.objective, plan.value()),
            bound_words(&amount(plan.objective, plan.bound()), status),
            words::plan_status(status),
            duration(makespan_s),
            duration(solve_s),
        )
    } else {
        let is_over = (plan.status, plan.ended) == (PlanStatus::TimedOut, SolveEnd::Complete);
        let told = if is_over { "no plan was found" } else { words::plan_status(plan.status) };
        format!("{told} after {}", duration(plan.solve_s))
    }
}

/// The name of a value under an objective.
pub(crate) fn objective_name(objective: Objective) -> &'static str {
    match objective {
        Objective::Makespan => "makespan",
        Objective::Completion => "weighted completion",
        Objective::Cost => "cost",
    }
}

/// A value under an objective: a duration or an amount of money.
pub(crate) fn amount(objective: Objective, value: f64) -> String {
    match objective {
        Objective::Makespan | Objective::Completion => duration(value),
        Objective::Cost => format!("{value:.2}"),
    }
}

/// A bound, with the remark that it rests on estimates unless the plan is optimal.
fn bound_words(bound: &str, status: saturn_core::PlanStatus) -> String {
    let rests_on = match status {
        saturn_core::PlanStatus::Optimal => "",
        _ => " by these estimates",
    };
    format!("{bound}{rests_on}")
}

fn claim(
    makespan_s: f64,
    lower_bound_s: f64,
    gap: f64,
    status: saturn_core::PlanStatus,
    solve_s: f64,
) -> String {
    if lower_bound_s <= 0.0 {
        return format!("makespan {}, nothing proven", duration(makespan_s));
    }
    format!(
        "makespan {}, lower bound {}, gap {} ({}), solved in {}",
        duration(makespan_s),
        bound_words(&duration(lower_bound_s), status),
        percent(gap),
        words::plan_status(status),
        duration(solve_s),
    )
}

/// Compares current practice with `makespan_s`. If `is_estimate`, current practice uses a strategy
/// that was only estimated: then its time may be far off, and the plan's proof does not cover that
/// strategy.
pub fn current_practice_claim(
    current_practice_s: f64,
    makespan_s: f64,
    is_estimate: bool,
) -> String {
    let practice = "current practice (all devices for one task at a time, its best technique)";
    let takes = duration(current_practice_s);
    if is_estimate {
        return format!(
            "{practice} would take about {takes}, {}; what is proven of the plan is about measured \
             strategies alone",
            words::PRACTICE_ESTIMATE
        );
    }
    let ratio = if makespan_s > 0.0 {
        format!(": {:.2} × as long", current_practice_s / makespan_s)
    } else {
        String::new()
    };
    format!("{practice} would take {takes} by the same profile{ratio}")
}

/// How a plan does under drawn runtimes, beside the plan that would be best as planned.
fn robust_claim(objective: Objective, robust: &Robust) -> String {
    let words = |outcome: &Outcome| {
        let mut parts = Vec::new();
        if outcome.missed_s > 0.0 {
            parts.push(format!("deadlines missed by {}", duration(outcome.missed_s)));
        }
        if outcome.tardiness > 0.0 {
            parts.push(format!("tardiness {:.1}", outcome.tardiness));
        }
        let value = amount(objective, outcome.value);
        parts.push(format!("{} {value}", objective_name(objective)));
        parts.join(", ")
    };
    let (draws, share) = (count(robust.draws, "draw"), percent(robust.quantile));
    let Robust { outcome, best_outcome, .. } = robust;
    let mut text = format!("in {share} of {draws} of runtimes: at most {}", words(outcome));
    if outcome == best_outcome {
        let _infallible = write!(text, "; none of {} does better", count(robust.plans, "plan"));
    } else {
        let best = amount(objective, robust.best_value);
        let _infallible = write!(
            text,
            "; the best plan as planned ({} {best}) comes to {}",
            objective_name(objective),
            words(best_outcome)
        );
    }
    text
}

/// A plan of a planning problem for a terminal: its claim, current practice, table and drawing.
///
/// If there is no plan, the text says why, task by task. The last line has no line end.
pub fn plan_text(
    problem: &Problem,
    plan: &Plan,
    current_practice_s: Option<f64>,
    max_width: usize,
    paint: Paint,
) -> String {
    let mut lines = vec![format!(
        "{}: {}",
        paint.bold(&format!(
            "{} on {}",
            count(problem.tasks.len(), "task"),
            count(problem.cluster.num_gpus() as usize, "GPU")
        )),
        plan_claim(plan)
    )];
    if plan.is_usable() {
        if let Some(current_practice_s) = current_practice_s {
            lines.push(current_practice_claim(current_practice_s, plan.makespan_s, false));
        }
        lines.extend(plan.robust.as_ref().map(|robust| robust_claim(plan.objective, robust)));
        lines.push(String::new());
        lines.extend(plan_lines(problem, plan, max_width, paint));
        lines.push(String::new());
        lines.extend(crate::plans::chart::draw(problem, plan, max_width, paint));
        let limits = limits::of_plan(problem, plan);
        if !limits.is_empty() {
            lines.push(String::new());
            lines.extend(limits);
        }
    } else {
        for Reason { task, reason, .. } in &plan.reasons {
            let reason = escape_terminal(reason);
            lines.push(match task.and_then(|task| problem.tasks.get(task)) {
                Some(task) => format!("  {}: {reason}", paint.bad(&escape_terminal(&task.name))),
                None => format!("  {reason}"),
            });
        }
    }
    lines.join("\n")
}
