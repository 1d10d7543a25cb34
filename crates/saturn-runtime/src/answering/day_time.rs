//! Times on the run's clock as times of day, as the person who asks has them on the wall.
//!
//! A run's clock stands still while no process drives the run, so this holds only while one does.

use rusqlite::Connection;

use crate::system::clock;

/// A time this close to a whole minute was meant to be that minute, seconds: a moment passes between
/// the looks at the two clocks.
const SAME_S: f64 = 2.0;

/// The clock on the wall beside the run's.
pub(crate) struct Wall {
    /// The standard library knows no time zones; SQLite asks the C library.
    zones: Connection,
    /// The present on each clock, seconds.
    now_unix_s: f64,
    now_s: f64,
}

impl Wall {
    /// `now_s` is the present on the run's clock. `None` if the machine can't tell.
    pub(crate) fn at(now_s: f64) -> Option<Self> {
        Self::showing(clock::unix().as_secs_f64(), now_s)
    }

    fn showing(now_unix_s: f64, now_s: f64) -> Option<Self> {
        Some(Self { zones: Connection::open_in_memory().ok()?, now_unix_s, now_s })
    }

    /// A time on the run's clock: `23:59`, `23:59:30`, or `2026-11-28 09:00` on another day.
    pub(crate) fn told(&self, at_s: f64) -> Option<String> {
        let at_unix_s = self.now_unix_s + (at_s - self.now_s);
        let minute_s = (at_unix_s / 60.0).round() * 60.0;
        let is_minute = (at_unix_s - minute_s).abs() <= SAME_S;
        let at_unix_s = if is_minute { minute_s } else { at_unix_s.round() };
        let (day, today, time): (String, String, String) = self
            .zones
            .query_row(
                "SELECT date(?1, 'unixepoch', 'localtime'), date(?2, 'unixepoch', 'localtime'),
                        time(?1, 'unixepoch', 'localtime')",
                [at_unix_s, self.now_unix_s],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .ok()?;
        let time = time.strip_suffix(":00").unwrap_or(&time);
        Some(if day == today { time.to_owned() } else { format!("{day} {time}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of whole minutes, in whichever zone the test runs: no zone is off by seconds.
    const MINUTE_S: f64 = 1_800_000_000.0;

    #[test]
    fn a_due_time_is_told_to_the_minute_if_it_was_said_so() {
        let told = |at_s: f64| Wall::showing(at_s, 5.0).unwrap().told(5.0).unwrap();
        let minute = told(MINUTE_S);
        assert_eq!((minute.len(), &minute[2..3]), (5, ":"), "{minute}");
        assert_eq!([told(MINUTE_S - 0.4), told(MINUTE_S + 0.4)], [minute.clone(), minute.clone()]);
        assert_eq!(told(MINUTE_S + 30.0), format!("{minute}:30"));
    }

    #[test]
    fn another_day_is_named() {
        let wall = Wall::showing(MINUTE_S, 5.0).unwrap();
        let tomorrow = wall.told(5.0 + 86_400.0).unwrap();
        assert_eq!(tomorrow.len(), "2026-11-28 09:00".len(), "{tomorrow}");
        assert!(wall.told(f64::NAN).is_none());
    }
}
