//! Seconds, bytes and shares in a form for people.
//!
//! These functions round for reading; files hold exact numbers.

/// A duration: `0.4 s`, `12 s`, `2 min 31 s`, `3 h 05 min`, `2 d 04 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "?".to_owned();
    }
    let sign = if seconds < 0.0 { "−" } else { "" };
    let seconds = seconds.abs();
    if seconds < 9.95 {
        return format!("{sign}{seconds:.1} s");
    }
    let whole = whole_seconds(seconds);
    let text = if whole < 60 {
        format!("{whole} s")
    } else if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else if whole < 48 * 3600 {
        let minutes = whole.saturating_add(30) / 60;
        format!("{} h {:02} min", minutes / 60, minutes % 60)
    } else {
        let hours = whole.saturating_add(1800) / 3600;
        format!("{} d {:02} h", hours / 24, hours % 24)
    };
    format!("{sign}{text}")
}

/// The unit for an axis of times up to so many seconds, by its plural, and its seconds.
pub fn axis_unit(most_s: f64) -> (&'static str, f64) {
    if most_s < 120.0 {
        ("seconds", 1.0)
    } else if most_s < 7200.0 {
        ("minutes", 60.0)
    } else {
        ("hours", 3600.0)
    }
}

/// A time on the run's clock: `0:07`, `12:31`, `3:05:09`.
pub fn clock(seconds: f64) -> String {
    let whole = whole_seconds(seconds);
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Seconds a step, to three significant digits: `0.0312 s/step`, `1.25 s/step`.
pub fn step_time(step_s: f64) -> String {
    format!("{} s/step", significant(step_s))
}

/// A loss or another plain number, to three or four significant digits; `nan`, `inf`, `-inf`.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return value.to_string();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e5).contains(&size) {
        format!("{value:.2e}")
    } else if size >= 1000.0 {
        format!("{value:.0}")
    } else if size >= 1.0 {
        format!("{value:.3}")
    } else {
        significant(value)
    }
}

/// A value with six significant digits, as in the tables of the Python package: `0.0123457`,
/// `1.5e-07`, `nan`.
pub fn six_digits(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return value.to_string();
    }
    let scientific = format!("{value:.5e}");
    let Some((digits, power)) = scientific.split_once('e') else { return scientific };
    let power: i32 = power.parse().unwrap_or(0);
    if (-4..6).contains(&power) {
        let decimals = usize::try_from(5 - power).unwrap_or(0);
        return trimmed(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), power.abs())
}

/// A number without zeros at the end of its decimals.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Memory in powers of ten: `412 MB`, `1.3 GB`.
pub fn bytes(count: u64) -> String {
    let count = count as f64;
    for (size, unit) in [(1e12, "TB"), (1e9, "GB")] {
        if count >= size * 0.9995 {
            return format!("{:.1} {unit}", count / size);
        }
    }
    if count >= 1e6 * 0.9995 {
        format!("{:.0} MB", count / 1e6)
    } else {
        format!("{:.0} kB", count / 1e3)
    }
}

/// The number of a model's parameters: `812`, `24.1 M`, `6.05 B`.
pub fn parameters(number: u64) -> String {
    let (number, unit) = match number {
        0..1_000 => return number.to_string(),
        1_000..1_000_000 => (number as f64 / 1e3, "k"),
        1_000_000..1_000_000_000 => (number as f64 / 1e6, "M"),
        _ => (number as f64 / 1e9, "B"),
    };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {unit}")
}

/// A share as a percentage: `1.3 %`, or `< 0.1 %` for a positive share below 0.05 %.
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0005 {
        "< 0.1 %".to_owned()
    } else {
        format!("{:.1} %", share * 100.0)
    }
}

/// A signed percentage: `+2.6 %`, `−1.0 %`.
pub fn signed_percent(share: f64) -> String {
    let sign = if share < -0.0005 { "−" } else { "+" };
    format!("{sign}{:.1} %", share.abs() * 100.0)
}

/// `1 task`, `3 tasks`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix("gy") {
        Some(stem) => format!("{number} {stem}gies"),
        None if noun.ends_with("ch") => format!("{number} {noun}es"),
        None => format!("{number} {noun}s"),
    }
}

/// A value to three significant digits: `0.0192`, `1.25`, `24.3`, `473`.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !size.is_finite() {
        return value.to_string();
    }
    let decimals = if size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else if size >= 0.1 {
        3
    } else if size >= 0.01 {
        4
    } else {
        5
    };
    format!("{value:.decimals$}")
}

/// Seconds rounded to whole seconds; 0 if they are negative or not a number.
fn whole_seconds(seconds: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and nobody reads a time beyond 2^64 s"
    )]
    let whole = seconds.max(0.0).round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_are_those_of_python() {
        // Each text is Python's `f"{value:.6g}"`.
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.681, "0.681"),
            (-1.234_567_8, "-1.23457"),
            (18.744_911_2, "18.7449"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_012_345_67, "1.23457e-05"),
            (1.5e-7, "1.5e-07"),
            (123_456.7, "123457"),
            (999_999.5, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (100_000.0, "100000"),
            (1e120, "1e+120"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }

    #[test]
    fn durations_change_unit_without_a_jump() {
        let cases = [
            (0.0, "0.0 s"),
            (0.04, "0.0 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (59.6, "1 min 00 s"),
            (150.9, "2 min 31 s"),
            (3599.7, "1 h 00 min"),
            (11_090.0, "3 h 05 min"),
            (200_000.0, "2 d 08 h"),
            (-12.4, "−12 s"),
            (f64::NAN, "?"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn an_axis_has_the_unit_of_its_largest_value() {
        let unit = |most_s| axis_unit(most_s).0;
        assert_eq!([0.0, 25.0, 119.0].map(unit), ["seconds"; 3]);
        assert_eq!([120.0, 7199.0].map(unit), ["minutes"; 2]);
        assert_eq!([7200.0, 1e6].map(unit), ["hours"; 2]);
    }

    #[test]
    fn clocks_show_hours_once_there_are_any() {
        assert_eq!(clock(7.2), "0:07");
        assert_eq!(clock(751.0), "12:31");
        assert_eq!(clock(11_109.0), "3:05:09");
        assert_eq!(clock(-1.0), "0:00");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(step_time(0.03123), "0.0312 s/step");
        assert_eq!(step_time(1.254), "1.25 s/step");
        assert_eq!(number(2.306_81), "2.307");
        assert_eq!(number(0.042_31), "0.0423");
        assert_eq!(number(0.000_002), "2.00e-6");
        assert_eq!(number(f64::NAN), "nan");
        assert_eq!(number(f64::NEG_INFINITY), "-inf");
        assert_eq!(bytes(412_400_000), "412 MB");
        assert_eq!(bytes(999_900_000), "1.0 GB");
        assert_eq!(percent(0.0131), "1.3 %");
        assert_eq!(percent(0.0), "0.0 %");
        assert_eq!(percent(1e-5), "< 0.1 %");
        assert_eq!(signed_percent(-0.0101), "−1.0 %");
        assert_eq!(count(1, "strategy"), "1 strategy");
        assert_eq!(count(3, "strategy"), "3 strategies");
        assert_eq!(count(0, "task"), "0 tasks");
    }
}
