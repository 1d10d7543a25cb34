//! What runs at this moment: the live region of a terminal, and the counter line of a pipe.

use saturn_core::TrialOutcome;
use saturn_core::names::escape_terminal;
use saturn_engine::{
    Attempt, AttemptId, Forecast, Phase, Purpose, State, TaskId, TaskStatus, forecast,
};

use crate::outcome::task_counts;
use crate::paint::Paint;
use crate::text::{bar, fit, fit_coloured, pad, pad_left, width};
use crate::transcript::trial_progress;
use crate::units::{clock, count, duration, number};
use crate::words;

/// Columns of the overall bar and of a task's bar.
const OVERALL_BAR: usize = 30;
const TASK_BAR: usize = 16;
/// Longer names are cut.
const MAX_NAME: usize = 28;
/// Lines of the region that are not of attempts.
const OTHER_LINES: usize = 3;
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The live region: the run as a whole, then a line for each running attempt, then what comes next.
/// No line is wider than `columns`, and there are at most `rows`.
pub fn region(state: &State, now_s: f64, columns: usize, rows: usize, paint: Paint) -> Vec<String> {
    let forecast = forecast(state, now_s);
    let mut lines = vec![overall(state, &forecast, now_s, paint)];
    let live: Vec<(AttemptId, &Attempt)> = state.live_attempts().collect();
    let room = rows.saturating_sub(OTHER_LINES).max(1);
    let num_shown = if live.len() > room { room - 1 } else { live.len() };
    let widths = Widths::of(state, &forecast, &live, now_s);
    for (_, attempt) in &live[..num_shown] {
        lines.push(attempt_line(state, &forecast, attempt, now_s, &widths, paint));
    }
    if live.len() > num_shown {
        lines.push(paint.dim(&format!("  and {} more", live.len() - num_shown)));
    }
    if let Some(next) = next_line(state, &forecast, now_s) {
        lines.push(paint.dim(&next));
    }
    lines.iter().map(|line| fit_coloured(line, columns.saturating_sub(1))).collect()
}

/// One line for logs: how far the run is, and each running attempt. `None` where nothing runs.
pub fn counter(state: &State, now_s: f64) -> Option<String> {
    let forecast = forecast(state, now_s);
    let running: Vec<String> =
        state.live_attempts().map(|(_, attempt)| brief(state, &forecast, attempt, now_s)).collect();
    if running.is_empty() {
        return None;
    }
    Some(format!("{}: {}", position(state, &forecast, now_s), running.join("; ")))
}

/// How far the run is, and what is left of it.
fn position(state: &State, forecast: &Forecast, now_s: f64) -> String {
    match state.phase() {
        Phase::Trials => {
            let (num_known, num_all) = trial_progress(state);
            let left = trials_left_s(state, now_s)
                .map(|left_s| format!(", about {} left", duration(left_s)))
                .unwrap_or_default();
            format!("{num_known} of {}{left}", count(num_all, "trial"))
        }
        Phase::Planning => "planning".to_owned(),
        Phase::Stopping if state.interrupted == Some(true) => "stopping at once".to_owned(),
        Phase::Stopping => "stopping at checkpoints; Ctrl-C again to stop at once".to_owned(),
        Phase::Training | Phase::Ended(_) => {
            let counts = task_counts(state);
            let failed = if counts.failed > 0 {
                format!(", {} failed", counts.failed)
            } else {
                String::new()
            };
            let left = if state.plan().is_some() && forecast.end_s > now_s {
                format!(", about {} left", duration(forecast.end_s - now_s))
            } else {
                String::new()
            };
            format!("{} of {} done{failed}{left}", counts.done, count(counts.all, "task"))
        }
    }
}

