//! `saturn runs`: lists the runs of a directory. If no directory is named, it lists the pool too.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use saturn_core::names::escape_terminal;
use saturn_engine::{RunEnd, Stage, State};
use saturn_runtime::control;
use saturn_store::io_words;
use saturn_view::RunStatus;
use saturn_view::text;
use saturn_view::units::duration;
use saturn_view::words::{resume_command, shell_quoted};
use serde_json::json;

use crate::args::RunsArgs;
use crate::exit::{Exit, fail, print_data, print_json};
use crate::find::{self, Found, RUNS_DIR};

/// A run as it is listed.
#[derive(Debug, PartialEq)]
struct Listed {
    name: String,
    pool: Option<Pool>,
    standing: Standing,
    /// When it began, seconds of Unix time.
    begun_unix_s: u64,
    tasks: Tasks,
    /// The command that continues the run, or tells more.
    next: String,
}

/// Whether the pool takes more tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pool {
    Open,
    Closed,
}

/// The state of a run.
#[derive(Debug, PartialEq)]
enum Standing {
    /// This process drives it.
    Running(i32),
    /// A person stopped it.
    Interrupted,
    /// The process that drove it is gone.
    Died,
    Complete,
    /// Its journal can't be read, and why.
    Damaged(String),
}

#[derive(Debug, Default, PartialEq)]
struct Tasks {
    all: usize,
    done: usize,
    diverged: usize,
    failed: usize,
    cancelled: usize,
    stopped: usize,
    /// Whether no more tasks will come.
    is_closed: bool,
}

pub(crate) fn run(args: &RunsArgs) -> Exit {
    let paths = match find::all_in(&args.dir) {
        Ok(paths) => paths,
        // The default directory of runs may not exist yet.
        Err(_) if args.dir == Path::new(RUNS_DIR) => Vec::new(),
        Err(error) => {
            let error = io_words(&error);
            let message = format!("failed to read `{}`: {error}", args.dir.display());
            return fail(Exit::BadInput, message);
        }
    };
    // The pool belongs to no directory: it is listed where nobody asked for a certain one.
    let pool = (args.dir == Path::new(RUNS_DIR)).then(find::listed_pool).flatten();
    let runs: Vec<Listed> =
        pool.iter().map(listed_pool).chain(paths.iter().map(|path| listed(path))).collect();
    if args.json {
        let runs: Vec<serde_json::Value> = runs.iter().map(Listed::to_json).collect();
        print_json(&json!({"version": 1, "runs": runs}));
    } else if runs.is_empty() {
        eprintln!("no run in `{}`", args.dir.display());
    } else {
        print_data(&table(&runs, now_unix_s()));
    }
    if args.dir == Path::new(RUNS_DIR) && saturn_runtime::joined_pool().is_some() {
        eprintln!("you have joined another person's pool, which is not listed: saturn status pool");
    }
    Exit::Ok
}

fn listed(path: &Path) -> Listed {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (standing, tasks, state) = read(path);
    let is_by_name = path.parent() == Some(Path::new(RUNS_DIR));
    let shown = if is_by_name { name.clone() } else { path.to_string_lossy().into_owned() };
    let shown = shell_quoted(&shown);
    let next = match (&standing, &state) {
        (Standing::Interrupted | Standing::Died, Some(state)) => resume_command(state, &shown),
        (Standing::Running(_), _) => format!("saturn status {shown}"),
        _ => format!("saturn report {shown}"),
    };
    Listed { name, pool: None, standing, begun_unix_s: unix_s(find::begun(path)), tasks, next }
}

fn listed_pool(pool: &Found) -> Listed {
    let (standing, tasks, state) = read(&pool.path);
    let is_closed = state.is_none_or(|state| state.is_closed);
    let next = match standing {
        Standing::Interrupted | Standing::Died => "saturn serve".to_owned(),
        Standing::Running(_) => format!("saturn status {}", pool.shown),
        Standing::Complete | Standing::Damaged(_) => format!("saturn report {}", pool.shown),
    };
    Listed {
        name: find::POOL.to_owned(),
        pool: Some(if is_closed { Pool::Closed } else { Pool::Open }),
        standing,
        begun_unix_s: unix_s(find::begun(&pool.path)),
        tasks,
        next,
    }
}

/// Where the run stands, and its state if its journal can be read.
fn read(path: &Path) -> (Standing, Tasks, Option<State>) {
    // Read first: a run that ends meanwhile is then found complete.
    let driver = control::driver_of(path);
    match saturn_runtime::read(path) {
        Ok((state, _)) => (standing(&state, driver), Tasks::of(&state), Some(state)),
        Err(error) => {
            (Standing::Damaged(saturn_store::with_causes(&error)), Tasks::default(), None)
        }
    }
}

