//! How long steps, launches and checkpoints take, as far as is known now.
//!
//! A trial's figures hold until training has shown others. What training shows of a strategy holds
//! for all tasks of its group. For strategies that were only tried, the trial's figure is corrected
//! by what training shows of the group's other strategies (`correction`). Otherwise a strategy that
//! trains would look worse, or better, only because it is known better.
//!
//! The first step of a launch pays for more than itself (kernels, compilation). That extra time is
//! part of the launch, not of a step. A trial measures it apart, and training is clocked from the
//! first report after its first step.

use saturn_core::Strategy;

use crate::facts::ids::TaskId;
use crate::knowledge::strategies::Choice;
use crate::state::attempt::Attempt;
use crate::state::device::Slowness;
use crate::state::lesson::Correction;
use crate::state::run::State;
use crate::state::task::TaskState;
use crate::state::trial::TrialState;

/// A moment this close to the end of a step, as a part of the step, counts as that end.
const AT_END: f64 = 1e-7;

impl State {
    /// Seconds a step of a task under a strategy on a type of device; `None` where it was never
    /// measured.
    pub fn step_s(&self, task: TaskId, strategy: &Strategy, gpu_type: &str) -> Option<f64> {
        let trial = self.trial_of(task, strategy, gpu_type)?;
        self.pace(task).step_s(Choice { trial, gpu_type })
    }

    /// Seconds from launch until a task trains at its pace.
    ///
    /// A task that continues from a checkpoint is expected to take as long as the last launch in
    /// its group that did so. Without such a launch it takes as long as the trial took.
    pub fn load_s(&self, task: TaskId, strategy: &Strategy, gpu_type: &str) -> f64 {
        let trial = self.trial_of(task, strategy, gpu_type);
        trial.map_or(0.0, |trial| trial.load_s(self.task(task).step > 0))
    }

