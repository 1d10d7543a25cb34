//! How an attempt's steps were spread over its time: by the intervals of training that its journal
//! has, each with its seconds a step.

use crate::replaying::attempts::Attempt;
use crate::world::gang::whole;

/// How an attempt's steps were spread over its time.
pub(super) struct Shape {
    /// Seconds that its first step took longer than those after it.
    pub(super) warmup_s: f64,
    /// Steps after which an interval began or ended.
    pub(super) between: Vec<u64>,
    /// Steps, and the seconds of each, in order.
    pub(super) parts: Vec<(u64, f64)>,
}

impl Shape {
    /// Of an attempt that took `taken_s` for `num_steps`, the last of which was done at `until_s`.
    pub(super) fn of(attempt: &Attempt, num_steps: u64, taken_s: f64, until_s: f64) -> Self {
        let intervals = attempt.intervals_until(until_s);
        let known: u64 = intervals.iter().map(|(_, steps, _)| steps).sum();
        let known_s: f64 = intervals.iter().map(|(_, steps, step_s)| *steps as f64 * step_s).sum();
        let even = || Self {
            warmup_s: 0.0,
            between: Vec::new(),
            parts: vec![(num_steps, taken_s / num_steps as f64)],
        };
        let (Some((_, _, first_s)), Some((last_at_s, _, last_s))) =
            (intervals.first(), intervals.last())
        else {
            return even();
        };
        if known > num_steps || known_s > taken_s {
            return even();
        }
        // The last interval ends with the attempt, or before: then steps follow that are in none.
        let others = num_steps - known;
        let others_s = taken_s - known_s;
        let after_s = (until_s - last_at_s).clamp(0.0, others_s);
        let after = whole((after_s / last_s).round()).min(others);
        let (before, before_s) = (others - after, others_s - after_s);
        let expected_s = before as f64 * first_s;
        // The first step of a launch takes longer. A trial that went on had it before.
        let has_warmup = attempt.went_on.is_none() && before > 0;
        let warmup_s = if has_warmup { (before_s - expected_s).max(0.0) } else { 0.0 };
        let mut parts = Vec::new();
        if before > 0 {
            parts.push((before, (before_s - warmup_s) / before as f64));
        }
        parts.extend(intervals.iter().map(|(_, steps, step_s)| (*steps, *step_s)));
        if after > 0 {
            parts.push((after, after_s / after as f64));
        }
        let mut between = vec![before];
        for (_, steps, _) in &intervals {
            between.push(between.last().map_or(0, |last| last + steps));
        }
        // What no step took belongs to those that there are.
        let told_s: f64 = parts.iter().map(|(steps, step_s)| *steps as f64 * step_s).sum();
        let factor = (taken_s - warmup_s) / told_s.max(f64::MIN_POSITIVE);
        for (_, step_s) in &mut parts {
            *step_s *= factor;
        }
        Self { warmup_s, between, parts }
    }
}
