//! Lines for training attempts and for the ends of tasks.

use saturn_core::StrategyKey;
use saturn_core::names::escape_terminal;
use saturn_engine::{
    AttemptEnd, AttemptId, BestEvaluation, Evaluation, FailureKind, Purpose, State, StopReason,
    TaskEnd, TaskId, devices,
};

use crate::facts::device_time::LATE_S;
use crate::facts::history::History;
use crate::facts::outcome::{planned_s, train_s, unheard_s};
use crate::layout::text::pad;
use crate::layout::units::{duration, number, signed_percent};
use crate::phrases::device_uses::until_trained;
use crate::phrases::events::{self, WAITS_FOR_SPACE};
use crate::phrases::tasks::{steps, trained_steps};
use crate::phrases::words::{self, first_line};
use crate::transcript::writer::{Transcript, more};

/// The most lines that say why devices began to train late; `saturn explain` has all.
const MOST_LATE: usize = 8;
/// The least time between two reported evaluations of a task, seconds.
const EVALUATIONS_EVERY_S: f64 = 10.0;
/// The share of a task's time, and the seconds, from which a line tells how long training stood
/// still for checkpoints.
const NOTABLE_SAVING: (f64, f64) = (0.01, 0.1);

impl Transcript {
    pub(super) fn launched(&self, state: &State, attempt: AttemptId, now_s: f64) -> Vec<String> {
        self.trains(state, attempt, None, now_s)
    }

    pub(super) fn went_on(
        &self,
        state: &State,
        attempt: AttemptId,
        step: u64,
        now_s: f64,
    ) -> Vec<String> {
        self.trains(state, attempt, Some(step), now_s)
    }

    /// The line that says why no task trained on an attempt's devices before, if one should have.
    pub(super) fn began_late(
        &mut self,
        state: &State,
        history: &History,
        attempt: AttemptId,
        now_s: f64,
    ) -> Option<String> {
        if self.num_late_told >= MOST_LATE {
            return None;
        }
        let gang = &state.attempts.get(&attempt)?.gang;
        let late = devices(gang).filter_map(|device| history.device_time.late_device(device));
        let new = late.filter(|one| one.trained_s == Some(now_s) && one.waited_s() > LATE_S);
        let latest = new.max_by(|one, other| one.waited_s().total_cmp(&other.waited_s()))?;
        self.num_late_told += 1;
        let text = format!(
            "no task trained on {} for {}: {}",
            words::on_devices(&state.cluster, gang),
            duration(latest.waited_s()),
            until_trained(state, history, &latest),
        );
        Some(self.line(now_s, "late", &text))
    }

    /// Lines for a task that begins to train: from its checkpoint, or from the last step of its
    /// trial.
    fn trains(
        &self,
        state: &State,
        attempt: AttemptId,
        tried_to: Option<u64>,
        now_s: f64,
    ) -> Vec<String> {
        let Some(launched) = state.attempts.get(&attempt) else { return Vec::new() };
        if launched.purpose != Purpose::Train {
            return Vec::new();
        }
        let task = state.task(launched.task);
        let from_step = tried_to.unwrap_or(task.checkpoint_step);
        let part = match (from_step, task.steps) {
            (0, Some(all)) => steps(all),
            (0, None) => "training".to_owned(),
            (from, Some(all)) => format!("from step {from} of {all}"),
            (from, None) => format!("from step {from}"),
        };
        let until = launched.until_step.map(|step| format!(" to step {step}")).unwrap_or_default();
        let expected_s = state.time_left_s(launched, launched.until_step, now_s);
        let expected = if task.steps.is_some() && expected_s > 0.0 {
            format!(", expected to take {}", duration(expected_s))
        } else {
            String::new()
        };
        let word = if tried_to.is_some() { "go on" } else { "start" };
        let text = format!(
            "{}  {}  {}, {part}{until}{expected}",
            self.name(state, launched.task),
            pad(&words::strategy(&launched.strategy), Self::strategy_width(state)),
            words::on_devices(&state.cluster, &launched.gang),
        );
        vec![self.line(now_s, word, &text)]
    }

