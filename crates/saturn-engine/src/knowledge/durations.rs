//! How long things take, as far as is known now: steps, launches, checkpoints.
//!
//! A trial's figures hold until training has shown others. What training shows of a strategy holds
//! for all tasks of its group; for strategies that were only tried, the trial's figure is corrected
//! by what training shows of the group's others, as far as that speaks for them too (`correction`):
//! else what trains would look worse, or better, only for being known better.
//!
//! The first step of a launch pays for more than itself (kernels, compilation). That is part of the
//! launch, and no part of a step: a trial tells it apart, and what trains is clocked from the first
//! word after its first step.

use saturn_core::{Strategy, TrialOutcome};

use crate::facts::ids::TaskId;
use crate::knowledge::correction::{Correction, Seen};
use crate::knowledge::estimates::{TRAINED_SD, TRIAL_SD};
use crate::state::group::{Group, TrialKey, TrialState};
use crate::state::run::{Attempt, State, TaskState};

/// A moment this close to the end of a step, as a part of the step, is that end.
const AT_END: f64 = 1e-7;
/// An attempt shorter than this says too little about its speed, steps.
pub(crate) const MIN_STEPS_TO_CORRECT: u64 = 10;

/// What training is off by from what was known of a strategy before, beside that one's own error:
/// standard deviation, as a part.
const DEPARTURE_SD: f64 = 0.1;

/// A strategy that a task may run under, on one type of device.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// What is known of it.
    pub trial: &'a TrialState,
    /// Type of device that it holds for.
    pub gpu_type: &'a str,
}

