//! Recorded runs beside their replays in the simulator, as data and as a table: what
//! `saturn simulate --replay` shows.
//!
//! Fields are only ever added within one `version`.

use saturn_core::names::escape_terminal;
use serde::Serialize;

use crate::layout::paint::Paint;
use crate::layout::text::{Align, Table};
use crate::layout::units::{count, signed_percent};

/// The version that is written.
pub const VERSION: u32 = 1;
/// A part of a difference is named if it is at least this part of the greatest.
const WORTH_NAMING: f64 = 0.4;
/// A part of a difference below this explains nothing, seconds.
const LEAST_S: f64 = 0.05;
/// Parts of a difference that are named.
const MOST_NAMED: usize = 2;

/// Where the time of a run's devices went. Each value is device-seconds divided by the run's most
/// devices at a time, so all values except `makespan_s` sum to the makespan.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Times {
    /// When the last task ended.
    pub makespan_s: f64,
    /// Trials, up to where they end or go on as training.
    pub trials_s: f64,
    /// From launches of training to where the task is loaded.
    pub starting_s: f64,
    /// Training, up to the last checkpoint.
    pub steps_s: f64,
    /// Evaluations.
    pub evaluations_s: f64,
    /// Checkpoints.
    pub checkpoints_s: f64,
    /// From the last checkpoint to the end of the processes.
    pub ends_s: f64,
    /// Devices that nothing used.
    pub idle_s: f64,
    /// Devices that were absent: their nodes came later, or had left.
    pub absent_s: f64,
    /// Trials that were launched.
    pub trials: usize,
    /// Launches of training.
    pub launches: usize,
}

/// A recorded run beside its replay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayedRun {
    /// What the run is called.
    pub run: String,
    /// Tasks that ended.
    pub tasks: usize,
    /// The most devices that the run had at a time.
    pub devices: u32,
    /// The times of the run.
    pub realised: Times,
    /// The times of its replay in the simulator.
    pub simulated: Times,
    /// The ratio of the simulated to the realised makespan, less 1.
    pub difference: f64,
    /// The number of strategies that the simulator ran and the run had neither trained nor tried.
    /// Their step times are the run's own estimates.
    pub guessed_strategies: usize,
    /// The parts that make up most of the difference, in words.
    pub explained_by: String,
}

impl ReplayedRun {
    /// Sets both beside each other.
    pub fn of(
        run: String,
        tasks: usize,
        devices: u32,
        realised: Times,
        simulated: Times,
        guessed_strategies: usize,
    ) -> Self {
        let difference = simulated.makespan_s / realised.makespan_s.max(1e-9) - 1.0;
        let explained_by = explained_by(&realised, &simulated, guessed_strategies);
        Self {
            run,
            tasks,
            devices,
            realised,
            simulated,
            difference,
            guessed_strategies,
            explained_by,
        }
    }
}

/// Recorded runs beside their replays.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayedRuns {
    /// 1.
    pub version: u32,
    /// Whether it was stopped before every run was replayed.
    pub is_partial: bool,
    /// The median of the differences, without their signs.
    pub median_difference: Option<f64>,
    /// The greatest difference, without its sign.
    pub worst_difference: Option<f64>,
    /// In the order in which they were asked for.
    pub runs: Vec<ReplayedRun>,
}

impl ReplayedRuns {
    /// Of runs in the order in which they were asked for.
    pub fn of(runs: Vec<ReplayedRun>, is_partial: bool) -> Self {
        let mut differences: Vec<f64> = runs.iter().map(|run| run.difference.abs()).collect();
        differences.sort_by(f64::total_cmp);
        Self {
            version: VERSION,
            is_partial,
            median_difference: median(&differences),
            worst_difference: differences.last().copied(),
            runs,
        }
    }

    /// The data as text for programs.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises. If it did not, this would give an empty
        // object.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }
}

/// The middle of ascending values; of two, their mean.
fn median(values: &[f64]) -> Option<f64> {
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// The parts that make up most of a difference, in words.
fn explained_by(realised: &Times, simulated: &Times, guessed: usize) -> String {
    let parts = |times: &Times| {
        [
            (times.idle_s, "idle"),
            (times.trials_s, "trials"),
            (times.starting_s, "starting"),
            (times.steps_s, "steps"),
            (times.evaluations_s, "evaluations"),
            (times.checkpoints_s, "checkpoints"),
            (times.ends_s, "ends of processes"),
            (times.absent_s, "nodes not there"),
        ]
    };
    let mut apart: Vec<(f64, &str)> = parts(simulated)
        .into_iter()
        .zip(parts(realised))
        .map(|((simulated_s, name), (realised_s, _))| (simulated_s - realised_s, name))
        .collect();
    apart.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let greatest = apart.first().map_or(0.0, |one| one.0.abs());
    let is_worth = |one: &&(f64, &str)| one.0.abs() >= (WORTH_NAMING * greatest).max(LEAST_S);
    let named = apart.iter().filter(is_worth).take(MOST_NAMED);
    let mut words: Vec<String> =
        named.map(|(apart_s, name)| format!("{name} {apart_s:+.1} s")).collect();
    for (one, other, name) in [
        (simulated.trials, realised.trials, "trial"),
        (simulated.launches, realised.launches, "launch"),
    ] {
        if one != other {
            let more = if one > other { "more" } else { "fewer" };
            let number = one.abs_diff(other);
            let told = count(number, name);
            words.push(told.replacen(' ', &format!(" {more} "), 1));
        }
    }
    if guessed > 0 {
        words.push(format!("{} never measured", count(guessed, "strategy")));
    }
    words.join(", ")
}

/// The table for a terminal. The last line has no line end.
pub fn replayed_text(replayed: &ReplayedRuns, max_width: usize, paint: Paint) -> String {
    let mut table = Table::new(vec![
        ("run", Align::Left),
        ("tasks", Align::Right),
        ("devices", Align::Right),
        ("realised", Align::Right),
        ("simulated", Align::Right),
        ("difference", Align::Right),
        ("where they differ", Align::Left),
    ]);
    for run in &replayed.runs {
        table.push(vec![
            escape_terminal(&run.run),
            run.tasks.to_string(),
            run.devices.to_string(),
            format!("{:.1} s", run.realised.makespan_s),
            format!("{:.1} s", run.simulated.makespan_s),
            signed_percent(run.difference),
            run.explained_by.clone(),
        ]);
    }
    let mut lines: Vec<String> = table.lines(max_width, paint, |_, _, cell| cell.to_owned());
    if let (Some(median), Some(worst)) = (replayed.median_difference, replayed.worst_difference)
        && replayed.runs.len() > 1
    {
        lines.push(String::new());
        let (median, worst) = (100.0 * median, 100.0 * worst);
        lines.push(format!(
            "{}: the makespans differ by {median:.1} % (median), by {worst:.1} % at most",
            count(replayed.runs.len(), "run")
        ));
    }
    if replayed.is_partial {
        lines.push("interrupted: only the runs above were replayed".to_owned());
    }
    lines.join("\n")
}
