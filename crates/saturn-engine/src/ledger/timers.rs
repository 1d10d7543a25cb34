//! When the engine wants to be asked again, and what for.
//!
//! A timer is only a reason to look: whoever it wakes checks whether its time has really come, and
//! sets it anew where it hasn't. So a timer need never be cancelled, and a rank's word, four times
//! a second, moves none.

use std::collections::BTreeSet;

use crate::facts::config::Level;
use crate::facts::ids::{AttemptId, TaskId};
use crate::state::attempt::Attempt;
use crate::state::run::State;

/// How long the cause of an echo is waited for, seconds.
pub(crate) const ECHO_GRACE_S: f64 = 2.0;

/// What to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Whether a task may start: its retry's wait is over, or its release has come.
    Task(TaskId),
    /// Whether an attempt has been silent for too long, or its echo had no cause, or its processes
    /// outlive their kill.
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

/// A time from 0 on, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u64);

impl Timers {
    /// Sets a timer.
    pub(crate) fn set(&mut self, at_s: f64, timer: Timer) {
        // The bits of floats from 0 on are ordered as the floats are.
        self.0.insert((Moment(at_s.max(0.0).to_bits()), timer));
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

/// When an attempt must be looked at: its processes outlive their kill, an echo's cause stays
/// unknown, or it is silent. A black-box technique may train in processes of its own, of which
/// nothing is heard: its silence means nothing.
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
