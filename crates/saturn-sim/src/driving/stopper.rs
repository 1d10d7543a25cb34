//! A search's stopper: successive halving that looks at a run now and then, as the stoppers of a
//! user's process do.
//!
//! Tasks that come to a rung are held. Once no task is left that could come to one, the better half
//! of the held tasks goes on, and the others end. A task that lacks devices for good can't come to a
//! rung, nor can one that comes after it: nobody waits for these.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{Judgement, Metrics, NamedJudgement, Ruling, State, TaskId};

/// Successive halving among all tasks of a run.
#[derive(Debug)]
pub(crate) struct Stopper {
    /// Finished steps at which a task is held.
    pub(crate) rungs: Vec<u64>,
    /// Seconds between two looks.
    pub(crate) every_s: f64,
    /// Rungs that each task was let pass.
    passed: BTreeMap<TaskId, usize>,
}

impl Stopper {
    pub(crate) fn new(rungs: Vec<u64>, every_s: f64) -> Self {
        Self { rungs, every_s, passed: BTreeMap::new() }
    }

    /// What the stopper rules by a look at the run.
    pub(crate) fn look(&mut self, state: &State) -> Vec<NamedJudgement> {
        let open: Vec<TaskId> = state.task_ids().filter(|task| !state.has_ended(*task)).collect();
        let is_held = |task: &TaskId| state.task(*task).held().is_some();
        let is_due = |task: &TaskId| {
            let of = state.task(*task);
            let passed = self.passed.get(task).copied().unwrap_or(0);
            let rung = self.rungs.get(passed);
            of.spec.can_resume && !of.must_not_train() && rung.is_some_and(|rung| of.step >= *rung)
        };
        let due: Vec<TaskId> = open.iter().copied().filter(is_due).collect();
        if !due.is_empty() {
            return due.iter().map(|task| ruled(state, *task, Ruling::Hold)).collect();
        }
        let held: Vec<TaskId> = open.iter().copied().filter(is_held).collect();
        if held.is_empty() || !state.is_closed || !is_at_rest(state, &open, &held) {
            return Vec::new();
        }
        let num_better = held.len().div_ceil(2);
        let rulings = held.iter().enumerate().map(|(number, task)| {
            if number >= num_better {
                return ruled(state, *task, Ruling::Stop);
            }
            *self.passed.entry(*task).or_default() += 1;
            ruled(state, *task, Ruling::GoOn)
        });
        rulings.collect()
    }
}

/// Whether every task left is held, lacks devices, or comes after such a task.
fn is_at_rest(state: &State, open: &[TaskId], held: &[TaskId]) -> bool {
    let lacks = |task: &&TaskId| state.lacking_devices(**task).is_some();
    let mut blocked: BTreeSet<TaskId> = held.iter().copied().collect();
    blocked.extend(open.iter().filter(lacks));
    // The tasks before a task have come before it, or were named to it later: a few rounds do.
    for _ in open {
        let after = |task: &&TaskId| state.waits_for(**task).any(|one| blocked.contains(&one));
        let more: Vec<TaskId> = open.iter().filter(after).copied().collect();
        blocked.extend(more);
    }
    open.iter().all(|task| blocked.contains(task))
}

fn ruled(state: &State, task: TaskId, ruling: Ruling) -> NamedJudgement {
    let judgement = Judgement {
        step: state.task(task).step,
        values: Metrics::new(),
        ruling: Some(ruling),
        reason: "by successive halving".to_owned(),
    };
    NamedJudgement { task: state.name(task).to_owned(), judgement }
}
