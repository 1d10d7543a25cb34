//! The one place where the runtime reads a clock.

use std::time::{Duration, Instant};

/// Seconds on the run's clock: it goes on from where the journal ended, so that the time between two
/// processes of a run does not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    started: Instant,
    from_s: f64,
}

impl RunClock {
    /// A clock that shows `from_s` now.
    pub(crate) fn starting_at(from_s: f64) -> Self {
        Self { started: now(), from_s }
    }

    /// What it shows.
    pub(crate) fn now_s(&self) -> f64 {
        self.from_s + self.started.elapsed().as_secs_f64()
    }

    /// The same moment plus `after_s` as a deadline.
    pub(crate) fn deadline(after: Duration) -> Instant {
        now() + after
    }
}

/// Whether a deadline has passed.
pub(crate) fn is_past(deadline: Instant) -> bool {
    now() >= deadline
}

#[expect(clippy::disallowed_methods, reason = "the runtime meets the outside world here")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