    pub(super) fn ended(
        &mut self,
        state: &State,
        history: &History,
        id: AttemptId,
        end: &AttemptEnd,
        step: u64,
        now_s: f64,
    ) -> Vec<String> {
        let Some(ended) = history.attempts.get(&id) else { return Vec::new() };
        if let (Purpose::Inspection, AttemptEnd::Failed { failure }) = (ended.purpose, end) {
            return self.inspection_failed(state, ended.task, failure, now_s);
        }
        if let AttemptEnd::Failed { failure } = end
            && failure.kind == FailureKind::NoSpace
        {
            return self.no_space(state, ended.task, &failure.error, now_s);
        }
        self.told_no_space.remove(&ended.task);
        if ended.purpose != Purpose::Train && *end != AttemptEnd::Abandoned {
            return Vec::new();
        }
        let name = self.name(state, ended.task);
        match end {
            AttemptEnd::Finished => Vec::new(),
            AttemptEnd::Stopped => {
                let reason = ended.stopping.map_or(StopReason::Switch, |(reason, _)| reason);
                let why = events::stop_reason(reason);
                let text = format!("{name}  at the checkpoint of step {step}: {why}");
                vec![self.line(now_s, "stop", &text)]
            }
            AttemptEnd::Killed => {
                let text = format!("{name}  killed; the checkpoint of step {step} stays");
                vec![self.line(now_s, &self.paint.warn("stop"), &text)]
            }
            AttemptEnd::Lost => {
                let text = format!("{name}  its processes have gone; goes on from step {step}");
                vec![self.line(now_s, &self.paint.warn("lost"), &text)]
            }
            AttemptEnd::Abandoned => {
                let until = if ended.gang.is_empty() {
                    String::new()
                } else {
                    let devices = words::on_devices(&state.cluster, &ended.gang);
                    format!("; {devices} not used until they are gone")
                };
                let text = format!(
                    "{name}  attempt {id}: its processes were killed and have not ended{until}"
                );
                vec![self.line(now_s, &self.paint.bad("abandon"), &text)]
            }
            AttemptEnd::Failed { failure } => {
                let error = first_line(&failure.error);
                let (told, error) = match self.told_errors.get(&ended.task) {
                    Some((at, told)) if *told == failure.error => {
                        (*at, format!("the error of attempt {at} again"))
                    }
                    _ => (id, error),
                };
                self.told_errors.insert(ended.task, (told, failure.error.clone()));
                let text = format!(
                    "{name}  attempt {id} ({}), rank {}: {}: {error}",
                    words::strategy(&ended.strategy),
                    failure.rank,
                    words::failure_kind(failure.kind),
                );
                let mut lines = vec![self.line(now_s, &self.paint.bad("failed"), &text)];
                lines.extend(self.traceback(state, ended.task, &failure.traceback));
                let dir = &state.task(ended.task).spec.dir;
                let log = format!("log: {dir}/attempts/{id}/rank-{}.log", failure.rank);
                lines.push(more(&self.paint.dim(&escape_terminal(&log))));
                lines
            }
        }
    }

    /// Lines for a full disk. They appear once until an attempt ends for another reason.
    fn no_space(&mut self, state: &State, task: TaskId, error: &str, now_s: f64) -> Vec<String> {
        let error = first_line(error);
        if self.told_no_space.get(&task) == Some(&error) {
            return Vec::new();
        }
        let text = format!(
            "{}  {WAITS_FOR_SPACE}: {error}; it goes on when there is more room",
            self.name(state, task)
        );
        self.told_no_space.insert(task, error);
        vec![self.line(now_s, &self.paint.warn("space"), &text)]
    }

    pub(super) fn retrying(
        &self,
        state: &State,
        task: TaskId,
        not_before_s: f64,
        counts: bool,
        now_s: f64,
    ) -> Vec<String> {
        if state.task(task).no_space.is_some() {
            return Vec::new(); // a line has said that the task waits for space on the disk
        }
        let wait_s = not_before_s - now_s;
        let when = if wait_s > 0.0 { format!("in {}", duration(wait_s)) } else { "now".to_owned() };
        let counted = if counts {
            events::failures(state, task)
        } else {
            "not counted as its failure".to_owned()
        };
        let text = format!(
            "{}  tries again {when}, from step {} ({counted})",
            self.name(state, task),
            state.task(task).checkpoint_step,
        );
        vec![self.line(now_s, &self.paint.warn("retry"), &text)]
    }

