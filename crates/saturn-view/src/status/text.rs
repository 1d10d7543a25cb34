//! The status of a run as text: a few lines for the run, and a line for each task.

use saturn_core::names::escape_terminal;
use saturn_engine::{Mode, Stage};

use crate::facts::expect::Band;
use crate::facts::goal::judged_by;
use crate::facts::run_status::RunStatus;
use crate::layout::paint::Paint;
use crate::layout::text::{Align, Table, fit, wrap};
use crate::layout::units::{clock, count, duration, number};
use crate::phrases::tasks::task_words;
use crate::phrases::words;
use crate::status::data::{DevicesOn, NodeStatus, PoolStatus, Status, TaskStatus};
use crate::status::people;

/// The most tasks shown; the status as data has all.
const MAX_TASKS: usize = 200;
/// The widths in columns from which devices, and steps, are shown too.
const WIDE: (usize, usize) = (100, 120);
/// The most devices set aside that are named.
const MAX_SET_ASIDE: usize = 3;

/// A status as text of at most `width` columns. The last line has no line end.
///
/// Running tasks come first, then waiting tasks by their expected start, and ended tasks last.
pub fn status_text(status: &Status, width: usize, paint: Paint) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in head(status, paint) {
        lines.extend(wrap(&line, width, 2).iter().map(|part| fit(part, width)));
    }
    if !status.people.is_empty() {
        lines.push(String::new());
        lines.extend(people::table(&status.people, width, paint));
    }
    if !status.tasks.is_empty() {
        lines.push(String::new());
        lines.extend(table(status, width, paint));
        lines.push(String::new());
        let legend = wrap(&legend(status), width, 0);
        lines.extend(legend.iter().map(|line| paint.dim(line)));
    }
    lines.join("\n")
}

fn head(status: &Status, paint: Paint) -> Vec<String> {
    let how = match (status.status, status.stopping) {
        (RunStatus::Complete, _) if status.counts.failed > 0 => paint.bad("ended with failures"),
        (RunStatus::Complete, _) => paint.good("complete"),
        (RunStatus::Interrupted, _) => paint.warn("interrupted"),
        (RunStatus::Died, _) => paint.bad("died"),
        (RunStatus::Unfinished, Some(true)) => paint.warn("stopping at once"),
        (RunStatus::Unfinished, Some(false)) => paint.warn("stopping at checkpoints"),
        (RunStatus::Unfinished, None) => "going on".to_owned(),
    };
    let is_open = status.status == RunStatus::Unfinished && !status.is_closed;
    let more = if is_open { "; more tasks may come" } else { "" };
    let mut lines = vec![format!("{} at {}{more}", paint.bold(&how), clock(status.now_s))];
    if status.mode == Mode::Orchestrate {
        let lacks_tasks = status.status.lacks_tasks(status.is_closed);
        lines.push(task_words(&status.counts, lacks_tasks));
    }
    let (num_known, num_all) = status.trials.progress();
    if status.trials.open + status.trials.running > 0 {
        let running = status.trials.running;
        let running = if running > 0 { format!(", {running} running") } else { String::new() };
        lines.push(format!("{num_known} of {}{running}", count(num_all, "trial")));
    }
    if let Some(end_s) = status.expected_end_s {
        let band = status.expected_end_band_s.map(band_words).unwrap_or_default();
        let unplanned = match status.unplanned {
            0 => String::new(),
            number => format!("; {} not planned yet", count(number, "task")),
        };
        lines.push(format!(
            "about {} left: expected to end at {} ({band}){unplanned}",
            duration(end_s - status.now_s),
            paint.bold(&clock(end_s)),
        ));
    }
    if let Some((task, error)) = &status.waits_space {
        let waits = paint.warn("waiting for space on the disk:");
        lines.push(format!("{waits} {}: {error}", escape_terminal(task)));
    }
    let pool = &status.pool;
    let num_devices = u32::try_from(pool.devices).unwrap_or(u32::MAX);
    if status.status == RunStatus::Unfinished {
        lines.push(format!(
            "{} of {num_devices} {} busy",
            pool.busy,
            words::device_kind(pool.device_kind, num_devices)
        ));
    }
    if status.status == RunStatus::Unfinished && pool.nodes > 1 {
        lines.push(nodes(pool));
    }
    for one in pool.set_aside.iter().take(MAX_SET_ASIDE) {
        lines.push(format!(
            "{} device {} of {}: {}",
            paint.bad("set aside:"),
            one.device,
            escape_terminal(&one.node),
            words::first_line(&one.reason),
        ));
    }
    let num_more = pool.set_aside.len().saturating_sub(MAX_SET_ASIDE);
    lines.extend((num_more > 0).then(|| format!("and {} more", count(num_more, "device"))));
    lines
}

