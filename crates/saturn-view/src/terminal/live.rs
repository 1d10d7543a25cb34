//! What runs at this moment: the live region of a terminal, and the counter line of a pipe.

use saturn_core::names::escape_terminal;
use saturn_engine::{Attempt, Forecast, Mode, Purpose, State, TaskId, TaskStatus, forecast};

use crate::facts::counts::{TaskCounts, TrialCounts};
use crate::facts::history::History;
use crate::layout::paint::Paint;
use crate::layout::text::{bar, fit, pad, pad_left, width};
use crate::layout::units::{clock, count, duration, number};
use crate::phrases::events;
use crate::phrases::tasks::task_words;
use crate::phrases::words;

/// The widths of the overall bar in columns, of which the widest that fits is taken; then those of
/// a task's bar.
const OVERALL_BARS: [usize; 3] = [30, 16, 8];
const TASK_BARS: (usize, usize) = (8, 16);
/// Narrower terminals get the shorter bars.
const WIDE: usize = 100;
/// Longer names are cut.
const MAX_NAME: usize = 28;
/// The lines of the region that are not for attempts.
const OTHER_LINES: usize = 3;
/// The most attempts that a counter line names.
const MAX_COUNTED: usize = 6;
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The live region: a line for the whole run, a line for each live attempt, and a line for what
/// comes next. No line is wider than `columns`, and there are at most `rows` lines.
pub fn region(
    state: &State,
    history: &History,
    now_s: f64,
    (columns, rows): (usize, usize),
    paint: Paint,
) -> Vec<String> {
    let forecast = forecast(state, now_s);
    let columns = columns.saturating_sub(1);
    let mut lines = vec![overall(state, history, &forecast, now_s, columns, paint)];
    let room = rows.saturating_sub(OTHER_LINES).max(1);
    let num_live = state.attempts.len();
    let num_shown = if num_live > room { room - 1 } else { num_live };
    let shown: Vec<&Attempt> = state.attempts.values().take(num_shown).collect();
    let mut widths = Widths::of(state, &forecast, &shown, now_s);
    widths.bar = if columns < WIDE { TASK_BARS.0 } else { TASK_BARS.1 };
    for attempt in shown {
        lines.push(attempt_line(state, &forecast, attempt, now_s, &widths, paint));
    }
    if num_live > num_shown {
        lines.push(paint.dim(&format!("  and {} more", num_live - num_shown)));
    }
    if let Some(next) = next_line(state, &forecast, now_s) {
        lines.push(paint.dim(&next));
    }
    lines.iter().map(|line| fit(line, columns)).collect()
}

/// One line for logs: the run's progress, and each live attempt. `None` if nothing runs.
pub fn counter(state: &State, history: &History, now_s: f64) -> Option<String> {
    if state.attempts.is_empty() {
        return None;
    }
    let forecast = forecast(state, now_s);
    let live = state.attempts.values().take(MAX_COUNTED);
    let mut running: Vec<String> =
        live.map(|attempt| brief(state, &forecast, attempt, now_s)).collect();
    let num_more = state.attempts.len() - running.len();
    if num_more > 0 {
        running.push(format!("and {num_more} more"));
    }
    Some(format!("{}: {}", position(state, history, &forecast, now_s), running.join("; ")))
}

/// Where the tasks and trials of the run stand, and when it is expected to end.
fn position(state: &State, history: &History, forecast: &Forecast, now_s: f64) -> String {
    if let Some(at_once) = state.interrupted {
        return events::interrupted(at_once).to_owned();
    }
    let mut parts = Vec::new();
    let tasks = TaskCounts::of(state);
    if state.config.mode == Mode::Orchestrate {
        parts.push(task_words(&tasks, false));
    }
    let trials = TrialCounts::of(state);
    if trials.open + trials.running > 0 {
        let (num_known, num_all) = trials.progress();
        let running = match trials.running {
            0 => String::new(),
            number => format!(", {number} running"),
        };
        parts.push(format!("{num_known} of {}{running}", count(num_all, "trial")));
    }
    let num_without_space = state.without_space().count();
    if num_without_space > 0 {
        parts.push(format!("{num_without_space} waiting for space on the disk"));
    } else {
        parts.extend(time_left(state, history, forecast, now_s));
    }
    if tasks.open() == 0 && !state.is_closed {
        parts.push("more may come".to_owned());
    }
    parts.join("; ")
}

/// The remaining time of all planned tasks, or else of the trials.
fn time_left(state: &State, history: &History, forecast: &Forecast, now_s: f64) -> Option<String> {
    if forecast.tasks.is_empty() {
        let left_s = trials_left_s(state, history, now_s)?;
        return Some(format!("trials about {} more", duration(left_s)));
    }
    let is_open = |task: &TaskId| !matches!(state.task(*task).status, TaskStatus::Ended(_));
    let num_unplanned =
        state.task_ids().filter(|task| is_open(task) && !forecast.tasks.contains_key(task)).count();
    let of_what = if num_unplanned > 0 { " for planned tasks" } else { "" };
    (forecast.end_s > now_s)
        .then(|| format!("about {} left{of_what}", duration(forecast.end_s - now_s)))
}

fn overall(
    state: &State,
    history: &History,
    forecast: &Forecast,
    now_s: f64,
    columns: usize,
    paint: Paint,
) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time on the run's clock picks a picture"
    )]
    let turn = (now_s.max(0.0) * 8.0) as usize % SPINNER.len();
    let head = format!("{} {}", SPINNER[turn], pad_left(&clock(now_s), 5));
    let mut position = position(state, history, forecast, now_s);
    if history.attempts.is_empty() && state.num_open_trials() + state.num_to_inspect() > 0 {
        position += &paint.dim("; starting the first workers");
    }
    let room = columns.saturating_sub(width(&head) + width(&position) + 4);
    match OVERALL_BARS.into_iter().find(|columns| *columns <= room) {
        Some(columns) => format!("{head}  {}  {position}", bar(share(state), columns, paint)),
        None => format!("{head}  {position}"),
    }
}

