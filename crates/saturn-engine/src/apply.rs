//! How each record changes the state.
//!
//! [`State::apply`] is the only way in which a run's durable state changes. It never fails: a record
//! that names something unknown (a damaged journal) changes nothing.

use std::collections::BTreeSet;

use saturn_core::{Knobs, Strategy, TrialOutcome};

use crate::config::TaskSpec;
use crate::ids::{AttemptId, TaskId};
use crate::record::{AttemptEnd, Purpose, Record, RunEnd, TaskEnd};
use crate::state::{Attempt, MIN_STEPS_TO_CORRECT, State, TaskStatus, TrialSlot};

impl State {
    /// Makes the slots that the present cluster and techniques call for, keeping outcomes that are
    /// known. Wide trials come first, so that narrow ones fill the gaps that they leave.
    pub(crate) fn lay_out_trials(&mut self) {
        let groups: Vec<TaskId> =
            self.task_ids().filter(|task| self.group_of(*task) == *task).collect();
        for task in groups {
            let spec = &self.config.tasks[task.0];
            for gpus in widths(self.config.widest()) {
                if spec.gpu_range.as_ref().is_some_and(|range| !range.contains(&gpus)) {
                    continue;
                }
                for technique in &self.config.techniques {
                    let is_known = self.trials.iter().any(|trial| {
                        trial.task == task
                            && trial.strategy.technique == technique.name
                            && trial.strategy.gpus == gpus
                    });
                    if is_known {
                        continue;
                    }
                    let measured = spec.measured.iter().find(|trial| {
                        trial.strategy.technique == technique.name && trial.strategy.gpus == gpus
                    });
                    self.trials.push(TrialSlot {
                        task,
                        strategy: measured.map_or_else(
                            || Strategy {
                                technique: technique.name.clone(),
                                gpus,
                                knobs: Knobs::new(),
                            },
                            |trial| trial.strategy.clone(),
                        ),
                        outcome: measured.map(|trial| trial.outcome.clone()),
                        reused: measured.is_some(),
                    });
                }
            }
        }
        let learned: Vec<(TaskId, TrialOutcome)> = self
            .trials
            .iter()
            .filter_map(|trial| Some((trial.task, trial.outcome.clone()?)))
            .collect();
        for (group, outcome) in learned {
            self.learn_from_trial(group, &outcome);
        }
    }

    /// Takes from a trial the number of steps of tasks that are given in epochs, and what a
    /// checkpoint costs tasks that have made none.
    fn learn_from_trial(&mut self, group: TaskId, outcome: &TrialOutcome) {
        let TrialOutcome::Measured { batches_per_epoch, checkpoint_s, .. } = outcome else {
            return;
        };
        let tasks: Vec<TaskId> = self.tasks_like(group).collect();
        for task in tasks {
            if let Some(checkpoint_s) = checkpoint_s
                && self.tasks[task.0].checkpoint_step == 0
            {
                self.tasks[task.0].save_s = *checkpoint_s;
            }
            let (Some(batches), TaskSpec { epochs: Some(epochs), batches_a_step, .. }) =
                (batches_per_epoch, &self.config.tasks[task.0])
            else {
                continue;
            };
            let all = epochs.saturating_mul(*batches);
            self.tasks[task.0].steps = Some(all.div_ceil(batches_a_step.get()));
        }
    }

