//! The report's first row: the run in six numbers.

use super::concat;
use super::page::tile;
use crate::report::Report;
use crate::units::{count, duration, percent, signed_percent};
use crate::words::plan_status;

pub(super) fn tiles(report: &Report) -> String {
    let totals = &report.totals;
    let compared = [
        totals.makespan_s,
        totals.planned_makespan_s,
        totals.lower_bound_s,
        totals.current_practice_s,
    ];
    let longest_s = compared.into_iter().flatten().fold(1e-9, f64::max);
    let share = |class, seconds: f64| Some((class, seconds / longest_s));
    let mut tiles = Vec::new();
    if let Some(makespan_s) = totals.makespan_s {
        let against = totals.planned_makespan_s.map(|planned_s| {
            format!("{} against the plan", signed_percent(makespan_s / planned_s.max(1e-9) - 1.0))
        });
        tiles.push(tile(
            "Realised makespan",
            &duration(makespan_s),
            &against.unwrap_or_default(),
            share("main", makespan_s),
            "from the plan with a place for every task to the end of the last training attempt",
        ));
    }
    if let (Some(planned_s), Some(plan)) = (totals.planned_makespan_s, report.reference_plan()) {
        tiles.push(tile(
            "Planned",
            &duration(planned_s),
            &format!("{}, solved in {}", plan_status(plan.status), duration(plan.solve_s)),
            share("plan", planned_s),
            "makespan of the plan with a place for every task, by the profile",
        ));
        tiles.extend(totals.lower_bound_s.map(|bound_s| {
            tile(
                "Lower bound",
                &duration(bound_s),
                &format!("gap {}", percent(plan.gap)),
                share("bound", bound_s),
                "proven: by this profile no plan is shorter",
            )
        }));
    }
    if let Some(current_practice_s) = totals.current_practice_s {
        // Both rest on the same measurements; what was realised does not.
        let ratio = totals.planned_makespan_s.map(|planned_s| {
            format!(
                "{:.2} × the plan, by the same profile",
                current_practice_s / planned_s.max(1e-9)
            )
        });
        tiles.push(tile(
            "Current practice",
            &duration(current_practice_s),
            &ratio.unwrap_or_default(),
            share("other", current_practice_s),
            "all devices for one task at a time, its best technique, by the same profile",
        ));
    }
    tiles.push(tasks(report));
    tiles.push(tile(
        "Trials",
        &duration(totals.trials_s),
        &format!("{}, {} measured", count(totals.trials, "trial"), totals.trials_measured),
        None,
        "time from the run's beginning to its first plan",
    ));
    format!("<div class=\"tiles\">{}</div>\n", concat(tiles))
}

fn tasks(report: &Report) -> String {
    let totals = &report.totals;
    let mut notes = Vec::new();
    if totals.failed > 0 {
        notes.push(format!("{} failed", totals.failed));
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
