//! The first row of a report: the run in six numbers.

use maud::{Markup, html};
use saturn_core::Lateness;

use crate::facts::run_status::RunStatus;
use crate::html::frame::tile;
use crate::layout::units::{count, duration, percent, signed_percent};
use crate::phrases::words::plan_status;
use crate::report::data::{Report, Totals};

pub(super) fn tiles(report: &Report) -> Markup {
    let totals = &report.totals;
    let is_complete = report.status == RunStatus::Complete;
    let is_compared = totals.is_compared(report.status);
    let compared = [
        totals.total_s,
        totals.planned_makespan_s,
        totals.lower_bound_s.filter(|_| is_compared),
        totals.current_practice_total_s.filter(|_| is_compared),
    ];
    let longest_s = compared.into_iter().flatten().fold(1e-9, f64::max);
    let share = |class, seconds: f64| Some((class, seconds / longest_s));
    let realised = totals.total_s.map(|total_s| {
        tile(
            if is_complete { "Start to end" } else { "Trained so far" },
            &duration(total_s),
            &totals.makespan_s.map_or_else(String::new, |makespan_s| {
                format!("{} from the plan on", duration(makespan_s))
            }),
            share("main", total_s),
            "from the run's start to the end of the last training attempt: the import of torch and \
             trials are included",
        )
    });
    let plan = report.reference_plan();
    let planned = plan.map(|plan| {
        let proven = if plan.lower_bound_s > 0.0 {
            format!("{}, solved in {}", plan_status(plan.status), duration(plan.solve_s))
        } else {
            "nothing proven".to_owned()
        };
        let against = totals.makespan_s.filter(|_| is_complete && is_compared);
        let against = against.map(|makespan_s| {
            let over = signed_percent(makespan_s / plan.makespan_s.max(1e-9) - 1.0);
            format!("; realised {over}")
        });
        let against = against.unwrap_or_else(|| {
            if is_compared { String::new() } else { "; some tasks ended early".to_owned() }
        });
        tile(
            "Planned",
            &duration(plan.makespan_s),
            &format!("{proven}{against}"),
            share("plan", plan.makespan_s),
            "makespan of the plan with a place for every task, by the profile",
        )
    });
    let bound = totals.lower_bound_s.filter(|_| is_compared).zip(plan).map(|(bound_s, plan)| {
        tile(
            "Lower bound",
            &duration(bound_s),
            &if is_below_bound(totals, report.status) {
                "the run was shorter: the estimates were too long".to_owned()
            } else {
                format!("by these estimates, gap {}", percent(plan.gap))
            },
            share("bound", bound_s),
            "proven: by these estimates no plan is shorter",
        )
    });
    let practice_s = totals.current_practice_total_s.filter(|_| is_compared);
    let current_practice = practice_s.map(|seconds| {
        let how = if totals.current_practice_is_estimate {
            "by an estimate, which may be far off"
        } else {
            "by the same profile"
        };
        let ratio = totals
            .total_s
            .filter(|_| is_complete && !totals.current_practice_is_estimate)
            .map(|total_s| format!("{:.2} × start to end, {how}", seconds / total_s.max(1e-9)));
        tile(
            "Current practice",
            &duration(seconds),
            &ratio.unwrap_or_else(|| how.to_owned()),
            share("other", seconds),
            "all devices for one task at a time, its best technique, from start to end",
        )
    });
    html! {
        div.tiles {
            @for tile in [realised, planned, bound, current_practice].into_iter().flatten() {
                (tile)
            }
            (tasks(report))
            @if let Some(lateness) = &totals.lateness { (deadlines(lateness)) }
            (tile(
                "Trials",
                &duration(totals.trials_s),
                &format!("{}, {} measured", count(totals.trials, "trial"), totals.trials_measured),
                None,
                "time from the run's beginning to its first plan",
            ))
        }
    }
}

/// Whether a complete run took less time than its proven lower bound. Then the estimates behind
/// that bound were too long.
pub(super) fn is_below_bound(totals: &Totals, status: RunStatus) -> bool {
    let is_over = status == RunStatus::Complete && totals.did_all_that_was_planned;
    let below = |(took_s, bound_s): (f64, f64)| took_s < bound_s;
    is_over && totals.makespan_s.zip(totals.lower_bound_s).is_some_and(below)
}

/// How many deadlines were kept, and how late the other tasks are.
fn deadlines(lateness: &Lateness) -> Markup {
    let Lateness { num_due, num_late, mean_s, p90_s, worst_s } = *lateness;
    let note = if num_late == 0 {
        String::new()
    } else {
        format!(
            "late: {} on average, {} at the 90th percentile, {} at worst",
            duration(mean_s),
            duration(p90_s),
            duration(worst_s),
        )
    };
    tile(
        "Deadlines kept",
        &format!("{} of {num_due}", num_due - num_late),
        &note,
        None,
        "of tasks that ended, and of open tasks whose deadline has passed; the average is over all of \
         them",
    )
}

fn tasks(report: &Report) -> Markup {
    let totals = &report.totals;
    let mut notes = Vec::new();
    if totals.diverged > 0 {
        notes.push(format!("{} diverged", totals.diverged));
    }
    if totals.failed > 0 {
        notes.push(format!("{} failed", totals.failed));
    }
    if totals.cancelled > 0 {
        notes.push(format!("{} cancelled", totals.cancelled));
    }
    if totals.stopped > 0 {
        notes.push(format!("{} stopped", totals.stopped));
    }
    if totals.lacks_tasks {
        notes.push("more may come once it is resumed".to_owned());
    }
    if let Some(share) = totals.device_use {
        notes.push(format!("devices {} in use", percent(share)));
    }
    tile(
        "Tasks done",
        &format!(
            "{} of {}{}",
            totals.done,
            totals.tasks,
            if totals.lacks_tasks { " so far" } else { "" }
        ),
        &notes.join(", "),
        None,
        "tasks trained to the end; share of the devices' time within the realised makespan that \
         training held",
    )
}
