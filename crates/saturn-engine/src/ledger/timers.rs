//! When the engine wants to be asked again, and what for.
//!
//! A timer is only a reason to look. The policy that it wakes checks whether the time has really
//! come, and sets the timer anew if not. So no timer need be cancelled, and the reports of ranks,
//! four times a second, move none.

use std::collections::BTreeSet;

use crate::facts::config::Level;
use crate::facts::ids::{AttemptId, TaskId};
use crate::state::attempt::Attempt;
use crate::state::run::State;

/// How long the engine waits for the cause of an echo, seconds.
pub(crate) const ECHO_GRACE_S: f64 = 2.0;

/// What a timer asks to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Whether a task may start: its wait before a retry is over, or its release time has come.
    Task(TaskId),
    /// Whether an attempt has been silent for too long, the cause of an echo is still unknown, or
    /// killed processes are still alive.
    Attempt(AttemptId),
    /// Whether trials that met a full disk may be tried again, or need no longer keep apart from
    /// inspections.
    Trials,
    /// Whether to solve.
    Solve,
    /// Whether idle devices have waited long enough for a plan.
    Idle,
}

/// The timers that are set.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Moment, Timer)>);

/// A non-negative time, as a number that can be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// So many seconds from the run's start.
    pub(crate) fn at(at_s: f64) -> Self {
        // The bits of floats from 0 on are ordered as the floats are.
        Self(at_s.max(0.0).to_bits())
    }
}

impl Timers {
    /// Sets a timer.
    pub(crate) fn set(&mut self, at_s: f64, timer: Timer) {
        self.0.insert((Moment::at(at_s), timer));
    }

    /// The time of the next.
    pub(crate) fn next_s(&self) -> Option<f64> {
        self.0.first().map(|(at, _)| f64::from_bits(at.0))
    }

    /// Takes the next out, where its time has come.
    pub(crate) fn take_due(&mut self, now_s: f64) -> Option<Timer> {
        let (at, timer) = *self.0.first()?;
        if f64::from_bits(at.0) > now_s {
            return None;
        }
        self.0.pop_first();
        Some(timer)
    }
}

/// When an attempt must be looked at: killed processes are still alive, the cause of an echo is
/// still unknown, or the attempt is silent. A black-box technique may train in processes of its
/// own, which report nothing: its silence means nothing.
pub(crate) fn overdue_at_s(state: &State, attempt: &Attempt) -> Option<f64> {
    let config = &state.config;
    if let Some(killed_s) = attempt.killed_s {
        return Some(killed_s + config.policy.kill_grace_s);
    }
    if let Some(echo_s) = attempt.echo_s {
        return Some(echo_s + ECHO_GRACE_S);
    }
    let is_managed = config.level_of(&attempt.strategy.technique) == Level::Managed;
    is_managed.then_some(attempt.heard_s + config.policy.stall_s)
}
