//! A task and its progress.
//!
//! Plain data. The room `changes` changes it, record by record.

use saturn_core::{Strategy, StrategyKey};

use crate::facts::config::TaskSpec;
use crate::facts::evaluation::{BestEvaluation, Evaluation};
use crate::facts::ids::AttemptId;
use crate::facts::record::TaskEnd;
use crate::facts::sharing::Guarantee;
use crate::state::space::NoSpace;

/// What a task is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskStatus {
    /// Not training: it waits for a measurement, a plan, its devices, or the time of a retry.
    Waiting,
    /// Training.
    Running(AttemptId),
    /// Ended.
    Ended(TaskEnd),
}

/// What a stopper said of a task that is not to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// It waits, and why.
    Held(String),
    /// It ends once it has stopped, and why.
    Stopping(String),
}

/// A task and its progress.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct TaskState {
    /// The task as it was given, with its present priority, deadline and release.
    pub spec: TaskSpec,
    /// Index into [`State::groups`](crate::State::groups).
    pub group: usize,
    /// Whether the task waits, runs or has ended.
    pub status: TaskStatus,
    /// It is to do nothing until it is taken up again. It may still be running: then it stops.
    pub is_paused: bool,
    /// The process that would start its ranks is not there: that of another person of the machine.
    pub is_owner_away: bool,
    /// What the stopper said of it, where it is not to train. It may still be running: then it
    /// stops.
    pub judged: Option<Judged>,
    /// The stopper has let it go on after it was held, and it was not launched since.
    pub is_let_go_on: bool,
    /// When it came, seconds.
    pub added_s: f64,
    /// Steps in all; unknown until a trial has found the length of the loader.
    pub steps: Option<u64>,
    /// Finished steps, live.
    pub step: u64,
    /// Finished steps in the newest checkpoint.
    pub checkpoint_step: u64,
    /// Loss of the last of `step`, live.
    pub loss: Option<f64>,
    /// Loss of the last of `checkpoint_step`.
    pub checkpoint_loss: Option<f64>,
    /// Failures since the last new checkpoint that count towards its end.
    pub failures: u32,
    /// No launch before this time, seconds.
    pub not_before_s: f64,
    /// Its last attempt at training met a full disk.
    pub no_space: Option<NoSpace>,
    /// Technique and device count that must not be used again, and why.
    pub excluded: Vec<(StrategyKey, String)>,
    /// Seconds that its last checkpoint took while training waited for it; `None` before the first.
    pub save_s: Option<f64>,
    /// Seconds for which its training stood still for checkpoints, all together.
    pub blocked_s: f64,
    /// What its last evaluation found.
    pub evaluation: Option<Evaluation>,
    /// Its best evaluation, where it says which is that.
    pub best: Option<BestEvaluation>,
    /// Seconds for which its training stood still for evaluations, all together.
    pub evaluating_s: f64,
    /// A trial with its functions has measured a strategy.
    pub was_measured: bool,
    /// Its functions have raised, when tasks that it comes after were not done.
    pub raised_early: bool,
    /// How many times it was launched to train.
    pub num_attempts: u32,
    /// When it last ended an attempt at training, seconds; 0 before.
    pub trained_until_s: f64,
    /// When a plan or a trial last stopped it, to go on elsewhere or later, seconds on the run's clock.
    pub moved_s: Option<f64>,
    /// When it would end if its owner were alone on the owner's share of a pool that people share;
    /// `None` until that is planned.
    pub guarantee: Option<Guarantee>,
    /// The part of it, out of 1, that its owner would not have trained alone when the task was last
    /// to do nothing. It counts where there is no guarantee.
    pub(crate) left_alone: f64,
    /// How often it had a guarantee and was then to do nothing.
    pub(crate) num_suspended: u32,
    /// Its last attempt was killed from outside, under this strategy, and nothing was saved in it.
    pub was_killed: Option<StrategyKey>,
}

impl TaskState {
    /// The time before which it must not start, seconds: its release, or the end of its wait before
    /// a retry.
    pub(crate) fn may_start_s(&self) -> f64 {
        self.not_before_s.max(self.spec.wishes.release_s)
    }

    /// Whether training has diverged: its last loss is no finite number.
    pub fn has_diverged(&self) -> bool {
        self.loss.is_some_and(|loss| !loss.is_finite())
    }

    /// So many steps are finished and not lost. The loss is that of the last of them, as far as it
    /// is known. Evaluations of lost steps are forgotten; they are done again.
    pub(crate) fn reset_to_step(&mut self, step: u64) {
        let told = self.loss.filter(|_| step == self.step);
        let saved = self.checkpoint_loss.filter(|_| step == self.checkpoint_step);
        (self.step, self.loss) = (step, told.or(saved));
        self.evaluation.take_if(|last| last.step > step);
        self.best.take_if(|best| best.evaluation.step > step);
    }

    /// Whether it has done as many steps as it was to do.
    pub(crate) fn has_all_steps(&self) -> bool {
        self.steps.is_some_and(|steps| self.step >= steps)
    }

    /// Whether it is to do nothing for now: its user paused it, the stopper holds it or ends it, or
    /// nobody can start its ranks.
    pub fn must_not_train(&self) -> bool {
        self.is_paused || self.judged.is_some() || self.is_owner_away
    }

    /// Why the stopper holds it; `None` where it doesn't.
    pub fn held(&self) -> Option<&str> {
        match &self.judged {
            Some(Judged::Held(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Whether a strategy is excluded for this task.
    pub(crate) fn excludes(&self, strategy: &Strategy) -> bool {
        self.excluded.iter().any(|(key, _)| strategy.is_of(key))
    }

    /// Whether a technique on a number of devices is excluded for this task.
    pub(crate) fn excludes_key(&self, key: &StrategyKey) -> bool {
        self.excluded.iter().any(|(excluded, _)| excluded == key)
    }

    /// Turns a length in epochs into steps, once the length of an epoch is known.
    pub(crate) fn learn_steps(&mut self, batches_per_epoch: u64) {
        if let (None, Some(epochs)) = (self.steps, self.spec.epochs) {
            let all = epochs.saturating_mul(batches_per_epoch);
            self.steps = Some(all.div_ceil(self.spec.batches_a_step.get()));
        }
    }

    /// How many evaluations an attempt does that continues from `from` finished steps and ends
    /// after `to`.
    pub(crate) fn evaluations(&self, from: u64, to: u64) -> u64 {
        let Some(spec) = self.spec.evaluation else { return 0 };
        let done = self.evaluation.as_ref().map_or(0, |last| last.step);
        let first = from.max(done + 1);
        let at_end = u64::from(self.steps == Some(to) && to >= first);
        let Some(every) = spec.every_steps else { return at_end };
        let up_to = |step: u64| step / every.get();
        up_to(to.max(first) - 1) - up_to(first - 1) + at_end
    }

    /// Whether an evaluation is due after so many steps, and not done.
    pub(crate) fn awaits_evaluation(&self, step: u64) -> bool {
        let Some(spec) = self.spec.evaluation else { return false };
        let done = self.evaluation.as_ref().map_or(0, |last| last.step);
        let is_due = self.steps == Some(step)
            || spec.every_steps.is_some_and(|every| step.is_multiple_of(every.get()));
        is_due && step > done
    }
}