    pub(super) fn excluded(
        &self,
        state: &State,
        task: TaskId,
        key: &StrategyKey,
        reason: &str,
        now_s: f64,
    ) -> String {
        let text = format!(
            "{}  not under {} again: {}",
            self.name(state, task),
            words::technique_on(&key.technique, key.gpus),
            first_line(reason),
        );
        self.line(now_s, &self.paint.warn("exclude"), &text)
    }

    /// A line for an evaluation. In a quick sequence of evaluations some are left out.
    pub(super) fn evaluated(
        &mut self,
        state: &State,
        task: TaskId,
        evaluation: &Evaluation,
        best: Option<&BestEvaluation>,
        now_s: f64,
    ) -> Option<String> {
        let is_soon = |told_s: &f64| now_s - told_s < EVALUATIONS_EVERY_S;
        if self.told_evaluations.get(&task).is_some_and(is_soon) {
            return None;
        }
        self.told_evaluations.insert(task, now_s);
        let is_best = best.is_some_and(|best| best.evaluation.step == evaluation.step);
        let text = format!(
            "{}  {} after step {}{}",
            self.name(state, task),
            words::metrics(evaluation),
            evaluation.step,
            if is_best { ", the best so far" } else { "" },
        );
        Some(self.line(now_s, "eval", &text))
    }

    pub(super) fn task_ended(
        &mut self,
        state: &State,
        history: &History,
        task: TaskId,
        end: &TaskEnd,
        now_s: f64,
    ) -> Vec<String> {
        let name = self.name(state, task);
        match end {
            TaskEnd::Done { loss } => {
                let took_s = train_s(history, task, now_s).unwrap_or(0.0);
                let planned = planned_s(history, task, now_s)
                    .map(|planned_s| {
                        format!(
                            " (planned {}, {})",
                            duration(planned_s),
                            signed_percent(took_s / planned_s - 1.0)
                        )
                    })
                    .unwrap_or_default();
                let unheard_s = unheard_s(history, task, now_s);
                let unheard = if unheard_s > 0.0 {
                    format!(" (the run's driver stood still for {} of it)", duration(unheard_s))
                } else {
                    String::new()
                };
                let blocked_s = state.task(task).blocked_s;
                let saving = if blocked_s >= (NOTABLE_SAVING.0 * took_s).max(NOTABLE_SAVING.1) {
                    format!(", {} of it saving", duration(blocked_s))
                } else {
                    String::new()
                };
                let loss = loss.map(|loss| format!(", loss {}", number(loss))).unwrap_or_default();
                let text = format!(
                    "{name}  {} in {}{planned}{unheard}{saving}{loss}{}",
                    trained_steps(state, task),
                    duration(took_s),
                    found(state, task),
                );
                let how = if state.task(task).has_diverged() {
                    self.paint.bad("diverge")
                } else {
                    self.paint.good("done")
                };
                vec![self.line(now_s, &how, &text)]
            }
            TaskEnd::Failed { error, traceback } => {
                let why = match self.told_errors.get(&task) {
                    Some((at, told)) if told == error => format!("failed as attempt {at} says"),
                    _ => first_line(error),
                };
                let text = format!("{name}  {why}");
                let mut lines = vec![self.line(now_s, &self.paint.bad("give up"), &text)];
                lines.extend(self.traceback(state, task, traceback));
                lines
            }
            TaskEnd::Stopped { reason } => {
                let at = steps(state.task(task).step);
                let text =
                    format!("{name}  after {at}: {}{}", first_line(reason), found(state, task));
                vec![self.line(now_s, &self.paint.warn("stop"), &text)]
            }
            TaskEnd::Cancelled { reason } => {
                let text = format!("{name}  {}", first_line(reason));
                vec![self.line(now_s, &self.paint.warn("cancel"), &text)]
            }
        }
    }
}

/// A task's last evaluation and its best: `, accuracy 0.8 (best 0.83 after step 40)`.
fn found(state: &State, task: TaskId) -> String {
    let task = state.task(task);
    let Some(last) = &task.evaluation else { return String::new() };
    let best = task.best.as_ref().filter(|best| best.evaluation.step != last.step);
    let best = best.and_then(|best| {
        let (name, value) = (escape_terminal(&best.metric), number(best.value()?));
        Some(format!(" (best {name} {value} after step {})", best.evaluation.step))
    });
    format!(", {}{}", words::metrics(last), best.unwrap_or_default())
}
