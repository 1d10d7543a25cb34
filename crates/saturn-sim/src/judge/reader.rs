//! The reader of a history: it opens the books, and takes in one fact after the other.

use saturn_engine::{Event, Record, Ruling, RunConfig, RunEnd, TaskEnd};

use crate::driving::seam::Violation;
use crate::judge::books::Books;
use crate::judge::search::NOT_TRIED;
use crate::world::history::{Fact, History};

/// All faults of a history, up to the first few, and the number of facts that were read to find
/// them.
pub(crate) fn judge(history: &History, config: &RunConfig) -> (usize, Vec<Violation>) {
    let mut books = Books::new(config);
    for (index, (at_s, fact)) in history.facts.iter().enumerate() {
        books.now_s = *at_s;
        books.read(fact);
        if !books.violations.is_empty() {
            return (index + 1, books.violations);
        }
    }
    (history.facts.len(), Vec::new())
}

impl Books {
    fn read(&mut self, fact: &Fact) {
        if matches!(fact, Fact::Told(_) | Fact::Over) {
            self.end_decision();
        }
        match fact {
            Fact::Told(event) => {
                self.note_duties(event);
                if let Event::Solved { request, .. } = event {
                    self.open_solves.remove(request);
                }
            }
            Fact::Stored(record) => {
                self.stored(record);
                self.duties.retain(|duty| !duty.is_done_by(record));
            }
            Fact::Performed(action) => {
                self.performed(action);
                self.duties.retain(|duty| !duty.is_done_in(action));
            }
            Fact::Refused(_) => self.refused(),
            Fact::Started { attempt, task, purpose, gang, num_ranks } => {
                self.began(*attempt, (*task, *purpose), gang, *num_ranks);
            }
            Fact::Loaded { attempt, step } => self.loaded(*attempt, *step),
            Fact::Gone { attempt, rank } => self.gone(*attempt, *rank),
            Fact::Saved { attempt, task, step } => self.saved(*attempt, *task, *step),
            Fact::Damaged { task, step } => self.damaged(*task, *step),
            Fact::Node { name, gpus } => self.node(name, *gpus),
            Fact::Outlive(undead) => self.outlive = undead.iter().copied().collect(),
            Fact::DriverDied(living) => self.driver_died(living),
            Fact::Hit(_) | Fact::Numbered { .. } => {}
            Fact::Over => self.over(),
        }
    }

    fn over(&mut self) {
        if self.ended != Some(RunEnd::Complete) {
            self.wrong("it ends", "the run is over without having said so".to_owned());
        }
        // A search leaves its tasks as they are.
        let is_search = self.is_search();
        let left: Vec<String> = self
            .tasks
            .iter()
            .filter(|task| task.end.is_none() && !is_search)
            .map(|task| task.name.clone())
            .collect();
        if !left.is_empty() {
            self.wrong("every task ends", format!("{left:?} have not"));
        }
        if let Some(attempt) = self.attempts.iter().find(|(_, one)| one.end.is_none()) {
            self.wrong("every attempt ends", format!("{} has not", attempt.0));
        }
    }

    fn stored(&mut self, record: &Record) {
        if self.ended == Some(RunEnd::Complete) {
            return self.wrong("nothing comes after the end", format!("{record:?}"));
        }
        match record {
            Record::TaskEnded { task, end } => self.task_ended(*task, end),
            Record::RunEnded { end } => {
                if *end == RunEnd::Complete && self.is_search() {
                    self.search_ended();
                } else if *end == RunEnd::Complete {
                    let is_open = self.tasks.iter().any(|task| task.end.is_none());
                    if is_open || !self.is_closed {
                        self.wrong("it ends when all is done", "there was more to come".to_owned());
                    }
                }
                if *end == RunEnd::Interrupted && !self.is_interrupted {
                    self.ended_for_want_of_devices();
                }
                self.ended = Some(*end);
            }
            Record::Closed => self.is_closed = true,
            Record::Noted { task: None, text } if text.starts_with(NOT_TRIED) => {
                self.not_tried.clone_from(text);
            }
            Record::Noted { task: Some(task), text } => {
                if text.starts_with("not held") {
                    self.check_not_held(*task);
                }
                self.noted.push((*task, text.clone()));
            }
            Record::Resumed { device_memory_bytes, machines, adopted } => {
                if let Some(machines) = machines {
                    self.config.policy.host_memory_bytes = machines.host_memory_bytes;
                    self.config.policy.host_memory_by_node = machines.host_memory_by_node.clone();
                    self.config.policy.pool_may_grow = machines.pool_may_grow;
                    self.config.device_kind = machines.device_kind;
                }
                self.resumed(*device_memory_bytes);
                self.adopted(adopted);
            }
            Record::Planned { plan } => {
                for place in &plan.places {
                    // Training tasks go on, even if nodes have become wider since.
                    let trains = self.attempts.values().any(|one| {
                        one.end.is_none() && (one.task, &one.gang) == (place.task, &place.gang)
                    });
                    if !trains && !self.is_sound(&place.gang, &place.strategy) {
                        self.wrong("plans can be followed", format!("{place:?}"));
                    }
                }
                self.plan = Some(plan.places.clone());
            }
            _ => {
                self.stored_of_people(record);
                self.stored_of_task(record);
                self.stored_of_attempt(record);
            }
        }
    }

    fn task_ended(&mut self, id: saturn_engine::TaskId, end: &TaskEnd) {
        let Some(task) = self.tasks.get(id.0) else {
            return self.wrong("records name what there is", format!("{id:?} ended"));
        };
        if task.end.is_some() {
            return self.wrong("a task ends once", task.name.clone());
        }
        match end {
            TaskEnd::Done { .. } => {
                let is_short = task.steps.is_some_and(|steps| task.on_disk < steps);
                if is_short && !self.has_said_done(id) {
                    let what =
                        format!("{} is done at {} of {:?}", task.name, task.on_disk, task.steps);
                    self.wrong("done is trained to the end", what);
                }
            }
            TaskEnd::Failed { error, .. } => {
                if let Err(what) = self.has_failed(id, error) {
                    self.wrong("failed has a cause", what);
                }
            }
            TaskEnd::Stopped { reason } => {
                if reason.is_empty() || task.ruling != Ruling::Stop {
                    let what = format!("{}: {reason}", task.name);
                    self.wrong("stopped by the stopper", what);
                }
            }
            TaskEnd::Cancelled { reason } => {
                let asked = self.is_asked_to_cancel(&self.tasks[id.0].name);
                let is_in_vain = self.tasks[id.0].after.iter().any(|before| {
                    let end = &self.tasks[before.0].end;
                    end.as_ref().is_some_and(|end| !matches!(end, TaskEnd::Done { .. }))
                });
                if reason.is_empty() || !(asked || is_in_vain) {
                    let what = format!("{}: {reason}", self.tasks[id.0].name);
                    self.wrong("cancelled by someone", what);
                }
            }
        }
        self.tasks[id.0].end = Some(end.clone());
    }
}
