//! What a person asks of a run in progress: checked, then made a record, or refused in words.
//!
//! A command that changes nothing (a task that is paused already) is accepted. A refusal says what
//! would be right, and changes nothing.

use crate::engine::turn::Engine;
use crate::facts::event::{Command, NewTask};
use crate::facts::ids::{DeviceId, NodeId, TaskId};
use crate::facts::record::{Purpose, Record, StopReason, TaskEnd};
use crate::ledger::timers::Timer;
use crate::state::stage::Stage;

/// Names that a refusal lists.
const MAX_LISTED: usize = 12;

impl Engine {
    /// Does what is asked, or says why not.
    pub(crate) fn command(&mut self, command: Command, now_s: f64) -> Result<(), String> {
        if self.state.ended.is_some() {
            return Err(match command {
                Command::Submit { .. } => "the run has ended, and takes no more tasks: start \
                    another run for them. A run that is started with `keep_open=True` goes on until \
                    it is told to `close`"
                    .to_owned(),
                _ => "the run has ended".to_owned(),
            });
        }
        match command {
            Command::Submit { tasks } => self.submit(tasks, now_s),
            Command::Close => {
                if !self.state.is_closed {
                    self.commit(Record::Closed, now_s);
                }
                Ok(())
            }
            Command::Cancel { task } => {
                let task = self.open_task(&task)?;
                let reason = "cancelled by its user".to_owned();
                self.end_task(task, TaskEnd::Cancelled { reason }, now_s);
                Ok(())
            }
            Command::Pause { task } => {
                let task = self.open_task(&task)?;
                if !self.state.task(task).is_paused {
                    self.commit(Record::Paused { task }, now_s);
                    if let Some((id, _)) = self.state.attempt_of(task) {
                        self.stop(id, StopReason::Pause, now_s);
                    }
                }
                Ok(())
            }
            Command::Unpause { task } => {
                let task = self.open_task(&task)?;
                let state = self.state.task(task);
                if !state.is_paused {
                    let name = self.state.name(task);
                    return Err(match state.held() {
                        Some(why) => format!(
                            "`{name}` is not paused: the stopper holds it ({why}), and takes it up \
                             again where it does well enough"
                        ),
                        None => format!("`{name}` is not paused"),
                    });
                }
                self.commit(Record::Unpaused { task }, now_s);
                Ok(())
            }
            Command::Wish { task, priority, deadline_s, no_deadline, release_s, after } => {
                let task = self.open_task(&task)?;
                let mut wishes = self.state.task(task).spec.wishes.clone();
                wishes.priority = priority.unwrap_or(wishes.priority);
                wishes.deadline_s = deadline_s.or(wishes.deadline_s.filter(|_| !no_deadline));
                wishes.release_s = release_s.unwrap_or(wishes.release_s);
                if let Some(names) = after {
                    wishes.after = self.predecessors(&names, &[])?;
                }
                check_times(wishes.deadline_s, wishes.release_s)?;
                if wishes.after.iter().any(|before| self.comes_after(*before, task)) {
                    let name = self.state.name(task);
                    return Err(format!("`{name}` would have to come after itself"));
                }
                if wishes != self.state.task(task).spec.wishes {
                    self.commit(Record::Wished { task, wishes }, now_s);
                }
                Ok(())
            }
            Command::TakeBack { node, devices } => self.take_back_devices(&node, devices, now_s),
            Command::Judge { judgements } => self.take_judgements(judgements, now_s),
            Command::Note { task, text } => {
                let known =
                    |name| self.state.task_named(name).ok_or_else(|| self.unknown_task(name));
                let task = task.as_deref().map(known).transpose()?;
                self.commit(Record::Noted { task, text }, now_s);
                Ok(())
            }
            Command::Stop { at_once } => {
                if self.state.interrupted != Some(true) {
                    self.stop_run(at_once, now_s);
                }
                Ok(())
            }
        }
    }

    /// Takes tasks into a run that has not ended, closed or not: closed, it only ends as soon as nothing
    /// is left to do. Then no wider node is waited for either.
    fn submit(&mut self, tasks: Vec<NewTask>, now_s: f64) -> Result<(), String> {
        let mut added: Vec<String> = Vec::new();
        let mut specs = Vec::new();
        for NewTask { mut spec, after } in tasks {
            let name = &spec.name;
            if self.state.task_named(name).is_some() || added.contains(name) {
                return Err(format!("there is a task `{name}` already; names must be unique"));
            }
            let wishes = &spec.wishes;
            check_times(wishes.deadline_s, wishes.release_s)?;
            if self.state.is_closed
                && let Some(why) = self.state.out_of_range(&spec)
            {
                return Err(format!("task `{name}`: {why}"));
            }
            spec.wishes.after = self.predecessors(&after, &added)?;
            added.push(spec.name.clone());
            specs.push(spec);
        }
        for spec in specs {
            let task = TaskId(self.state.tasks.len());
            let waits = self.state.out_of_range(&spec);
            self.commit(Record::TaskAdded { task, spec }, now_s);
            if let Some(why) = waits {
                let text = format!("waits for other devices: {why}");
                self.commit(Record::Noted { task: Some(task), text }, now_s);
            }
        }
        Ok(())
    }