    /// The figures that are the same under all strategies of a task, worked out once.
    pub(crate) fn pace(&self, task: TaskId) -> Pace<'_> {
        let state = self.task(task);
        let observed = self.attempt_of(task).filter(|(_, attempt)| self.is_in_shape(attempt));
        let observed = observed.and_then(|(_, attempt)| {
            Some((
                attempt.strategy.as_ref(),
                self.gang_type(&attempt.gang),
                self.observed_step_s(attempt)?,
            ))
        });
        Pace {
            num_steps: state.steps.map(|steps| steps.saturating_sub(state.step)),
            is_going_on: state.step > 0,
            observed,
            correction: &self.group_of(task).lesson.correction,
            save_s: self.save_s(task).unwrap_or(0.0),
            task: state,
            evaluation_in_steps: self.group_of(task).lesson.evaluation_in_steps.unwrap_or(0.0),
        }
    }

    /// Seconds that an evaluation is expected to take a running attempt.
    fn evaluation_s(&self, attempt: &Attempt) -> f64 {
        let gpu_type = self.gang_type(&attempt.gang);
        let trial = self.trial_of(attempt.task, &attempt.strategy, gpu_type);
        trial.and_then(TrialState::evaluation_s).unwrap_or_else(|| {
            let in_steps = self.group_of(attempt.task).lesson.evaluation_in_steps;
            in_steps.unwrap_or(0.0) * self.expected_step_s(attempt)
        })
    }

    /// Seconds for which a task's training waits for a checkpoint, as at a stop and at the end.
    /// `None` where no checkpoint of its group was timed.
    pub fn save_s(&self, task: TaskId) -> Option<f64> {
        self.task(task).save_s.or(self.group_of(task).lesson.save_s)
    }

    /// Seconds from launch to the checkpoint after so many steps; `None` where it was never
    /// measured.
    pub fn training_s(
        &self,
        task: TaskId,
        strategy: &Strategy,
        gpu_type: &str,
        num_steps: u64,
    ) -> Option<f64> {
        let trial = self.trial_of(task, strategy, gpu_type)?;
        self.pace(task).training_s(Choice { trial, gpu_type }, num_steps)
    }

    /// Seconds from launch to end of what is left of a task.
    pub fn time_under_s(&self, task: TaskId, strategy: &Strategy, gpu_type: &str) -> Option<f64> {
        let state = self.task(task);
        self.training_s(task, strategy, gpu_type, state.steps?.saturating_sub(state.step))
    }

    /// Seconds that a running attempt still needs up to a step, or to its task's end, the
    /// checkpoint there included.
    pub fn time_left_s(&self, attempt: &Attempt, until_step: Option<u64>, now_s: f64) -> f64 {
        self.end_of(attempt, until_step, now_s).1
    }

    /// The same as if its nodes were well, to compare with strategies under which it does not run.
    pub(crate) fn well_time_left_s(&self, attempt: &Attempt, now_s: f64) -> f64 {
        self.end_on(None, attempt, None, now_s).1
    }

    /// Finished steps at which a running attempt ends, and seconds until then, with the checkpoint
    /// there. The attempt stops at `until_step`, or else trains to its task's end.
    pub(crate) fn end_of(
        &self,
        attempt: &Attempt,
        until_step: Option<u64>,
        now_s: f64,
    ) -> (u64, f64) {
        self.end_on(self.slowness_of(&attempt.gang, now_s), attempt, until_step, now_s)
    }

    fn end_on(
        &self,
        slowness: Option<Slowness>,
        attempt: &Attempt,
        until_step: Option<u64>,
        now_s: f64,
    ) -> (u64, f64) {
        let task = attempt.task;
        let until = until_step.or(self.task(task).steps).unwrap_or(attempt.step);
        let num_steps = until.saturating_sub(attempt.step);
        let step_s = self.expected_step_s(attempt);
        let evaluations = self.task(task).evaluations(attempt.step, until) as f64;
        let train_s = num_steps as f64 * step_s + evaluations * self.evaluation_s(attempt);
        let train_s = slowness.map_or(train_s, |one| one.stretched_s(attempt.stepped_s, train_s));
        let save_s = self.save_s(task).unwrap_or(0.0);
        if attempt.started.is_none() {
            return (until, self.load_left_s(attempt, now_s) + train_s + save_s);
        }
        if num_steps == 0 && attempt.saved_step == Some(until) {
            return (until, 0.0);
        }
        let since_s = now_s - attempt.stepped_s;
        let is_past = num_steps == 0 || since_s > train_s + AT_END * step_s;
        if is_past && until < self.target(attempt) {
            // The attempt is beyond that step already, though it may not have reported so, and
            // stops as soon as it can.
            let (step, end_s) = self.stop_of(attempt, now_s);
            return (step, (end_s - now_s).max(0.0));
        }
        (until, (train_s + save_s - since_s).max(0.0))
    }

    /// Finished steps at which a running attempt stops that was asked to at `asked_s`, and when it
    /// has stopped. It stops at the end of its present step, after the checkpoint there. An attempt
    /// that still loads trains a step first.
    pub fn stop_of(&self, attempt: &Attempt, asked_s: f64) -> (u64, f64) {
        let slowness = self.slowness_of(&attempt.gang, asked_s);
        let step_s = self.expected_step_s(attempt) * slowness.map_or(1.0, |one| one.factor);
        let save_s = self.save_s(attempt.task).unwrap_or(0.0);
        let left = self.target(attempt).saturating_sub(attempt.step);
        let (more, from_s) = match attempt.started {
            None => (1, attempt.launched_s + self.load_s_of(attempt)),
            // The attempt was asked while it loaded.
            Some((from_step, from_s)) if asked_s < from_s => {
                (u64::from(attempt.step == from_step), attempt.stepped_s)
            }
            Some(_) => {
                // An evaluation between two steps is not broken off, and a stop waits for a step.
                let is_evaluating = self.task(attempt.task).awaits_evaluation(attempt.step);
                let before_s = if is_evaluating { self.evaluation_s(attempt) } else { 0.0 };
                let since_s = asked_s - attempt.stepped_s - before_s;
                let begun = steps_begun(since_s / step_s.max(f64::MIN_POSITIVE));
                (begun.max(u64::from(is_evaluating)), attempt.stepped_s + before_s)
            }
        };
        let more = more.min(left);
        (attempt.step + more, from_s + more as f64 * step_s + save_s)
    }

    /// Finished steps at which a running attempt ends by itself.
    pub(crate) fn target(&self, attempt: &Attempt) -> u64 {
        attempt.until_step.or(self.task(attempt.task).steps).unwrap_or(u64::MAX)
    }

    /// Seconds a step that a running attempt is expected to go on with on nodes that are well.
    fn expected_step_s(&self, attempt: &Attempt) -> f64 {
        let gpu_type = self.gang_type(&attempt.gang);
        self.observed_step_s(attempt)
            .or_else(|| self.step_s(attempt.task, &attempt.strategy, gpu_type))
            .unwrap_or(0.0)
    }

    /// Seconds a step of an attempt that has trained for long enough.
    pub(crate) fn observed_step_s(&self, attempt: &Attempt) -> Option<f64> {
        let (steps, taken_s) = self.well_clocked(attempt)?;
        let gpu_type = self.gang_type(&attempt.gang);
        let trial = self.trial_of(attempt.task, &attempt.strategy, gpu_type);
        Some(trial.map_or(taken_s / steps, |trial| trial.clocked_step_s(steps, taken_s)))
    }

    fn load_left_s(&self, attempt: &Attempt, now_s: f64) -> f64 {
        (self.load_s_of(attempt) - (now_s - attempt.launched_s)).max(0.0)
    }

    fn load_s_of(&self, attempt: &Attempt) -> f64 {
        let gpu_type = self.gang_type(&attempt.gang);
        self.load_s(attempt.task, &attempt.strategy, gpu_type)
    }
}