impl State {
    /// The strategies that a task may run under, measured and not excluded, on devices that the pool
    /// may have.
    pub fn choices(&self, task: TaskId) -> impl Iterator<Item = Choice<'_>> {
        let state = self.task(task);
        self.groups[state.group].trials.iter().filter_map(move |(key, trial)| {
            let is_allowed =
                trial.is_known() && state.spec.allows(&trial.strategy) && self.may_run(task, key);
            is_allowed.then_some(Choice { trial, gpu_type: &key.gpu_type })
        })
    }

    /// Whether a task may run under a strategy, as far as its own wishes and failures go,
    /// and the machine's own memory.
    pub(crate) fn may_run(&self, task: TaskId, key: &TrialKey) -> bool {
        let state = self.task(task);
        state.spec.allows_key(&key.strategy)
            && !state.excluded.iter().any(|(excluded, _)| *excluded == key.strategy)
            && self.why_too_large_for_host(state.group, key).is_none()
    }

    /// Seconds a step of a task under a strategy on a type of device; `None` where it was never
    /// measured.
    pub fn step_s(&self, task: TaskId, strategy: &Strategy, gpu_type: &str) -> Option<f64> {
        let trial = self.trial_of(task, strategy, gpu_type)?;
        self.pace(task).step_s(Choice { trial, gpu_type })
    }

    /// Seconds from launch until a task trains at its pace, from where it stands: as it last took a
    /// task of its group that went on from a checkpoint, else as the trial measured it.
    pub fn load_s(&self, task: TaskId, strategy: &Strategy, gpu_type: &str) -> f64 {
        let trial = self.trial_of(task, strategy, gpu_type);
        trial.map_or(0.0, |trial| trial.load_s(self.task(task).step > 0))
    }

    /// What is the same for all strategies of what a task needs under each of them, worked out once.
    pub(crate) fn pace(&self, task: TaskId) -> Pace<'_> {
        let state = self.task(task);
        let observed = self.attempt_of(task).and_then(|(_, attempt)| {
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

    /// Seconds that a checkpoint takes a task while training waits for it, as at a stop and at the
    /// end; `None` where none of its group was timed.
    pub fn save_s(&self, task: TaskId) -> Option<f64> {
        self.task(task).save_s.or(self.group_of(task).lesson.save_s)
    }

    /// Seconds from launch to the checkpoint after so many steps; `None` where it was never measured.
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

    /// Seconds that a running attempt still needs up to a step, or to its task's end, the checkpoint
    /// there included.
    pub fn time_left_s(&self, attempt: &Attempt, until_step: Option<u64>, now_s: f64) -> f64 {
        self.end_of(attempt, until_step, now_s).1
    }

    /// Finished steps at which a running attempt ends that is to stop at a step, or to train to its
    /// task's end, and seconds until then, the checkpoint there included.
    pub(crate) fn end_of(
        &self,
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
            // It is beyond that already, though it may not have said so, and stops as soon as it can.
            let (step, end_s) = self.stop_of(attempt, now_s);
            return (step, (end_s - now_s).max(0.0));
        }
        (until, (train_s + save_s - since_s).max(0.0))
    }

    /// Finished steps at which a running attempt stops that was asked to at `asked_s`, and when it
    /// has: at the end of its present step, and after the checkpoint there. One that loads trains a
    /// step first.
    pub fn stop_of(&self, attempt: &Attempt, asked_s: f64) -> (u64, f64) {
        let step_s = self.expected_step_s(attempt);
        let save_s = self.save_s(attempt.task).unwrap_or(0.0);
        let left = self.target(attempt).saturating_sub(attempt.step);
        let (more, from_s) = match attempt.started {
            None => (1, attempt.launched_s + self.load_s_of(attempt)),
            // It was asked while it loaded.
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

    /// Seconds a step that a running attempt is expected to go on with.
    fn expected_step_s(&self, attempt: &Attempt) -> f64 {
        let gpu_type = self.gang_type(&attempt.gang);
        self.observed_step_s(attempt)
            .or_else(|| self.step_s(attempt.task, &attempt.strategy, gpu_type))
            .unwrap_or(0.0)
    }

    /// Seconds a step of an attempt that has trained for long enough.
    pub(crate) fn observed_step_s(&self, attempt: &Attempt) -> Option<f64> {
        let (steps, taken_s) = attempt.clocked()?;
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

/// Whole steps that so many steps' time has begun. A moment this close to the end of one is that end.
fn steps_begun(steps: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of steps"
    )]
    let begun = (steps - AT_END).ceil().max(0.0) as u64;
    begun
}

impl Attempt {
    /// Steps that were clocked, and the seconds that they took; `None` where those are too few to
    /// tell. Up to its last step, not up to now, since between two words nothing is known.
    pub(crate) fn clocked(&self) -> Option<(f64, f64)> {
        let (steps, taken_s) = self.clocked_since(self.warm?);
        (steps >= MIN_STEPS_TO_CORRECT && taken_s > 0.0).then_some((steps as f64, taken_s))
    }

    /// Steps since a mark, and the seconds that they took.
    pub(crate) fn clocked_since(&self, mark: Warm) -> (u64, f64) {
        let taken_s = self.stepped_s - mark.at_s - (self.blocked_s - mark.blocked_s);
        (self.step.saturating_sub(mark.step), taken_s)
    }
}

/// A mark from which on an attempt's steps are clocked: when its first step was known to be over, or
/// the end of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Warm {
    /// Finished steps.
    pub step: u64,
    /// Time, seconds.
    pub at_s: f64,
    /// Seconds for which it had stood still for checkpoints.
    pub blocked_s: f64,
}

/// What a group's trials and training say of all its strategies together.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Lesson {
    /// What trials are off by.
    pub(crate) correction: Correction,
    /// Seconds that a checkpoint took at most where one was timed.
    save_s: Option<f64>,
    /// How many steps an evaluation takes as long as.
    evaluation_in_steps: Option<f64>,
}

