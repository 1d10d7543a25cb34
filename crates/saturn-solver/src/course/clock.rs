//! A solve learns of time and interruption from its caller, never by itself.

use std::sync::atomic::{AtomicBool, Ordering};

/// Elapsed time and a wish to stop, as the caller of a solve supplies them.
///
/// Both are asked from several threads, some thousand times a second.
pub trait Clock: Sync {
    /// Seconds since the solve began; never falls.
    fn elapsed_s(&self) -> f64;

    /// Whether to stop at once with what has been found.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// Time that stands still: for solves that `Options::max_moves` limits, which are reproducible.
///
/// Without that limit a search under this clock ends only at a proven optimum.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrozenClock;

impl Clock for FrozenClock {
    fn elapsed_s(&self) -> f64 {
        0.0
    }
}

/// A clock that another thread can stop.
pub(crate) struct StoppableClock<'a> {
    clock: &'a dyn Clock,
    flag: &'a AtomicBool,
}

impl Clock for StoppableClock<'_> {
    fn elapsed_s(&self) -> f64 {
        self.clock.elapsed_s()
    }

    fn is_interrupted(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.clock.is_interrupted()
    }
}

/// When to stop: the limits of one solve, against its clock.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a> {
    clock: &'a dyn Clock,
    /// Seconds on the clock.
    at_s: f64,
    /// Whether moves limit the solve. Its clock may stand still then.
    is_counted: bool,
    /// Is set once any part of the solve has found its time over.
    was_over: Option<&'a AtomicBool>,
}

impl<'a> Deadline<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, at_s: f64) -> Self {
        Self { clock, at_s, is_counted: false, was_over: None }
    }

    /// The same deadline, which sets `was_over` once any part of the solve has found its time over.
    /// Until then time has changed nothing.
    pub(crate) fn noted_in(self, was_over: &'a AtomicBool) -> Self {
        Self { was_over: Some(was_over), ..self }
    }

    /// The same deadline; `is_counted` says whether moves limit the solve. Then no result may depend on
    /// how much is done in a real second.
    pub(crate) fn counted(self, is_counted: bool) -> Self {
        Self { is_counted, ..self }
    }

    /// Whether moves limit the solve.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// The same clock with at most `seconds` from now.
    pub(crate) fn within(&self, seconds: f64) -> Self {
        Self { at_s: self.at_s.min(self.clock.elapsed_s() + seconds), ..*self }
    }

    /// The same deadline on a clock that can also be stopped.
    pub(crate) fn stopped_by<'b>(&self, flag: &'b AtomicBool) -> StoppableClock<'b>
    where
        'a: 'b,
    {
        StoppableClock { clock: self.clock, flag }
    }

    /// The same deadline on another clock.
    pub(crate) fn on<'b>(&self, clock: &'b dyn Clock) -> Deadline<'b>
    where
        'a: 'b,
    {
        let Self { at_s, is_counted, was_over, .. } = *self;
        Deadline { clock, at_s, is_counted, was_over }
    }

    /// The same clock without an end: only an interruption ends it.
    pub(crate) fn without_end(&self) -> Self {
        Self { at_s: f64::INFINITY, ..*self }
    }

    pub(crate) fn is_over(&self) -> bool {
        if self.clock.is_interrupted() {
            return true;
        }
        let is_over = self.clock.elapsed_s() >= self.at_s;
        if is_over && let Some(was_over) = self.was_over {
            was_over.store(true, Ordering::Relaxed);
        }
        is_over
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.clock.is_interrupted()
    }

    /// Seconds left, 0 when interrupted.
    pub(crate) fn left_s(&self) -> f64 {
        if self.clock.is_interrupted() {
            0.0
        } else {
            (self.at_s - self.clock.elapsed_s()).max(0.0)
        }
    }
}