    /// Applies a record that was made at `now_s`.
    pub fn apply(&mut self, record: &Record, now_s: f64) {
        self.now_s = self.now_s.max(now_s);
        match record {
            Record::Began { .. } | Record::PlanKept { .. } | Record::Noted { .. } => {}
            Record::Resumed { cluster, device_memory_bytes } => {
                self.config.cluster = cluster.clone();
                self.limit_device_memory(*device_memory_bytes);
                self.lay_out_trials();
                self.interrupted = None;
                self.plan_is_stale = true;
                if self.ended == Some(RunEnd::Interrupted) {
                    self.ended = None;
                }
                for task in &mut self.tasks {
                    task.failures = 0;
                    task.not_before_s = 0.0;
                }
            }
            Record::Launched { .. } => self.apply_launch(record, now_s),
            Record::Started { attempt, step, setup_s } => {
                if let Some(state) = self.attempts.get_mut(attempt) {
                    state.started = Some((*step, now_s));
                    state.step = *step;
                    if state.purpose == Purpose::Train
                        && let Some(task) = self.tasks.get_mut(state.task.0)
                    {
                        task.step = *step;
                        task.checkpoint_step = *step;
                        if *step > 0 {
                            task.load_s = Some(*setup_s);
                        }
                    }
                }
            }
            Record::Checkpointed { attempt, step, save_s, blocked_s } => {
                let task = self.attempts.get(attempt).map(|state| state.task.0);
                if let Some(task) = task.and_then(|index| self.tasks.get_mut(index)) {
                    if *step > task.checkpoint_step {
                        task.failures = 0;
                    }
                    task.checkpoint_step = *step;
                    task.step = task.step.max(*step);
                    task.blocked_s += *blocked_s;
                    // One in the background takes longer than it costs.
                    if blocked_s >= save_s {
                        task.save_s = *save_s;
                    }
                }
            }
            Record::Tried { trial, strategy, outcome } => {
                if let Some(slot) = self.trials.get_mut(*trial) {
                    slot.strategy = strategy.clone();
                    slot.outcome = Some(outcome.clone());
                    let group = slot.task;
                    self.learn_from_trial(group, outcome);
                }
            }
            Record::Planned { plan } => {
                self.plans.push(plan.clone());
                self.plan_is_stale = false;
            }
            Record::Stopping { attempt, reason } => {
                if let Some(state) = self.attempts.get_mut(attempt) {
                    state.stopping = Some(*reason);
                }
            }
            Record::Ended { attempt, end, step } => {
                self.apply_end(*attempt, end, *step, now_s);
            }
            Record::Retrying { task, not_before_s } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.failures += 1;
                    task.not_before_s = *not_before_s;
                }
            }
            Record::Excluded { task, strategy, reason } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.excluded.push((strategy.clone(), reason.clone()));
                    self.plan_is_stale = true;
                }
            }
            Record::TaskEnded { task, end } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.status = TaskStatus::Ended(end.clone());
                    if let TaskEnd::Done { loss } = end {
                        task.loss = loss.or(task.loss);
                    }
                }
            }
            Record::Interrupted { at_once } => self.interrupted = Some(*at_once),
            Record::RunEnded { end } => self.ended = Some(*end),
        }
    }

    fn apply_launch(&mut self, launched: &Record, now_s: f64) {
        let Record::Launched { attempt, task, purpose, strategy, gang, until_step } = launched
        else {
            return;
        };
        let Some(task_state) = self.tasks.get_mut(task.0) else { return };
        if *purpose == Purpose::Train {
            task_state.status = TaskStatus::Running(*attempt);
        }
        self.attempts.insert(
            *attempt,
            Attempt {
                task: *task,
                purpose: *purpose,
                strategy: strategy.clone(),
                gang: gang.clone(),
                until_step: *until_step,
                launched_s: now_s,
                started: None,
                stopping: None,
                ended: None,
                step: task_state.checkpoint_step,
                step_s: None,
                heard_s: now_s,
                live_ranks: self.config.num_ranks(strategy),
                failure: None,
                failed_ranks: BTreeSet::new(),
                echo_s: None,
                killing: false,
                completed: false,
            },
        );
    }

    fn apply_end(&mut self, id: AttemptId, end: &AttemptEnd, step: u64, now_s: f64) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.ended = Some((end.clone(), now_s));
        attempt.step = step;
        attempt.live_ranks = 0;
        if attempt.purpose != Purpose::Train {
            return;
        }
        let (task, started, strategy) = (attempt.task, attempt.started, attempt.strategy.clone());
        let predicted_s = self.predicted_step_s(task, &strategy);
        let Some(task) = self.tasks.get_mut(task.0) else { return };
        if task.status == TaskStatus::Running(id) {
            task.status = TaskStatus::Waiting;
        }
        task.step = step;
        if !matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped) {
            // Its time ran on to its end, but its steps only to its last checkpoint.
            return;
        }
        task.checkpoint_step = step;
        if let (Some((from_step, from_s)), Some(predicted_s)) = (started, predicted_s) {
            let trained = step.saturating_sub(from_step);
            if trained >= MIN_STEPS_TO_CORRECT {
                task.correction = (now_s - from_s) / trained as f64 / predicted_s;
            }
        }
    }
}

/// Device counts to try on nodes of `widest` devices, wide first: all of them up to 8, then powers of
/// two and the whole node, since neighbours differ little there and every trial costs time.
fn widths(widest: u32) -> impl Iterator<Item = u32> {
    (1..=widest).rev().filter(move |gpus| *gpus <= 8 || gpus.is_power_of_two() || *gpus == widest)
}
