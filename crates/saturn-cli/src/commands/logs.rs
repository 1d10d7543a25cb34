//! `saturn logs`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use saturn_core::names::escape_terminal;
use saturn_runtime::logs::{AttemptKind, AttemptLogs, Logs, attempts, newest};
use saturn_runtime::{RuntimeError, control, outlived};
use saturn_store::io_words;
use serde_json::json;

use super::run_failed;
use crate::args::LogsArgs;
use crate::exit::{Exit, fail, print_data, print_json};
use crate::find::{self, Found};
use crate::waiting::pause;

/// How often logs are read for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The number of reads between two checks whether the task has ended: each check may read a
/// journal.
const LOOKS_A_QUESTION: u32 = 5;

pub(crate) fn run(args: &LogsArgs) -> Exit {
    let run = match find::run(&args.run) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let task = match Task::of(&run, &args.task) {
        Ok(Ok(task)) => task,
        Ok(Err(unknown)) => return fail(Exit::BadInput, escape_terminal(&unknown)),
        Err(error) => return run_failed(&error),
    };
    let printed = if args.follow { follow(&run, task, args) } else { once(&run, &task, args) };
    printed.unwrap_or_else(|error| {
        let error = io_words(&error);
        fail(Exit::Machine, format!("failed to read the logs of `{}`: {error}", args.task))
    })
}

/// Where a task's logs are, and whether any may still come.
struct Task {
    directory: PathBuf,
    is_over: bool,
}

impl Task {
    /// The task, or what to say if the run has none of this name.
    fn of(run: &Found, name: &str) -> Result<Result<Self, String>, RuntimeError> {
        // Tasks may train on without the process that drove the run.
        let lives = control::driver_of(&run.path).is_some() || outlived(&run.path).is_some();
        if saturn_runtime::is_joined(&run.path) {
            return Self::of_joined(run, name);
        }
        let (state, _) = saturn_runtime::read(&run.path)?;
        let Some(id) = state.task_named(name) else { return Ok(Err(state.unknown_task(name))) };
        let spec = &state.task(id).spec;
        if spec.owner.is_some() {
            return Ok(Err(of_another(name)));
        }
        let is_over = !lives || state.has_ended(id);
        Ok(Ok(Self { directory: run.path.join(&spec.dir), is_over }))
    }
}

impl Task {
    /// The same in another person's pool, whose journal is that person's. While no process drives that
    /// pool, this person's own directories are all that is known.
    fn of_joined(run: &Found, name: &str) -> Result<Result<Self, String>, RuntimeError> {
        let status = match saturn_runtime::status(&run.path) {
            Ok(status) => status,
            Err(error) => {
                let own = saturn_runtime::own_task(&run.path, name);
                return own.map(|directory| Ok(Self { directory, is_over: true })).ok_or(error);
            }
        };
        let Some(task) = status.tasks.into_iter().find(|task| task.name == name) else {
            return Ok(Err(format!("the pool has no task `{name}`")));
        };
        if task.dir.is_empty() {
            return Ok(Err(of_another(name)));
        }
        Ok(Ok(Self { directory: run.path.join(&task.dir), is_over: task.ended_s.is_some() }))
    }
}

fn of_another(name: &str) -> String {
    format!("`{name}` is another person's, who alone can read its logs")
}

fn once(run: &Found, task: &Task, args: &LogsArgs) -> io::Result<Exit> {
    let mut all = attempts(&task.directory)?;
    let chosen = match args.attempt {
        Some(number) => {
            let listed: Vec<String> = all.iter().map(|one| one.number.to_string()).collect();
            let Some(at) = all.iter().position(|one| one.number == number) else {
                let known = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
                let message = format!("`{}` has no attempt {number}; it has {known}", args.task);
                return Ok(fail(Exit::BadInput, escape_terminal(&message)));
            };
            Some(all.swap_remove(at))
        }
        None => newest(all),
    };
    let Some(chosen) = chosen else {
        say_nothing_yet(run, args);
        return Ok(Exit::Ok);
    };
    let mut logs = begin(chosen, args);
    print(&mut logs, true, args)?;
    if let Some(rank) = args.rank
        && logs.num_ranks() == 0
    {
        let message = format!("attempt {} has no log of a rank {rank}", logs.attempt.number);
        return Ok(fail(Exit::BadInput, message));
    }
    Ok(Exit::Ok)
}

/// Prints new lines until the task has ended, from one attempt to the next.
fn follow(run: &Found, mut task: Task, args: &LogsArgs) -> io::Result<Exit> {
    let mut current = newest(attempts(&task.directory)?).map(|attempt| begin(attempt, args));
    if current.is_none() {
        say_nothing_yet(run, args);
    }
    for look in 0_u32.. {
        let later = attempts(&task.directory)?.into_iter().filter(|attempt| {
            let is_later = current.as_ref().is_none_or(|logs| attempt.number > logs.attempt.number);
            let is_training = attempt.kind == AttemptKind::Training;
            is_later && (is_training || current.as_ref().is_none_or(is_of_inspection))
        });
        for attempt in later.collect::<Vec<_>>() {
            if let Some(logs) = &mut current {
                print(logs, true, args)?;
            }
            current = Some(begin(attempt, args));
        }
        if let Some(logs) = &mut current {
            print(logs, task.is_over, args)?;
        }
        if task.is_over {
            break;
        }
        pause(LOOK_EVERY);
        if look % LOOKS_A_QUESTION == 0 {
            task = match Task::of(run, &args.task) {
                Ok(Ok(task)) => task,
                // The journal was deleted meanwhile, and the task with it.
                Ok(Err(_)) => break,
                Err(error) => return Ok(run_failed(&error)),
            };
        }
    }
    Ok(Exit::Ok)
}

/// Whether a task's trials are followed after these logs, as after none.
fn is_of_inspection(logs: &Logs) -> bool {
    logs.attempt.kind == AttemptKind::Inspection
}

fn say_nothing_yet(run: &Found, args: &LogsArgs) {
    let task = saturn_view::words::shell_quoted(&args.task);
    let message = format!(
        "`{}` has no logs: it has not trained yet, or never will; why: saturn explain {} {task}",
        args.task, run.shown
    );
    eprintln!("{}", escape_terminal(&message));
}

fn begin(attempt: AttemptLogs, args: &LogsArgs) -> Logs {
    let (number, strategy) = (attempt.number, &attempt.strategy);
    let title = match attempt.kind {
        AttemptKind::Training => format!("==> attempt {number}: {strategy}"),
        AttemptKind::Trial => format!("==> trial {number}: {strategy}"),
        AttemptKind::Inspection => format!("==> inspection {number}"),
    };
    eprintln!("{}", escape_terminal(&title));
    Logs::of(attempt, args.rank)
}

fn print(logs: &mut Logs, all: bool, args: &LogsArgs) -> io::Result<()> {
    let lines = logs.take(all)?;
    let has_several = logs.num_ranks() > 1;
    for (rank, line) in lines {
        if args.json {
            let attempt = logs.attempt.number;
            print_json(&json!({"version": 1, "attempt": attempt, "rank": rank, "line": line}));
        } else if has_several {
            print_data(&format!("rank {rank} | {line}\n"));
        } else {
            print_data(&format!("{line}\n"));
        }
    }
    Ok(())
}