/// The steps that have begun after so many steps' time. A moment this close to the end of a step
/// counts as that end.
fn steps_begun(steps: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of steps"
    )]
    let begun = (steps - AT_END).ceil().max(0.0) as u64;
    begun
}

/// The figures on which a task's time under any strategy depends, beside that strategy's own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace<'a> {
    num_steps: Option<u64>,
    is_going_on: bool,
    /// Seconds a step under the strategy and on the type of device with which it trains now.
    observed: Option<(&'a Strategy, &'a str, f64)>,
    correction: &'a Correction,
    save_s: f64,
    task: &'a TaskState,
    evaluation_in_steps: f64,
}

impl Pace<'_> {
    /// Seconds from launch to end of what is left.
    pub(crate) fn time_s(&self, choice: Choice<'_>) -> Option<f64> {
        self.training_s(choice, self.num_steps?)
    }

    /// Seconds from launch to the checkpoint after so many steps.
    fn training_s(&self, choice: Choice<'_>, num_steps: u64) -> Option<f64> {
        let step_s = self.step_s(choice)?;
        let evaluation_s = choice.trial.evaluation_s().unwrap_or(self.evaluation_in_steps * step_s);
        let train_s = num_steps as f64 * step_s + self.evaluations(num_steps) * evaluation_s;
        Some(choice.trial.load_s(self.is_going_on) + train_s + self.save_s)
    }

    /// Seconds from launch to end of so many steps of a technique that take so long each by a
    /// trial's clock.
    pub(crate) fn with_step_s(
        &self,
        technique: &str,
        setup_s: f64,
        step_s: f64,
        num_steps: f64,
    ) -> f64 {
        let step_s = step_s * self.correction.of(technique);
        let in_steps = self.num_steps.map_or(0.0, |left| self.evaluations(left));
        setup_s + (num_steps + in_steps * self.evaluation_in_steps) * step_s + self.save_s
    }

    /// Evaluations in so many steps from where the task stands.
    fn evaluations(&self, num_steps: u64) -> f64 {
        self.task.evaluations(self.task.step, self.task.step + num_steps) as f64
    }

    fn step_s(&self, Choice { trial, gpu_type }: Choice<'_>) -> Option<f64> {
        let is_same = |(strategy, of_type, _): &(&Strategy, &str, f64)| {
            trial.strategy.is_like(strategy) && *of_type == gpu_type
        };
        let observed_s = self.observed.filter(is_same).map(|(.., step_s)| step_s);
        let tried_s = || {
            let factor = self.correction.of(&trial.strategy.technique);
            Some(trial.known_step_s()? * factor)
        };
        observed_s.or(trial.trained_step_s).or_else(tried_s)
    }
}
