//! What is said of training attempts and of how tasks end.

use saturn_core::Strategy;
use saturn_core::names::escape_terminal;
use saturn_engine::{AttemptEnd, AttemptId, Purpose, State, StopReason, TaskEnd, TaskId, forecast};

use super::{Transcript, more};
use crate::outcome::{planned_s, training_s};
use crate::text::pad;
use crate::units::{count, duration, number, signed_percent};
use crate::words::{self, first_line};

/// Share of a task's time, and seconds, from which on it is said how long training stood still for
/// checkpoints.
const NOTABLE_SAVING: (f64, f64) = (0.01, 0.1);

impl Transcript {
    pub(super) fn launched(&self, state: &State, attempt: AttemptId, now_s: f64) -> Vec<String> {
        let Some(launched) = state.attempts.get(&attempt) else { return Vec::new() };
        if launched.purpose != Purpose::Train {
            return Vec::new();
        }
        let task = state.task(launched.task);
        let steps = match (task.checkpoint_step, task.steps) {
            (0, Some(steps)) => count_steps(steps),
            (0, None) => "training".to_owned(),
            (from, Some(steps)) => format!("from step {from} of {steps}"),
            (from, None) => format!("from step {from}"),
        };
        let expected = forecast(state, now_s).tasks.get(&launched.task).copied();
        let expected = expected
            .filter(|(_, end_s)| *end_s > now_s)
            .map(|(_, end_s)| format!(", expected to take {}", duration(end_s - now_s)))
            .unwrap_or_default();
        let text = format!(
            "{}  {}  {}, {steps}{expected}",
            self.name(state, launched.task),
            pad(&words::strategy(&launched.strategy), Self::strategy_width(state)),
            words::on_devices(&state.config.cluster, &launched.gang),
        );
        vec![self.line(now_s, "start", &text)]
    }

    pub(super) fn ended(
        &mut self,
        state: &State,
        attempt: AttemptId,
        end: &AttemptEnd,
        step: u64,
        now_s: f64,
    ) -> Vec<String> {
        let Some(ended) = state.attempts.get(&attempt) else { return Vec::new() };
        if ended.purpose != Purpose::Train {
            return Vec::new();
        }
        let name = self.name(state, ended.task);
        match end {
            AttemptEnd::Finished => Vec::new(),
            AttemptEnd::Stopped => {
                let why = match ended.stopping {
                    Some(StopReason::Replan) => ", to go on as the new plan says",
                    Some(StopReason::Interrupt) => "",
                    Some(StopReason::Switch) | None => ", to be switched as planned",
                };
                vec![self.line(
                    now_s,
                    "stop",
                    &format!("{name}  at the checkpoint of step {step}{why}"),
                )]
            }
            AttemptEnd::Killed => {
                let text = format!("{name}  killed; the checkpoint of step {step} stays");
                vec![self.line(now_s, &self.paint.warn("stop"), &text)]
            }
            AttemptEnd::Lost => {
                let text = format!(
                    "{name}  its processes went away with the last run; goes on from step {step}"
                );
                vec![self.line(now_s, &self.paint.warn("lost"), &text)]
            }
            AttemptEnd::Failed { failure } => {
                let text = format!(
                    "{name}  attempt {attempt} ({}), rank {}: {}: {}",
                    words::strategy(&ended.strategy),
                    failure.rank,
                    words::failure_kind(failure.kind),
                    first_line(&failure.error),
                );
                let mut lines = vec![self.line(now_s, &self.paint.bad("failed"), &text)];
                lines.extend(self.traceback(state, ended.task, &failure.traceback));
                let dir = &state.config.tasks[ended.task.0].dir;
                let log = format!("log: {dir}/attempts/{attempt}/rank-{}.log", failure.rank);
                lines.push(more(&self.paint.dim(&escape_terminal(&log))));
                lines
            }
        }
    }

    pub(super) fn retrying(
        &self,
        state: &State,
        task: TaskId,
        not_before_s: f64,
        now_s: f64,
    ) -> String {
        let wait_s = not_before_s - now_s;
        let when = if wait_s > 0.0 { format!("in {}", duration(wait_s)) } else { "now".to_owned() };
        let text = format!(
            "{}  tries again {when}, from step {} (failure {} of at most {} in a row)",
            self.name(state, task),
            state.task(task).checkpoint_step,
            state.task(task).failures,
            state.config.policy.max_failures,
        );
        self.line(now_s, &self.paint.warn("retry"), &text)
    }

    pub(super) fn excluded(
        &self,
        state: &State,
        task: TaskId,
        strategy: &Strategy,
        reason: &str,
        now_s: f64,
    ) -> String {
        let text = format!(
            "{}  not under {} again: {}",
            self.name(state, task),
            words::strategy(strategy),
            first_line(reason),
        );
        self.line(now_s, &self.paint.warn("exclude"), &text)
    }

    pub(super) fn task_ended(
        &mut self,
        state: &State,
        task: TaskId,
        end: &TaskEnd,
        now_s: f64,
    ) -> Vec<String> {
        let name = self.name(state, task);
        match end {
            TaskEnd::Done { loss } => {
                let took_s = training_s(state, task);
                let planned = planned_s(state, task)
                    .map(|planned_s| {
                        format!(
                            " (planned {}, {})",
                            duration(planned_s),
                            signed_percent(took_s / planned_s - 1.0)
                        )
                    })
                    .unwrap_or_default();
                let blocked_s = state.task(task).blocked_s;
                let saving = if blocked_s >= (NOTABLE_SAVING.0 * took_s).max(NOTABLE_SAVING.1) {
                    format!(", {} of it saving", duration(blocked_s))
                } else {
                    String::new()
                };
                let loss = loss.map(|loss| format!(", loss {}", number(loss))).unwrap_or_default();
                let text = format!(
                    "{name}  {} in {}{planned}{saving}{loss}",
                    count_steps(state.task(task).step),
                    duration(took_s),
                );
                vec![self.line(now_s, &self.paint.good("done"), &text)]
            }
            TaskEnd::Failed { error, traceback } => {
                let text = format!("{name}  {}", first_line(error));
                let mut lines = vec![self.line(now_s, &self.paint.bad("give up"), &text)];
                lines.extend(self.traceback(state, task, traceback));
                lines
            }
        }
    }
}

fn count_steps(steps: u64) -> String {
    count(usize::try_from(steps).unwrap_or(usize::MAX), "step")
}
