//! The ticks of a time axis.

use crate::layout::units::duration;

/// A round step that puts about eight ticks into `span_s`.
pub(super) fn tick_step(span_s: f64) -> f64 {
    const STEPS: [f64; 22] = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
        3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0,
    ];
    let wanted = span_s / 9.0;
    STEPS
        .into_iter()
        .find(|step| *step >= wanted)
        .unwrap_or_else(|| (wanted / 86_400.0).ceil() * 86_400.0)
}

/// A tick at `at_s`, where ticks are `step_s` apart: `45 s`, `1:15`, `3 min`, `2 h`.
pub(super) fn tick_label(at_s: f64, step_s: f64) -> String {
    if at_s < -step_s * 1e-6 {
        return format!("−{}", tick_label(-at_s, step_s));
    }
    if at_s.abs() < step_s * 1e-6 {
        return "0".to_owned();
    }
    let whole = at_s.round();
    if step_s < 1.0 {
        format!("{at_s:.1} s")
    } else if step_s >= 60.0 && whole < 3600.0 * 48.0 {
        let minutes = whole / 60.0;
        if step_s >= 3600.0 {
            format!("{:.0} h", minutes / 60.0)
        } else if whole < 3600.0 {
            format!("{minutes:.0} min")
        } else {
            format!("{:.0}:{:02.0} h", (minutes / 60.0).floor(), minutes % 60.0)
        }
    } else if step_s >= 86_400.0 {
        format!("{:.0} d", whole / 86_400.0)
    } else if whole < 60.0 {
        format!("{whole:.0} s")
    } else if step_s >= 60.0 {
        duration(at_s)
    } else {
        format!("{:.0}:{:02.0}", (whole / 60.0).floor(), whole % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for span_s in [0.5, 3.0, 31.0, 200.0, 4000.0, 90_000.0, 3e6] {
            let num_ticks = span_s / tick_step(span_s);
            assert!((3.0..=10.0).contains(&num_ticks), "{span_s}: {num_ticks}");
        }
        assert_eq!(tick_label(0.0, 15.0), "0");
        assert_eq!(tick_label(45.0, 15.0), "45 s");
        assert_eq!(tick_label(75.0, 15.0), "1:15");
        assert_eq!(tick_label(180.0, 60.0), "3 min");
        assert_eq!(tick_label(5400.0, 1800.0), "1:30 h");
        assert_eq!(tick_label(7200.0, 3600.0), "2 h");
        assert_eq!(tick_label(-75.0, 15.0), "−1:15");
        assert_eq!(tick_label(259_200.0, 86_400.0), "3 d");
    }
}
