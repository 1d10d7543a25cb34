//! The one place where the runtime reads a clock.

use std::time::{Duration, Instant, SystemTime};

/// Seconds on the run's clock. It continues from where the journal ended, so that the time between
/// two processes of a run does not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    /// `None`: the clock stands still.
    started: Option<Instant>,
    from_s: f64,
}

impl RunClock {
    /// A clock that shows `from_s` now.
    pub(crate) fn starting_at(from_s: f64) -> Self {
        Self { started: Some(now()), from_s }
    }

    /// A clock that shows `from_s` and stands still.
    pub(crate) fn standing_at(from_s: f64) -> Self {
        Self { started: None, from_s }
    }

    /// The time that the clock shows.
    pub(crate) fn now_s(&self) -> f64 {
        self.from_s + self.started.map_or(0.0, |started| started.elapsed().as_secs_f64())
    }
}

/// The moment that is `after` from now.
pub(crate) fn deadline(after: Duration) -> Instant {
    now() + after
}

/// Whether a deadline has passed.
pub(crate) fn is_past(deadline: Instant) -> bool {
    now() >= deadline
}

/// Unix time.
#[expect(clippy::disallowed_methods, reason = "the runtime meets the outside world here")]
pub(crate) fn unix() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// Whole seconds of Unix time.
pub(crate) fn unix_s() -> u64 {
    unix().as_secs()
}

/// Sleeps between two looks at something that cannot wake its waiter: a lock, a process.
#[expect(clippy::disallowed_methods, reason = "the runtime meets the outside world here")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[expect(clippy::disallowed_methods, reason = "the runtime meets the outside world here")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
