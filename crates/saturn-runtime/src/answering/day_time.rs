//! Times on the run's clock as times of day, as the person who asks has them on the wall.
//!
//! A run's clock stands still while no process drives the run, so this holds only while one does.

use std::time::SystemTime;

use rusqlite::Connection;

/// A time this close to a whole minute was meant to be that minute, seconds: a moment passes between
/// the looks at the two clocks.
const SAME_S: f64 = 2.0;

/// `23:59`, `23:59:30`, or `2026-11-28 09:00` on another day; `None` if the machine can't tell.
/// `now_s` is the present on the run's clock.
pub(crate) fn of(at_s: f64, now_s: f64) -> Option<String> {
    let now_unix_s = now_unix_s()?;
    told(now_unix_s + (at_s - now_s), now_unix_s)
}

/// A moment, seconds of Unix time.
fn told(at_unix_s: f64, now_unix_s: f64) -> Option<String> {
    let minute_s = (at_unix_s / 60.0).round() * 60.0;
    let is_minute = (at_unix_s - minute_s).abs() <= SAME_S;
    let at_unix_s = if is_minute { minute_s } else { at_unix_s.round() };
    // The standard library knows no time zones; SQLite asks the C library.
    let (day, today, time): (String, String, String) = Connection::open_in_memory()
        .ok()?
        .query_row(
            "SELECT date(?1, 'unixepoch', 'localtime'), date(?2, 'unixepoch', 'localtime'),
                    time(?1, 'unixepoch', 'localtime')",
            [at_unix_s, now_unix_s],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .ok()?;
    let time = time.strip_suffix(":00").unwrap_or(&time);
    Some(if day == today { time.to_owned() } else { format!("{day} {time}") })
}

#[expect(clippy::disallowed_methods, reason = "a time of day is a matter of the present")]
fn now_unix_s() -> Option<f64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of whole minutes, in whichever zone the test runs: no zone is off by seconds.
    const MINUTE_S: f64 = 1_800_000_000.0;

    #[test]
    fn a_due_time_is_told_to_the_minute_if_it_was_said_so() {
        let told = |at_s: f64| told(at_s, at_s).unwrap();
        let minute = told(MINUTE_S);
        assert_eq!((minute.len(), &minute[2..3]), (5, ":"), "{minute}");
        assert_eq!([told(MINUTE_S - 0.4), told(MINUTE_S + 0.4)], [minute.clone(), minute.clone()]);
        assert_eq!(told(MINUTE_S + 30.0), format!("{minute}:30"));
    }

    #[test]
    fn another_day_is_named() {
        let tomorrow = told(MINUTE_S + 86_400.0, MINUTE_S).unwrap();
        assert_eq!(tomorrow.len(), "2026-11-28 09:00".len(), "{tomorrow}");
        assert!(told(f64::NAN, MINUTE_S).is_none());
    }
}
