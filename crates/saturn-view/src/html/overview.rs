//! The report's first row: the run in six numbers.

use maud::{Markup, html};

use super::page::tile;
use crate::report::{Report, RunStatus};
use crate::units::{count, duration, percent, signed_percent};
use crate::words::plan_status;

pub(super) fn tiles(report: &Report) -> Markup {
    let totals = &report.totals;
    let compared = [
        totals.makespan_s,
        totals.planned_makespan_s,
        totals.lower_bound_s,
        totals.current_practice_s,
    ];
    let longest_s = compared.into_iter().flatten().fold(1e-9, f64::max);
    let share = |class, seconds: f64| Some((class, seconds / longest_s));
    let is_complete = report.status == RunStatus::Complete;
    let realised = totals.makespan_s.map(|makespan_s| {
        let against = totals.planned_makespan_s.filter(|_| is_complete).map(|planned_s| {
            format!("{} against the plan", signed_percent(makespan_s / planned_s.max(1e-9) - 1.0))
        });
        tile(
            if is_complete { "Realised makespan" } else { "Trained so far" },
            &duration(makespan_s),
            &against.unwrap_or_default(),
            share("main", makespan_s),
            "from the plan with a place for every task to the end of the last training attempt",
        )
    });
    let plan = report.reference_plan();
    let planned = plan.map(|plan| {
        let proven = if plan.lower_bound_s > 0.0 {
            format!("{}, solved in {}", plan_status(plan.status), duration(plan.solve_s))
        } else {
            "nothing proven".to_owned()
        };
        tile(
            "Planned",
            &duration(plan.makespan_s),
            &proven,
            share("plan", plan.makespan_s),
            "makespan of the plan with a place for every task, by the profile",
        )
    });
    let bound = totals.lower_bound_s.zip(plan).map(|(bound_s, plan)| {
        tile(
            "Lower bound",
            &duration(bound_s),
            &format!("gap {}", percent(plan.gap)),
            share("bound", bound_s),
            "proven: by this profile no plan is shorter",
        )
    });
    let current_practice = totals.current_practice_s.map(|seconds| {
        // Both rest on the same measurements; what was realised does not.
        let ratio = totals.planned_makespan_s.map(|planned_s| {
            format!("{:.2} × the plan, by the same profile", seconds / planned_s.max(1e-9))
        });
        tile(
            "Current practice",
            &duration(seconds),
            &ratio.unwrap_or_default(),
            share("other", seconds),
            "all devices for one task at a time, its best technique, by the same profile",
        )
    });
    html! {
        div.tiles {
            @for tile in [realised, planned, bound, current_practice].into_iter().flatten() {
                (tile)
            }
            (tasks(report))
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

fn tasks(report: &Report) -> Markup {
    let totals = &report.totals;
    let mut notes = Vec::new();
    if totals.failed > 0 {
        notes.push(format!("{} failed", totals.failed));
    }
    if totals.cancelled > 0 {
        notes.push(format!("{} cancelled", totals.cancelled));
    }
    if let Some(share) = totals.device_use {
        notes.push(format!("devices {} in use", percent(share)));
    }
    tile(
        "Tasks done",
        &format!("{} of {}", totals.done, totals.tasks),
        &notes.join(", "),
        None,
        "tasks trained to the end; share of the devices' time within the realised makespan that \
         training held",
    )
}