fn overall(state: &State, forecast: &Forecast, now_s: f64, paint: Paint) -> String {
    let position = position(state, forecast, now_s);
    let (label, share) = match state.phase() {
        Phase::Trials => {
            let (num_known, num_all) = trial_progress(state);
            ("trials", num_known as f64 / num_all.max(1) as f64)
        }
        Phase::Planning => ("plan", 0.0),
        Phase::Stopping => ("stop", trained_share(state, forecast, now_s)),
        Phase::Training | Phase::Ended(_) => ("train", trained_share(state, forecast, now_s)),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time on the run's clock picks a picture"
    )]
    let turn = (now_s.max(0.0) * 8.0) as usize % SPINNER.len();
    let starting = if state.phase() == Phase::Trials && state.attempts.is_empty() {
        paint.dim("  starting the first workers")
    } else {
        String::new()
    };
    format!(
        "{} {}  {}  {}  {}{starting}",
        SPINNER[turn],
        pad_left(&clock(now_s), 5),
        paint.bold(&pad(label, 6)),
        bar(share, OVERALL_BAR, paint),
        position,
    )
}

/// Share of the time from the first plan to the forecast end that has passed.
fn trained_share(state: &State, forecast: &Forecast, now_s: f64) -> f64 {
    let Some(first) = state.plans.first() else { return 0.0 };
    if state.plan().is_none() {
        let counts = task_counts(state);
        return (counts.done + counts.failed) as f64 / counts.all.max(1) as f64;
    }
    (now_s - first.at_s) / (forecast.end_s - first.at_s).max(1e-9)
}

/// Column widths of the attempts' lines.
struct Widths {
    name: usize,
    strategy: usize,
    steps: usize,
    status: usize,
}

impl Widths {
    fn of(state: &State, forecast: &Forecast, live: &[(AttemptId, &Attempt)], now_s: f64) -> Self {
        let widest = |texts: &mut dyn Iterator<Item = String>| {
            texts.map(|text| width(&text)).max().unwrap_or(0)
        };
        Self {
            name: widest(&mut live.iter().map(|(_, one)| name(state, one.task))),
            strategy: widest(&mut live.iter().map(|(_, one)| words::strategy(&one.strategy))),
            steps: widest(&mut live.iter().map(|(_, one)| steps(state, one))),
            status: widest(&mut live.iter().map(|(_, one)| status(state, forecast, one, now_s))),
        }
    }
}

fn name(state: &State, task: TaskId) -> String {
    fit(&escape_terminal(state.name(task)), MAX_NAME)
}

fn steps(state: &State, attempt: &Attempt) -> String {
    match state.task(attempt.task).steps {
        Some(steps) => format!("{}/{steps}", attempt.step),
        None => attempt.step.to_string(),
    }
}

fn attempt_line(
    state: &State,
    forecast: &Forecast,
    attempt: &Attempt,
    now_s: f64,
    widths: &Widths,
    paint: Paint,
) -> String {
    let head = format!(
        "  {}  {}",
        paint.task(attempt.task.0, &pad(&name(state, attempt.task), widths.name)),
        pad(&words::strategy(&attempt.strategy), widths.strategy),
    );
    let place = paint.dim(&words::on_devices(&state.config.cluster, &attempt.gang));
    let task = state.task(attempt.task);
    let what = match attempt.purpose {
        Purpose::Trial(_) => format!("trial, {}", duration(now_s - attempt.launched_s)),
        Purpose::Train => {
            let share = attempt.step as f64 / task.steps.unwrap_or(0).max(1) as f64;
            let loss = task.loss.map(|loss| format!("  loss {}", number(loss))).unwrap_or_default();
            format!(
                "{}  {}{loss}  {}",
                bar(share, TASK_BAR, paint),
                pad_left(&steps(state, attempt), widths.steps),
                pad(&status(state, forecast, attempt, now_s), widths.status),
            )
        }
    };
    format!("{head}  {what}  {place}")
}

/// `12 s left`, or what the attempt does instead of training.
fn status(state: &State, forecast: &Forecast, attempt: &Attempt, now_s: f64) -> String {
    if attempt.killing {
        return "being killed".to_owned();
    }
    if attempt.stopping.is_some() {
        return "stopping at a checkpoint".to_owned();
    }
    if attempt.started.is_none() {
        return format!("starting, {}", duration(now_s - attempt.launched_s));
    }
    match forecast.tasks.get(&attempt.task) {
        Some((_, end_s)) if state.task(attempt.task).steps.is_some() => {
            format!("{} left", duration((end_s - now_s).max(0.0)))
        }
        _ => String::new(),
    }
}