fn standing(state: &State, driver: Option<i32>) -> Standing {
    match (state.ended, driver) {
        (Some(RunEnd::Complete), _) => Standing::Complete,
        (_, Some(pid)) => Standing::Running(pid),
        (Some(RunEnd::Interrupted), None) => Standing::Interrupted,
        (None, None) => Standing::Died,
    }
}

impl Standing {
    fn word(&self) -> &'static str {
        match self {
            Self::Running(_) => "running",
            Self::Interrupted => "interrupted",
            Self::Died => RunStatus::Died.word(),
            Self::Complete => "complete",
            Self::Damaged(_) => "damaged",
        }
    }
}

impl Tasks {
    fn of(state: &State) -> Self {
        let number =
            |stage: Stage| state.task_ids().filter(|task| state.stage(*task) == stage).count();
        Self {
            all: state.tasks.len(),
            done: number(Stage::Done),
            diverged: number(Stage::Diverged),
            failed: number(Stage::Failed),
            cancelled: number(Stage::Cancelled),
            stopped: number(Stage::Stopped),
            is_closed: state.is_closed,
        }
    }

    /// `1 of 4 done, 1 failed`, of a run that stands so.
    fn text(&self, standing: &Standing) -> String {
        let is_resumable = matches!(standing, Standing::Interrupted | Standing::Died);
        let so_far = if is_resumable && !self.is_closed { " so far" } else { "" };
        let mut text = format!("{} of {}{so_far} done", self.done, self.all);
        for (number, stage) in [
            (self.diverged, Stage::Diverged),
            (self.failed, Stage::Failed),
            (self.cancelled, Stage::Cancelled),
            (self.stopped, Stage::Stopped),
        ] {
            if number > 0 {
                let _ = write!(text, ", {number} {}", stage.word());
            }
        }
        text
    }
}

impl Listed {
    /// What a person may do about the run, or would want to know of it.
    fn advice(&self) -> Option<String> {
        Some(match (&self.standing, self.pool) {
            (Standing::Interrupted | Standing::Died, _) => format!("to go on: {}", self.next),
            (Standing::Damaged(error), _) => error.clone(),
            (Standing::Running(_), Some(Pool::Open)) => {
                "to add the tasks of a sweep: saturn submit SWEEP.toml".to_owned()
            }
            (Standing::Running(_), Some(Pool::Closed)) => {
                "closed: it ends once its tasks have ended".to_owned()
            }
            (Standing::Complete, Some(_)) => "to begin another pool: saturn serve".to_owned(),
            (Standing::Running(_) | Standing::Complete, None) => return None,
        })
    }

    fn to_json(&self) -> serde_json::Value {
        let pid = match &self.standing {
            Standing::Running(pid) => Some(*pid),
            _ => None,
        };
        let error = match &self.standing {
            Standing::Damaged(error) => Some(error),
            _ => None,
        };
        json!({
            "name": self.name, "pool": self.pool.is_some(), "state": self.standing.word(), "pid": pid, "error": error,
            "begun_unix_s": self.begun_unix_s, "tasks": self.tasks.all, "done": self.tasks.done,
            "diverged": self.tasks.diverged, "failed": self.tasks.failed,
            "cancelled": self.tasks.cancelled, "stopped": self.tasks.stopped, "next": self.next,
        })
    }
}

fn table(runs: &[Listed], now_unix_s: u64) -> String {
    let rows: Vec<[String; 4]> = runs
        .iter()
        .map(|run| {
            let tasks = run.tasks.text(&run.standing);
            let (state, tasks) = match &run.standing {
                Standing::Running(pid) => (format!("running by pid {pid}"), tasks),
                Standing::Damaged(_) => ("damaged".to_owned(), String::new()),
                Standing::Complete if run.tasks.failed > 0 => ("ended".to_owned(), tasks),
                other => (other.word().to_owned(), tasks),
            };
            let age_s = now_unix_s.saturating_sub(run.begun_unix_s);
            let begun = format!("{} ago", duration(age_s as f64));
            [escape_terminal(&run.name), state, tasks, begun]
        })
        .collect();
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(text::width(cell));
        }
    }
    let mut lines = String::new();
    for (row, run) in rows.iter().zip(runs) {
        let cells = row.iter().zip(widths);
        let line: Vec<String> = cells.map(|(cell, width)| text::pad(cell, width)).collect();
        lines.push_str(line.join("  ").trim_end());
        lines.push('\n');
        // The advice is below the table: commands can't be cut to a column.
        let Some(more) = run.advice() else { continue };
        let _ = writeln!(lines, "  {}", escape_terminal(&more));
    }
    lines
}

fn unix_s(time: std::time::SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long ago a run began is a matter of the present"
)]
fn now_unix_s() -> u64 {
    unix_s(std::time::SystemTime::now())
}
