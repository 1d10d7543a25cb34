//! What was done to a run from outside, by its journal: tasks that came, commands, rulings of a
//! stopper, nodes that went and came, drivers that died.
//!
//! What a person or a machine does, it does at a time. A stopper rules when tasks report values, so
//! its rulings come at steps: a task is held or ended where it was in the run. A task is let go on
//! when the task before whose values it was reports them again. A study suggests a task when
//! another has ended.

use saturn_core::Node;
use saturn_engine::{
    AttemptEnd, Command, Judgement, NamedJudgement, NewTask, Purpose, Record, Ruling, RunConfig,
    RunEnd, TaskEnd, TaskId, TaskSpec,
};

use crate::driving::simulation::deeds::Deed;
use crate::replaying::attempts::{Attempt, Attempts};
use crate::replaying::costs::{Costs, Reached};

/// What follows an event so soon is taken to be because of it, seconds.
const BECAUSE_WITHIN_S: f64 = 2.0;
/// A node dies so soon after its last word: the replay's last word may come a little later.
const LAST_WORD_S: f64 = 0.05;
/// How the reason begins if a command cancelled a task (`commands.rs` of the engine). A task that is
/// cancelled because of another task has another reason.
const BY_A_COMMAND: &str = "cancelled by ";

/// When something is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Due {
    /// At a time of the run's clock, seconds.
    At(f64),
    /// So many seconds after a task has finished a step.
    Step(TaskId, u64, f64),
    /// So many seconds after a task has ended.
    Ended(TaskId, f64),
}

/// Something that is done to a run.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) due: Due,
    pub(super) deed: Deed,
}

/// All that was done to a run, in order.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) config: RunConfig,
    pub(super) nodes: Vec<Node>,
    pub(super) items: Vec<Item>,
    /// Seconds of the run's clock between an interruption and the driver after it.
    pub(super) breaks_s: Vec<f64>,
}

impl Script {
    /// Reads a journal; `None` if it does not begin as one.
    pub(super) fn of(
        records: &[(Record, f64)],
        attempts: &Attempts,
        costs: &mut Costs,
    ) -> Option<Self> {
        let (Record::Began { config }, _) = records.first()? else { return None };
        let mut script = Self {
            config: config.clone(),
            nodes: Vec::new(),
            items: Vec::new(),
            breaks_s: Vec::new(),
        };
        let (names, nodes) = (Vec::new(), Vec::new());
        let mut reader = Reader { attempts, costs, names, nodes, stopped_s: None };
        for (index, (record, at_s)) in records.iter().enumerate() {
            let before = &records[..index];
            reader.read(&mut script, record, *at_s, before);
        }
        Some(script)
    }
}