/// `busy on nodes: a 8 of 8, b 3 of 8`. With many nodes, how many are idle, partly busy or busy.
fn nodes(pool: &PoolStatus) -> String {
    let nodes = &pool.by_node;
    if nodes.len() <= words::MAX_NODES {
        let each: Vec<String> = nodes
            .iter()
            .map(|one| format!("{} {} of {}", escape_terminal(&one.name), one.busy, one.devices))
            .collect();
        return format!("busy on nodes: {}", each.join(", "));
    }
    let kind = |node: &NodeStatus| match (node.busy, node.devices) {
        (_, 0) => None,
        (0, _) => Some("idle"),
        (busy, devices) if busy == devices => Some("busy"),
        _ => Some("busy in part"),
    };
    let mut parts = Vec::new();
    for what in ["busy", "busy in part", "idle"] {
        let of_kind = nodes.iter().filter(|one| kind(one) == Some(what));
        let names: Vec<&str> = of_kind.map(|one| one.name.as_str()).collect();
        // Most nodes are busy, so these are counted and not named.
        let which =
            if what == "busy" { String::new() } else { format!(" ({})", words::some_of(&names)) };
        parts.extend((!names.is_empty()).then(|| format!("{} {what}{which}", names.len())));
    }
    format!("{} nodes: {}", nodes.len(), parts.join(", "))
}

fn table(status: &Status, width: usize, paint: Paint) -> Vec<String> {
    let mut tasks: Vec<(usize, &TaskStatus)> = status.tasks.iter().enumerate().collect();
    tasks.sort_by(|(_, left), (_, right)| {
        let order = |task: &TaskStatus| (rank(task), task.expected_start_s.or(task.expected_end_s));
        let ((one, soon), (other, late)) = (order(left), order(right));
        let (soon, late) = (soon.unwrap_or(f64::INFINITY), late.unwrap_or(f64::INFINITY));
        one.cmp(&other).then(soon.total_cmp(&late))
    });
    let num_more = tasks.len().saturating_sub(MAX_TASKS);
    tasks.truncate(MAX_TASKS);
    let mut columns = vec![("task", Align::Left), ("state", Align::Left), ("person", Align::Left)];
    columns.extend((width >= WIDE.1).then_some(("steps", Align::Right)));
    columns.extend([
        ("loss", Align::Right),
        ("evaluation", Align::Left),
        ("strategy", Align::Left),
    ]);
    columns.extend((width >= WIDE.0).then_some(("devices", Align::Left)));
    columns.extend([("start", Align::Right), ("end", Align::Right)]);
    // If both don't fit, priorities and deadlines are worth more than the band.
    let is_wished = |task: &TaskStatus| task.priority != 0 || task.deadline_s.is_some();
    let has_bands = width >= WIDE.0 || !tasks.iter().any(|(_, task)| is_wished(task));
    columns.extend(has_bands.then_some(("band", Align::Left)));
    columns.extend([("priority", Align::Right), ("deadline", Align::Right)]);
    let mut table = Table::new(columns);
    let has_nodes = status.pool.nodes > 1;
    for (_, task) in &tasks {
        let owner = status.owner_of(task).map(escape_terminal).unwrap_or_default();
        let mut row = vec![escape_terminal(&task.name), state_words(task), owner];
        row.extend((width >= WIDE.1).then(|| steps(task)));
        row.extend([task.loss.map(number).unwrap_or_default(), evaluation(task), strategy(task)]);
        row.extend((width >= WIDE.0).then(|| devices(&task.devices, has_nodes)));
        row.extend([start(task), end(task)]);
        row.extend(has_bands.then(|| task.expected_end_band_s.map(band_words).unwrap_or_default()));
        row.push(if task.priority == 0 { String::new() } else { task.priority.to_string() });
        row.push(deadline(task));
        table.push(row);
    }
    let mut lines = table.without_empty_columns().lines(width, paint, |row, column, cell| {
        let (index, task) = tasks[row];
        match (column, task.stage) {
            (0, _) => paint.task(index, cell),
            (1, Stage::Done) => paint.good(cell),
            (1, Stage::Failed | Stage::Diverged) => paint.bad(cell),
            (1, Stage::Paused | Stage::Held | Stage::Cancelled | Stage::Stopped) => {
                paint.warn(cell)
            }
            _ => cell.to_owned(),
        }
    });
    lines.extend((num_more > 0).then(|| format!("and {}", count(num_more, "more task"))));
    lines
}