/// The share of the run's work that is done. In a search this counts trials; otherwise it counts
/// steps, and every task has equal weight.
fn share(state: &State) -> f64 {
    if state.config.mode == Mode::Search {
        let (num_known, num_all) = TrialCounts::of(state).progress();
        return num_known as f64 / num_all.max(1) as f64;
    }
    let of_task = |task: TaskId| {
        let task = state.task(task);
        match (&task.status, task.steps) {
            (TaskStatus::Ended(_), _) => 1.0,
            (_, Some(steps)) => task.step as f64 / steps.max(1) as f64,
            (_, None) => 0.0,
        }
    };
    state.task_ids().map(of_task).sum::<f64>() / state.tasks.len().max(1) as f64
}

/// The column widths of the attempts' lines.
struct Widths {
    name: usize,
    strategy: usize,
    steps: usize,
    status: usize,
    bar: usize,
}

impl Widths {
    fn of(state: &State, forecast: &Forecast, live: &[&Attempt], now_s: f64) -> Self {
        let widest = |texts: &mut dyn Iterator<Item = String>| {
            texts.map(|text| width(&text)).max().unwrap_or(0)
        };
        Self {
            name: widest(&mut live.iter().map(|one| name(state, one.task))),
            strategy: widest(&mut live.iter().map(|one| strategy(one))),
            steps: widest(&mut live.iter().map(|one| steps(state, one))),
            status: widest(&mut live.iter().map(|one| status(state, forecast, one, now_s))),
            bar: TASK_BARS.1,
        }
    }
}

fn name(state: &State, task: TaskId) -> String {
    fit(&escape_terminal(state.name(task)), MAX_NAME)
}

/// The strategy of an attempt in words; empty for an inspection, which has none.
fn strategy(attempt: &Attempt) -> String {
    match attempt.purpose {
        Purpose::Inspection => String::new(),
        Purpose::Trial | Purpose::Train => words::strategy(&attempt.strategy),
    }
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
        pad(&strategy(attempt), widths.strategy),
    );
    let place = match attempt.purpose {
        Purpose::Inspection => String::new(),
        _ => paint.dim(&words::on_devices(&state.cluster, &attempt.gang)),
    };
    let task = state.task(attempt.task);
    let what = match attempt.purpose {
        Purpose::Inspection => format!("inspecting, {}", duration(now_s - attempt.launched_s)),
        Purpose::Trial => format!("trial, {}", duration(now_s - attempt.launched_s)),
        Purpose::Train => {
            let share = attempt.step as f64 / task.steps.unwrap_or(0).max(1) as f64;
            let loss = task.loss.map(|loss| format!("  loss {}", number(loss))).unwrap_or_default();
            format!(
                "{}  {}{loss}  {}",
                bar(share, widths.bar, paint),
                pad_left(&steps(state, attempt), widths.steps),
                pad(&status(state, forecast, attempt, now_s), widths.status),
            )
        }
    };
    format!("{head}  {what}  {place}").trim_end().to_owned()
}

/// `12 s left`, or what the attempt does other than training.
fn status(state: &State, forecast: &Forecast, attempt: &Attempt, now_s: f64) -> String {
    if attempt.is_dying() {
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
    match attempt.purpose {
        Purpose::Inspection => {
            format!("{name} inspecting {}", duration(now_s - attempt.launched_s))
        }
        Purpose::Trial => {
            let strategy = words::strategy(&attempt.strategy);
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
    let plan = state.plan.as_ref()?;
    let is_waiting = |task: TaskId| state.task(task).status == TaskStatus::Waiting;
    let waiting = || {
        let times = plan.places.iter().zip(&forecast.places);
        times.filter_map(|(place, times)| {
            let (start_s, _) = (*times)?;
            is_waiting(place.task).then_some((start_s, place))
        })
    };
    let (start_s, next) = waiting().min_by(|left, right| left.0.total_cmp(&right.0))?;
    let num_waiting = forecast.tasks.keys().filter(|task| is_waiting(**task)).count();
    Some(format!(
        "  {} {}; next {} in {} ({} on {})",
        count(num_waiting, "task"),
        if num_waiting == 1 { "waits" } else { "wait" },
        name(state, next.task),
        duration((start_s - now_s).max(0.0)),
        words::strategy(&next.strategy),
        words::on_devices(&state.cluster, &next.gang),
    ))
}

/// An estimate of the seconds until all trials have outcomes. It assumes that each trial takes as
/// long as a trial did on average. It also assumes that trials together hold as many devices as
/// they held while any ran; this is less than the pool if tasks train beside them. `None` before a
/// trial has ended, or if none is left.
fn trials_left_s(state: &State, history: &History, now_s: f64) -> Option<f64> {
    let mean_s = history.mean_trial_s()?;
    let open_s: f64 =
        state.open_trials().map(|(_, key)| f64::from(key.strategy.gpus) * mean_s).sum();
    let running = || {
        let trials = state.attempts.values().filter(|one| one.purpose == Purpose::Trial);
        trials.map(|one| (f64::from(one.strategy.gpus), now_s - one.launched_s))
    };
    let rest_s: f64 = running().map(|(gpus, for_s)| gpus * (mean_s - for_s).max(0.0)).sum();
    let held_s: f64 = running().map(|(gpus, for_s)| gpus * for_s).sum();
    let left_s = (open_s + rest_s) / history.trial_devices(held_s, now_s)?.max(f64::EPSILON);
    (left_s > 0.0).then_some(left_s)
}