/// What the reader of a journal knows at a record.
struct Reader<'a> {
    attempts: &'a Attempts,
    costs: &'a mut Costs,
    names: Vec<String>,
    /// Nodes by number, and when each joined last, seconds.
    nodes: Vec<(Node, f64)>,
    /// When the run was interrupted, while it is.
    stopped_s: Option<f64>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, script: &mut Script, record: &Record, at_s: f64, before: &[(Record, f64)]) {
        let at = Due::At(at_s);
        if let Record::TaskAdded { spec, .. } = record {
            return self.added(script, spec, at_s, before);
        }
        let mut ask = |due: Due, command: Command| {
            script.items.push(Item { due, deed: Deed::Ask(command) });
        };
        match record {
            Record::NodeJoined { node, spec, .. } => {
                if node.0 < self.nodes.len() {
                    self.nodes[node.0] = (spec.clone(), at_s);
                } else {
                    self.nodes.push((spec.clone(), at_s));
                }
                let is_first = before.iter().all(|(record, _)| {
                    matches!(record, Record::Began { .. } | Record::NodeJoined { .. })
                });
                if is_first {
                    script.nodes.push(spec.clone());
                } else {
                    script.items.push(Item { due: at, deed: Deed::NodeComes(spec.clone()) });
                }
            }
            Record::NodeLeft { node, .. } => {
                let number = node.0;
                if let Some((node, joined_s)) = self.nodes.get(number) {
                    let heard = self.attempts.last_heard(number, *joined_s, at_s);
                    if let Some((heard_s, found)) = heard {
                        let silent = Due::At(at_s.min(heard_s + LAST_WORD_S));
                        let deed = Deed::NodeFallsSilent { name: node.name.clone(), found };
                        script.items.push(Item { due: silent, deed });
                    }
                    let deed = Deed::NodeGoes(node.name.clone());
                    script.items.push(Item { due: at, deed });
                }
            }
            Record::TakenBack { node, devices, .. } => {
                if let Some((node, _)) = self.nodes.get(node.0) {
                    let (node, devices) = (node.name.clone(), devices.clone());
                    ask(at, Command::TakeBack { node, devices });
                }
            }
            Record::Closed => {
                let due = if at_s > 0.0 { self.because(before, at_s, false) } else { at };
                ask(due, Command::Close);
            }
            Record::Wished { task, wishes } => {
                let after = wishes.after.iter().filter_map(|one| self.name(*one)).collect();
                let command = self.name(*task).map(|task| Command::Wish {
                    task,
                    priority: Some(wishes.priority),
                    deadline_s: wishes.deadline_s,
                    no_deadline: wishes.deadline_s.is_none(),
                    release_s: Some(wishes.release_s),
                    after: Some(after),
                });
                if let Some(command) = command {
                    ask(at, command);
                }
            }
            Record::Paused { task } => {
                if let Some(task) = self.name(*task) {
                    ask(at, Command::Pause { task });
                }
            }
            Record::Unpaused { task } => {
                if let Some(task) = self.name(*task) {
                    ask(at, Command::Unpause { task });
                }
            }
            Record::TaskEnded { task, end: TaskEnd::Cancelled { reason } }
                if reason.starts_with(BY_A_COMMAND) =>
            {
                if let Some(task) = self.name(*task) {
                    ask(at, Command::Cancel { task, by: None });
                }
            }
            Record::Judged { task, judgement } => {
                if let (Some(name), Some(due)) =
                    (self.name(*task), self.judged(*task, judgement, at_s, before))
                {
                    let judgements =
                        vec![NamedJudgement { task: name, judgement: judgement.clone() }];
                    ask(due, Command::Judge { judgements });
                }
            }
            Record::Interrupted { at_once } => ask(at, Command::Stop { at_once: *at_once }),
            Record::RunEnded { end: RunEnd::Interrupted } => self.stopped_s = Some(at_s),
            Record::Resumed { .. } => match self.stopped_s.take() {
                Some(stopped_s) => script.breaks_s.push(at_s - stopped_s),
                None => script.items.push(Item { due: at, deed: Deed::DriverDies }),
            },
            _ => {}
        }
    }

    fn name(&self, task: TaskId) -> Option<String> {
        self.names.get(task.0).cloned()
    }

    /// A task comes, together with the task before it if that came by the same event.
    fn added(&mut self, script: &mut Script, spec: &TaskSpec, at_s: f64, before: &[(Record, f64)]) {
        let after = spec.wishes.after.iter().filter_map(|one| self.name(*one)).collect();
        let task = NewTask { spec: spec.clone(), after };
        self.names.push(spec.name.clone());
        let due = if at_s > 0.0 { self.because(before, at_s, false) } else { Due::At(at_s) };
        if let Some(Item { due: last, deed: Deed::Ask(Command::Submit { tasks }) }) =
            script.items.last_mut()
            && *last == due
        {
            return tasks.push(task);
        }
        let deed = Deed::Ask(Command::Submit { tasks: vec![task] });
        script.items.push(Item { due, deed });
    }

    /// When a ruling is due; `None` where it rules nothing.
    fn judged(
        &mut self,
        task: TaskId,
        judgement: &Judgement,
        at_s: f64,
        before: &[(Record, f64)],
    ) -> Option<Due> {
        let ruling = judgement.ruling?;
        let live = self.live(task, at_s);
        let Some(live) = live.filter(|_| ruling != Ruling::GoOn) else {
            return Some(self.because(before, at_s, true));
        };
        // It is ruled on some steps after the values that the ruling is about, and stops some steps
        // after that.
        let mut due = self.reached(task, judgement.step, at_s);
        if let Some(ended) = live.ended.as_ref() {
            due = due.at_most(ended.step);
            if matches!(ended.end, AttemptEnd::Stopped) {
                self.costs.stop(task, due.step, ended.step);
            }
        }
        let due = due.at_least(1);
        Some(Due::Step(task, due.step, due.after_s))
    }

    /// The attempt of a task that trains at a time.
    fn live(&self, task: TaskId, at_s: f64) -> Option<&'a Attempt> {
        let is_live = |one: &&Attempt| {
            let ended = one.ended.as_ref();
            one.task == task
                && one.purpose != Purpose::Inspection
                && one.launched_s <= at_s
                && ended.is_none_or(|ended| ended.at_s > at_s)
        };
        let attempts: &'a Attempts = self.attempts;
        attempts.all.iter().find(is_live)
    }

    /// Where a task's training was when the value of `step` was seen, at `at_s`.
    fn reached(&self, task: TaskId, step: u64, at_s: f64) -> Reached {
        let live = self.live(task, at_s).and_then(|live| self.costs.reached(live, at_s));
        live.map_or(Reached { step, after_s: 0.0 }, |at| at.at_least(step))
    }

    /// What a deed at `at_s` was done because of: the end of a task just before, or for a ruling
    /// also a report of a task; else it was done at that time.
    fn because(&self, before: &[(Record, f64)], at_s: f64, is_ruling: bool) -> Due {
        let recent =
            before.iter().rev().take_while(|(_, then_s)| at_s - then_s <= BECAUSE_WITHIN_S);
        let mut causes = recent.filter_map(|(record, then_s)| match record {
            Record::Judged { task, judgement } if is_ruling && !judgement.values.is_empty() => {
                let Reached { step, after_s } = self.reached(*task, judgement.step, *then_s);
                Some(Due::Step(*task, step, after_s + at_s - then_s))
            }
            Record::TaskEnded { task, .. } => Some(Due::Ended(*task, at_s - then_s)),
            _ => None,
        });
        causes.next().unwrap_or(Due::At(at_s))
    }
}
