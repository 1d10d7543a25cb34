//! The seconds a step that training finds for a strategy, and how a newer interval of training
//! updates them.
//!
//! Each interval is a measurement with an error of its own. If it agrees with the known value, both
//! are averaged with weights by their errors. If it contradicts the known value, the machine or its
//! neighbours have changed, and the newer measurement replaces the older. So outdated knowledge is
//! dropped and not averaged forever.

use serde::{Deserialize, Serialize};

use crate::error::ProblemError;
use crate::number;

/// Two measurements contradict each other if they differ by more than this many standard deviations
/// of their difference.
const CONTRADICTION_SDS: f64 = 2.0;
/// The least relative error, however many intervals agree, since the next launch may differ. So a
/// new measurement always has some weight.
const LEAST_ERROR: f64 = 0.01;

/// Seconds a step of training under a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trained {
    /// Seconds a step, without launch, first step, checkpoints and evaluations.
    pub step_s: f64,
    /// The number of steps that were timed.
    pub steps: u64,
    /// The standard error of `step_s` relative to `step_s`.
    pub relative_error: f64,
    /// When the last of these steps was trained, seconds of Unix time, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_unix_s: Option<u64>,
}

impl Trained {
    /// Combines this with a newer measurement of the same strategy on the same machine.
    #[must_use]
    pub fn followed_by(self, newer: Self) -> Self {
        let apart = (newer.step_s / self.step_s).ln().abs();
        let sd = self.relative_error.hypot(newer.relative_error);
        if apart.is_nan() || apart > CONTRADICTION_SDS * sd {
            return newer;
        }
        let weight = |one: Self| one.relative_error.max(LEAST_ERROR).powi(-2);
        let (old, new) = (weight(self), weight(newer));
        let log_s = (old * self.step_s.ln() + new * newer.step_s.ln()) / (old + new);
        Self {
            step_s: log_s.exp(),
            steps: self.steps.saturating_add(newer.steps),
            relative_error: (old + new).sqrt().recip().max(LEAST_ERROR),
            measured_unix_s: newer.measured_unix_s.or(self.measured_unix_s),
        }
    }

    /// Checks the numbers; `at` gives the location of a field.
    pub(crate) fn check(&self, at: impl Fn(&str) -> String) -> Result<(), ProblemError> {
        number::check_runtime(|| at("step_s"), self.step_s)?;
        number::check_ratio(|| at("relative_error"), self.relative_error)?;
        if self.steps == 0 {
            return Err(ProblemError::Value {
                at: at("steps"),
                found: "0".to_owned(),
                expected: "at least 1",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(step_s: f64, num_steps: u64, relative_error: f64) -> Trained {
        Trained { step_s, steps: num_steps, relative_error, measured_unix_s: None }
    }

    #[test]
    fn what_agrees_is_weighed_by_its_error() {
        let known = trained(1.0, 1000, 0.02).followed_by(trained(1.03, 10, 0.04));
        assert!((1.005..1.007).contains(&known.step_s), "{known:?}");
        assert_eq!(known.steps, 1010);
        assert!((0.017..0.019).contains(&known.relative_error), "{known:?}");
    }

    #[test]
    fn what_contradicts_stands_alone() {
        let newer = trained(2.0, 40, 0.02);
        assert_eq!(trained(1.0, 1_000_000, 0.01).followed_by(newer), newer);
    }

    #[test]
    fn what_is_new_has_a_weight_however_much_was_known() {
        let mut known = trained(1.0, 10, 0.02);
        for _ in 0..1000 {
            known = known.followed_by(trained(1.0, 1000, 0.02));
        }
        assert!((known.relative_error - LEAST_ERROR).abs() < 1e-12);
        for _ in 0..20 {
            known = known.followed_by(trained(1.04, 1000, 0.02));
        }
        assert!(known.step_s > 1.035, "{known:?}");
    }
}