    /// The tasks of these names: of the run, or among those that are being added, in order.
    fn predecessors(&self, names: &[String], added: &[String]) -> Result<Vec<TaskId>, String> {
        let first = self.state.tasks.len();
        names
            .iter()
            .map(|name| {
                let position = added.iter().position(|other| other == name);
                let task = self.state.task_named(name);
                if let Some(task) = task
                    && matches!(
                        self.state.stage(task),
                        Stage::Failed | Stage::Cancelled | Stage::Stopped
                    )
                {
                    return Err(format!(
                        "`{name}` has ended without being done, so nothing can come after it"
                    ));
                }
                task.or(position.map(|position| TaskId(first + position)))
                    .ok_or_else(|| self.unknown_task(name))
            })
            .collect()
    }

    /// Whether a task comes after another, or is it.
    fn comes_after(&self, task: TaskId, other: TaskId) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        let mut open = vec![task];
        while let Some(task) = open.pop() {
            if task == other {
                return true;
            }
            if seen.insert(task) {
                open.extend(&self.state.task(task).spec.wishes.after);
            }
        }
        false
    }

    fn open_task(&self, name: &str) -> Result<TaskId, String> {
        let task = self.state.task_named(name).ok_or_else(|| self.unknown_task(name))?;
        if self.state.has_ended(task) {
            let word = self.state.stage(task).word();
            return Err(format!("task `{name}` has ended: it is {word}"));
        }
        Ok(task)
    }

    pub(crate) fn unknown_task(&self, name: &str) -> String {
        let names = self.state.tasks.iter().map(|task| format!("`{}`", task.spec.name));
        let mut listed: Vec<String> = names.take(MAX_LISTED).collect();
        let num_left = self.state.tasks.len() - listed.len();
        if num_left > 0 {
            listed.push(format!("and {num_left} more"));
        }
        format!("there is no task `{name}`; there are {}", listed.join(", "))
    }

    fn take_back_devices(
        &mut self,
        name: &str,
        devices: Vec<u32>,
        now_s: f64,
    ) -> Result<(), String> {
        let nodes = &self.state.cluster.nodes;
        let Some(node) = nodes.iter().position(|node| node.name == name).map(NodeId) else {
            let names: Vec<String> = nodes.iter().map(|node| format!("`{}`", node.name)).collect();
            return Err(format!("there is no node `{name}`; there are {}", names.join(", ")));
        };
        let gpus = self.state.cluster.nodes[node.0].gpus;
        if let Some(device) = devices.iter().find(|device| **device >= gpus) {
            return Err(format!("node `{name}` has devices 0 to {}, not {device}", gpus - 1));
        }
        let devices: Vec<u32> = if devices.is_empty() { (0..gpus).collect() } else { devices };
        let devices: Vec<DeviceId> =
            devices.into_iter().map(|device| DeviceId { node, device }).collect();
        self.take_back(&devices, "asked for by the user", now_s);
        Ok(())
    }

    /// Stops the run: at checkpoints, or at once.
    pub(crate) fn stop_run(&mut self, at_once: bool, now_s: f64) {
        self.commit(Record::Interrupted { at_once }, now_s);
        let live: Vec<_> =
            self.state.attempts.iter().map(|(id, attempt)| (*id, attempt.purpose)).collect();
        for (attempt, purpose) in live {
            // Others have nothing to save: they are run anew the next time.
            if at_once || purpose != Purpose::Train {
                self.kill(attempt, now_s);
            } else {
                self.stop(attempt, StopReason::Interrupt, now_s);
            }
        }
        self.timers.set(now_s, Timer::Solve);
    }
}

fn check_times(deadline_s: Option<f64>, release_s: f64) -> Result<(), String> {
    let times = [("deadline_s", deadline_s.unwrap_or(0.0)), ("release_s", release_s)];
    for (name, value) in times {
        if !(value.is_finite() && value >= 0.0) {
            return Err(format!("`{name}` is {value}; it must be a number of seconds from 0 on"));
        }
    }
    Ok(())
}