impl Group {
    /// Takes in what has changed about its trials.
    pub(crate) fn learn(&mut self) {
        let seen = self.trials.iter().filter_map(|(key, trial)| {
            let (trained_s, tried_s) = (trial.trained_step_s?, trial.measured_step_s()?);
            let sd = trial.relative_error().hypot(TRAINED_SD);
            let is_told = trained_s > 0.0 && tried_s > 0.0;
            let technique = key.strategy.technique.as_str();
            is_told.then(|| Seen { technique, ratio: trained_s / tried_s, sd })
        });
        let correction = Correction::learnt(&seen.collect::<Vec<_>>());
        let tried = self.trials.values().filter_map(|trial| match &trial.outcome {
            Some(TrialOutcome::Measured { checkpoint_s, .. }) => *checkpoint_s,
            _ => None,
        });
        self.lesson = Lesson {
            correction,
            save_s: tried.max_by(f64::total_cmp),
            evaluation_in_steps: self.evaluation_in_steps(),
        };
    }
}

/// What a task's time under any strategy rests on, beside that strategy.
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

impl TrialState {
    /// Seconds from launch until it trains at its pace, from a checkpoint or from the beginning.
    pub(crate) fn load_s(&self, is_going_on: bool) -> f64 {
        let trained_s = self.trained_load_s.filter(|_| is_going_on);
        let trained_s = trained_s.map(|load_s| load_s + self.warmup_s());
        let estimated_s = || self.estimate.map(|estimate| estimate.setup_s);
        trained_s.or_else(|| self.measured_setup_s()).or_else(estimated_s).unwrap_or(0.0)
    }

    /// Whether plans may count on it: it was measured, it has trained, or its estimate is as sure as
    /// a trial would be.
    pub fn is_known(&self) -> bool {
        self.known_step_s().is_some() || self.outcome.is_none() && self.trained_step_s.is_some()
    }

    /// Whether plans may count on it, and yet it was neither measured nor trained under.
    pub fn is_estimate(&self) -> bool {
        self.is_known() && self.measured_step_s().is_none() && self.trained_step_s.is_none()
    }

    /// Seconds a step, where so many steps of training were clocked: theirs, but where steps differ so
    /// much from one another (batches padded to different lengths) that these few may be unlike the
    /// others, partly what was known before.
    pub(crate) fn clocked_step_s(&self, steps: f64, taken_s: f64) -> f64 {
        let clocked_s = taken_s / steps;
        let (Some(TrialOutcome::Measured { step_s, variation: Some(variation), .. }), true) =
            (&self.outcome, clocked_s > 0.0)
        else {
            return clocked_s;
        };
        let before_s = self.trained_step_s.unwrap_or(*step_s);
        // Both are taken as Normal in the logarithm, and weighed by how sure they are.
        let before = self.relative_error().powi(2) + DEPARTURE_SD.powi(2);
        let weight = before / (before + variation.powi(2) / steps);
        before_s * (clocked_s / before_s).powf(weight)
    }

    /// Seconds a step that plans may count on.
    pub fn known_step_s(&self) -> Option<f64> {
        let sure = self.estimate.filter(|estimate| self.outcome.is_none() && estimate.is_sure());
        self.measured_step_s().or(sure.map(|estimate| estimate.step_s))
    }

    /// Seconds a step that the trial measured.
    pub fn measured_step_s(&self) -> Option<f64> {
        match self.outcome {
            Some(TrialOutcome::Measured { step_s, .. }) => Some(step_s),
            _ => None,
        }
    }

    /// Seconds from launch until it trains at its pace, as the trial measured that.
    pub(crate) fn measured_setup_s(&self) -> Option<f64> {
        match self.outcome {
            Some(TrialOutcome::Measured { setup_s, .. }) => Some(setup_s + self.warmup_s()),
            _ => None,
        }
    }

    /// Seconds that a launch's first step takes beyond later ones, as far as that was measured.
    fn warmup_s(&self) -> f64 {
        match self.outcome {
            Some(TrialOutcome::Measured { warmup_s, .. }) => warmup_s.unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// Standard error of the trial's seconds a step, as a part of them.
    pub(crate) fn relative_error(&self) -> f64 {
        match self.outcome {
            Some(TrialOutcome::Measured { relative_error, .. }) => {
                relative_error.unwrap_or(TRIAL_SD)
            }
            _ => TRIAL_SD,
        }
    }
}