/// A task's deadline, and whether it is expected to miss it.
fn deadline(task: &TaskStatus) -> String {
    let late = if task.is_late == Some(true) { " late" } else { "" };
    let due = task.due.clone().or_else(|| task.deadline_s.map(clock));
    due.map(|due| due + late).unwrap_or_default()
}

/// The position of a task's stage in the order of the lines.
fn rank(task: &TaskStatus) -> usize {
    const ORDER: [Stage; 12] = [
        Stage::Running,
        Stage::Waiting,
        Stage::Measuring,
        Stage::Inspecting,
        Stage::Unmeasured,
        Stage::Paused,
        Stage::Held,
        Stage::Failed,
        Stage::Cancelled,
        Stage::Stopped,
        Stage::Diverged,
        Stage::Done,
    ];
    ORDER.iter().position(|stage| *stage == task.stage).unwrap_or(ORDER.len())
}

/// `running 60 %`.
fn state_words(task: &TaskStatus) -> String {
    let is_open =
        matches!(task.stage, Stage::Running | Stage::Waiting | Stage::Paused | Stage::Held);
    match task.steps {
        Some(steps) if is_open && (task.step > 0 || task.stage == Stage::Running) => {
            let share = task.step as f64 / steps.max(1) as f64;
            format!("{} {:.0}%", task.stage.word(), (share * 100.0).floor())
        }
        _ => task.stage.word().to_owned(),
    }
}

fn steps(task: &TaskStatus) -> String {
    match task.steps {
        Some(steps) => format!("{}/{steps}", task.step),
        None => String::new(),
    }
}

/// The metric that the task is judged by. For a task judged by its loss, its last evaluation.
fn evaluation(task: &TaskStatus) -> String {
    let Some(last) = &task.evaluation else { return String::new() };
    match judged_by(task.goal.as_ref()).0 {
        "loss" => words::metrics(last),
        metric => words::metric(metric, task.value),
    }
}

fn strategy(task: &TaskStatus) -> String {
    match (&task.technique, task.gpus) {
        (Some(technique), Some(gpus)) => words::technique_on(technique, gpus),
        _ => String::new(),
    }
}

fn devices(devices: &[DevicesOn], has_nodes: bool) -> String {
    if devices.len() > words::MAX_NODES {
        let number: usize = devices.iter().map(|part| part.devices.len()).sum();
        return format!(
            "{number} {}",
            words::on_nodes(devices.iter().map(|part| part.node.as_str()))
        );
    }
    let parts: Vec<String> = devices
        .iter()
        .map(|part| {
            let ids = words::id_ranges(&part.devices);
            if has_nodes { format!("{}: {ids}", escape_terminal(&part.node)) } else { ids }
        })
        .collect();
    parts.join("; ")
}

/// When the task was or will be launched; `~` marks an expected time.
fn start(task: &TaskStatus) -> String {
    match (task.expected_start_s, task.started_s) {
        (Some(at_s), _) => format!("~{}", clock(at_s)),
        (None, Some(at_s)) => clock(at_s),
        (None, None) => String::new(),
    }
}

fn end(task: &TaskStatus) -> String {
    match (task.expected_end_s, task.ended_s) {
        (Some(at_s), _) => format!("~{}", clock(at_s)),
        (None, Some(at_s)) => clock(at_s),
        (None, None) => String::new(),
    }
}

/// `0:50-0:58`.
fn band_words((early_s, late_s): (f64, f64)) -> String {
    format!("{}-{}", clock(early_s), clock(late_s))
}

fn legend(status: &Status) -> String {
    let has_due = status.tasks.iter().any(|task| task.due.is_some());
    let but = if has_due { ", deadlines on this machine's" } else { "" };
    let times = format!("Times are on the run's clock{but}; ~ marks what is expected");
    if status.expected_end_s.is_none() {
        return format!("{times}.");
    }
    let (own, earlier) = (status.band.attempts, status.band.earlier);
    let why = match (own + status.waiting_band.attempts, earlier + status.waiting_band.earlier) {
        (0, 0) => "as in Saturn's recorded runs",
        (0, _) => "by the errors of earlier runs here",
        (_, 0) => "by the errors of this run, and as in Saturn's recorded runs",
        (_, _) => "by the errors of this run and of earlier runs here",
    };
    let shares = |band: &Band| {
        let (low, high) = (band.low.min(1.0) * 100.0, band.high.max(1.0) * 100.0);
        format!("{low:.0} % to {high:.0} %")
    };
    format!(
        "{times}; band: where four of five ends lie, {} of the time left where a task trains, {} \
         where it waits ({why}).",
        shares(&status.band),
        shares(&status.waiting_band),
    )
}
