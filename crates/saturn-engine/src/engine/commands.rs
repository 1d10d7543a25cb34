//! What a person asks of a run in progress: checked, then made a record, or refused by a code and
//! in words.
//!
//! A command that changes nothing (a task that is paused already) is accepted. A refusal says what
//! would be right, and changes nothing.

use crate::engine::judgements::take_judgements;
use crate::engine::names::{open_task, unknown_task};
use crate::facts::config::Wishes;
use crate::facts::event::{Command, NewTask};
use crate::facts::ids::{DeviceId, NodeId, TaskId};
use crate::facts::record::{Purpose, Record, StopReason, TaskEnd};
use crate::facts::refusal::{Refusal, RefusalCode};
use crate::health::devices::take_back;
use crate::health::memory::Health;
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::state::run::State;
use crate::state::stage::Stage;

/// Does what is asked, or says why not.
pub(crate) fn command(
    ledger: &mut Ledger,
    health: &mut Health,
    command: Command,
    now_s: f64,
) -> Result<(), Refusal> {
    if ledger.state.ended.is_some() {
        return Err(RefusalCode::RunEnded.because("the run has ended"));
    }
    match command {
        Command::Submit { tasks } => submit(ledger, tasks, now_s),
        Command::Close => {
            if !ledger.state.is_closed {
                ledger.commit(Record::Closed, now_s);
            }
            Ok(())
        }
        Command::Cancel { task, by } => {
            let task = open_task(&ledger.state, &task)?;
            let reason = format!("cancelled by {}", by.as_deref().unwrap_or("its user"));
            ledger.end_task(task, TaskEnd::Cancelled { reason }, now_s);
            Ok(())
        }
        Command::Pause { task } => {
            let task = open_task(&ledger.state, &task)?;
            if !ledger.state.task(task).is_paused {
                ledger.commit(Record::Paused { task }, now_s);
                if let Some((id, _)) = ledger.state.attempt_of(task) {
                    ledger.stop(id, StopReason::Pause, now_s);
                }
            }
            Ok(())
        }
        Command::Unpause { task } => {
            let task = open_task(&ledger.state, &task)?;
            let state = ledger.state.task(task);
            if !state.is_paused {
                let name = ledger.state.name(task);
                let reason = match state.held() {
                    Some(why) => format!(
                        "`{name}` is not paused: the stopper holds it ({why}), and lets it go on \
                         if its results are good enough"
                    ),
                    None => format!("`{name}` is not paused"),
                };
                return Err(RefusalCode::NotPaused.because(reason));
            }
            ledger.commit(Record::Unpaused { task }, now_s);
            Ok(())
        }
        Command::Wish { task, priority, deadline_s, no_deadline, release_s, after } => {
            let task = open_task(&ledger.state, &task)?;
            let mut wishes = ledger.state.task(task).spec.wishes.clone();
            wishes.priority = priority.unwrap_or(wishes.priority);
            wishes.deadline_s = deadline_s.or(wishes.deadline_s.filter(|_| !no_deadline));
            wishes.release_s = release_s.unwrap_or(wishes.release_s);
            if let Some(names) = after {
                wishes.after = predecessors(&ledger.state, &names, &[])?;
            }
            check_times(&wishes)?;
            if wishes.after.iter().any(|before| comes_after(&ledger.state, *before, task)) {
                let name = ledger.state.name(task);
                let reason = format!("`{name}` would have to come after itself");
                return Err(RefusalCode::BadOrder.because(reason));
            }
            if wishes != ledger.state.task(task).spec.wishes {
                ledger.commit(Record::Wished { task, wishes }, now_s);
            }
            Ok(())
        }
        Command::TakeBack { node, devices } => {
            take_back_devices(ledger, health, &node, devices, now_s)
        }
        Command::Judge { judgements } => take_judgements(ledger, judgements, now_s),
        Command::Note { task, text } => {
            let known = |name| {
                ledger.state.task_named(name).ok_or_else(|| unknown_task(&ledger.state, name))
            };
            let task = task.as_deref().map(known).transpose()?;
            ledger.commit(Record::Noted { task, text }, now_s);
            Ok(())
        }
        Command::Stop { at_once } => {
            if ledger.state.interrupted != Some(true) {
                stop_run(ledger, at_once, now_s);
            }
            Ok(())
        }
    }
}