fn brief(state: &State, forecast: &Forecast, attempt: &Attempt, now_s: f64) -> String {
    let name = name(state, attempt.task);
    let strategy = words::strategy(&attempt.strategy);
    match attempt.purpose {
        Purpose::Trial(_) => {
            format!("{name} {strategy} {}", duration(now_s - attempt.launched_s))
        }
        Purpose::Train => {
            let loss = state.task(attempt.task).loss;
            let loss = loss.map(|loss| format!(" loss {},", number(loss))).unwrap_or_default();
            format!(
                "{name} {} {loss} {}",
                steps(state, attempt),
                status(state, forecast, attempt, now_s)
            )
            .replace("  ", " ")
        }
    }
}

/// `5 tasks wait; next vit-a in 12 s (ddp × 1 on device 0)`.
fn next_line(state: &State, forecast: &Forecast, now_s: f64) -> Option<String> {
    if state.interrupted.is_some() {
        return None;
    }
    let plan = state.plan()?;
    let waiting = || {
        plan.tasks.iter().filter(|planned| state.task(planned.task).status == TaskStatus::Waiting)
    };
    let start_s =
        |task: TaskId| forecast.tasks.get(&task).map_or(f64::INFINITY, |(start, _)| *start);
    let next =
        waiting().min_by(|left, right| start_s(left.task).total_cmp(&start_s(right.task)))?;
    let wait_s = start_s(next.task) - now_s;
    let num_waiting = waiting().count();
    Some(format!(
        "  {} {}; next {} in {} ({} on {})",
        count(num_waiting, "task"),
        if num_waiting == 1 { "waits" } else { "wait" },
        name(state, next.task),
        if wait_s.is_finite() { duration(wait_s.max(0.0)) } else { "?".to_owned() },
        words::strategy(&next.strategy),
        words::on_devices(&state.config.cluster, &next.gang),
    ))
}

/// Seconds until all trials have their outcomes, as the trials so far suggest: each trial holds its
/// devices for as long as one did on average. `None` before the first has ended.
fn trials_left_s(state: &State, now_s: f64) -> Option<f64> {
    let is_trial = |attempt: &&Attempt| matches!(attempt.purpose, Purpose::Trial(_));
    let taken_s: Vec<f64> = state
        .attempts
        .values()
        .filter(is_trial)
        .filter_map(|attempt| Some(attempt.ended.as_ref()?.1 - attempt.launched_s))
        .collect();
    if taken_s.is_empty() {
        return None;
    }
    let mean_s = taken_s.iter().sum::<f64>() / taken_s.len() as f64;
    let to_do: u32 =
        state.trials.iter().filter(|slot| state.is_open(slot)).map(|slot| slot.strategy.gpus).sum();
    let in_hand_s: f64 = state
        .live_attempts()
        .filter(|(_, attempt)| is_trial(attempt))
        .map(|(_, one)| f64::from(one.strategy.gpus) * (now_s - one.launched_s).min(mean_s))
        .sum();
    let num_devices = f64::from(state.config.cluster.num_gpus().max(1));
    Some(((f64::from(to_do) * mean_s - in_hand_s) / num_devices).max(0.0))
}

/// Trials by outcome: measured, not applicable, out of memory, failed.
pub(crate) fn trial_counts(state: &State) -> [(usize, &'static str); 4] {
    let count = |wanted: fn(&TrialOutcome) -> bool| {
        state.trials.iter().filter(|slot| slot.outcome.as_ref().is_some_and(wanted)).count()
    };
    [
        (count(|outcome| matches!(outcome, TrialOutcome::Measured { .. })), "measured"),
        (count(|outcome| matches!(outcome, TrialOutcome::NotApplicable { .. })), "not applicable"),
        (count(|outcome| matches!(outcome, TrialOutcome::OutOfMemory { .. })), "out of memory"),
        (count(|outcome| matches!(outcome, TrialOutcome::Failed { .. })), "failed"),
    ]
}