/// Takes tasks into a run that has not ended. A closed run takes them too: it only ends as soon as
/// nothing is left to do. But no wider node is waited for in a closed run.
pub(crate) fn submit(ledger: &mut Ledger, tasks: Vec<NewTask>, now_s: f64) -> Result<(), Refusal> {
    let mut added: Vec<String> = Vec::new();
    let mut specs = Vec::new();
    for NewTask { mut spec, after } in tasks {
        let name = &spec.name;
        if ledger.state.task_named(name).is_some() || added.contains(name) {
            let reason = format!("there is a task `{name}` already; names must be unique");
            return Err(RefusalCode::NameTaken.because(reason));
        }
        let wishes = &spec.wishes;
        check_times(wishes)?;
        if ledger.state.is_closed
            && let Some(why) = ledger.state.out_of_range(&spec)
        {
            return Err(RefusalCode::OutOfRange.because(format!("task `{name}`: {why}")));
        }
        spec.wishes.after = predecessors(&ledger.state, &after, &added)?;
        added.push(spec.name.clone());
        specs.push(spec);
    }
    for spec in specs {
        let task = TaskId(ledger.state.tasks.len());
        let waits = ledger.state.out_of_range(&spec);
        ledger.commit(Record::TaskAdded { task, spec }, now_s);
        if let Some(why) = waits {
            let text = format!("waits for other devices: {why}");
            ledger.commit(Record::Noted { task: Some(task), text }, now_s);
        }
    }
    Ok(())
}

/// The tasks of these names: of the run, or among those that are being added, in order.
fn predecessors(state: &State, names: &[String], added: &[String]) -> Result<Vec<TaskId>, Refusal> {
    let first = state.tasks.len();
    names
        .iter()
        .map(|name| {
            let position = added.iter().position(|other| other == name);
            let task = state.task_named(name);
            if let Some(task) = task
                && matches!(state.stage(task), Stage::Failed | Stage::Cancelled | Stage::Stopped)
            {
                let reason =
                    format!("`{name}` has ended without being done, so nothing can come after it");
                return Err(RefusalCode::BadOrder.because(reason));
            }
            task.or(position.map(|position| TaskId(first + position)))
                .ok_or_else(|| unknown_task(state, name))
        })
        .collect()
}

/// Whether a task comes after another, or is it.
fn comes_after(state: &State, task: TaskId, other: TaskId) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    let mut open = vec![task];
    while let Some(task) = open.pop() {
        if task == other {
            return true;
        }
        if seen.insert(task) {
            open.extend(&state.task(task).spec.wishes.after);
        }
    }
    false
}

fn take_back_devices(
    ledger: &mut Ledger,
    health: &mut Health,
    name: &str,
    devices: Vec<u32>,
    now_s: f64,
) -> Result<(), Refusal> {
    let nodes = &ledger.state.cluster.nodes;
    let Some(node) = nodes.iter().position(|node| node.name == name).map(NodeId) else {
        let names: Vec<String> = nodes.iter().map(|node| format!("`{}`", node.name)).collect();
        let known = match names.as_slice() {
            [] => "the run has no nodes now".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        let reason = format!("there is no node `{name}`; {known}");
        return Err(RefusalCode::NoSuchDevice.because(reason));
    };
    let gpus = ledger.state.cluster.nodes[node.0].gpus;
    if let Some(device) = devices.iter().find(|device| **device >= gpus) {
        let reason = format!("node `{name}` has devices 0 to {}, not {device}", gpus - 1);
        return Err(RefusalCode::NoSuchDevice.because(reason));
    }
    let devices: Vec<u32> = if devices.is_empty() { (0..gpus).collect() } else { devices };
    let devices: Vec<DeviceId> =
        devices.into_iter().map(|device| DeviceId { node, device }).collect();
    take_back(ledger, health, &devices, "asked for by the user", now_s);
    Ok(())
}

/// Stops the run: at checkpoints, or at once.
pub(crate) fn stop_run(ledger: &mut Ledger, at_once: bool, now_s: f64) {
    ledger.commit(Record::Interrupted { at_once }, now_s);
    let live: Vec<_> =
        ledger.state.attempts.iter().map(|(id, attempt)| (*id, attempt.purpose)).collect();
    for (attempt, purpose) in live {
        // Trials and inspections have nothing to save: they are run anew the next time.
        if at_once || purpose != Purpose::Train {
            ledger.kill(attempt, now_s);
        } else {
            ledger.stop(attempt, StopReason::Interrupt, now_s);
        }
    }
    ledger.timers.set(now_s, Timer::Solve);
}

fn check_times(wishes: &Wishes) -> Result<(), Refusal> {
    let times = [
        ("deadline_s", wishes.deadline_s.unwrap_or(0.0)),
        ("release_s", wishes.release_s),
        ("most_late_s", wishes.most_late_s.unwrap_or(0.0)),
    ];
    for (name, value) in times {
        if !(value.is_finite() && value >= 0.0) {
            let reason = format!("`{name}` is {value}; it must be a number of seconds from 0 on");
            return Err(RefusalCode::BadValue.because(reason));
        }
    }
    if let Some(price) = wishes.late_price
        && !(1e-6..=1e6).contains(&price)
    {
        let reason = format!("`late_price` is {price}; it must be a number from 1e-6 to 1e6");
        return Err(RefusalCode::BadValue.because(reason));
    }
    if wishes.most_late_s.is_some() && wishes.late_price.is_none() {
        let reason = "`most_late_s` is for a soft deadline, which has a `late_price`".to_owned();
        return Err(RefusalCode::BadValue.because(reason));
    }
    Ok(())
}
