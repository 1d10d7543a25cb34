//! How far training differs from what trials measured, and what that says of strategies that have
//! not trained.
//!
//! A strategy that trains shows its own seconds a step, and needs no correction. The logarithm of
//! trained over tried seconds is taken as a sum of three Normal parts. All strategies of a group
//! share the first part (batches unlike those that were timed, a machine that others use too). The
//! strategies of a technique share the second part. The third part is each strategy's own (a
//! trial's noise).
//!
//! The widths of the parts are not known beforehand. They are taken as the widths under which the
//! measurements are likeliest (empirical Bayes: Efron & Morris, 1973, "Stein's estimation rule and
//! its competitors"). So a strategy that differs by no more than a trial's noise moves no other,
//! and a strategy that differs by much moves all. If techniques or strategies differ by different
//! factors, strategies that have not trained move by what these factors have in common.

use crate::knowledge::scaling::Cholesky;
use crate::state::lesson::Correction;

/// Standard deviation of a strategy's own part, beside the noise of its measurements, without
/// evidence for more.
const OWN_SD: f64 = 0.03;
/// Standard deviations that each part may have.
const WIDTHS: [f64; 7] = [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8];
/// The full model must gain this logarithmic likelihood over the model in which all strategies
/// share one factor.
const LEAST_EVIDENCE: f64 = 0.5;

/// What was seen of one strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen<'a> {
    pub(crate) technique: &'a str,
    /// Trained over tried seconds a step.
    pub(crate) ratio: f64,
    /// Standard deviation of both measurements together, as a part.
    pub(crate) sd: f64,
}

impl Correction {
    /// The correction that the strategies show which were both tried and trained.
    pub(crate) fn learnt(seen: &[Seen<'_>]) -> Self {
        if seen.is_empty() {
            return Self::default();
        }
        let likeliest = |of_technique: &[f64], own: &[f64]| {
            let all = WIDTHS.iter().flat_map(|shared| {
                let pairs = of_technique.iter().flat_map(|a| own.iter().map(move |b| (*a, *b)));
                pairs.map(|(of_technique, own)| Widths { shared: *shared, of_technique, own })
            });
            let fits = all.map(|widths| Fit::of(seen, widths));
            fits.max_by(|a, b| a.log_likelihood.total_cmp(&b.log_likelihood))
        };
        let plain = likeliest(&[0.0], &[0.0]);
        let full = likeliest(&WIDTHS, &WIDTHS);
        let fit = match (plain, full) {
            (Some(plain), Some(full))
                if full.log_likelihood < plain.log_likelihood + LEAST_EVIDENCE =>
            {
                Some(plain)
            }
            (plain, full) => full.or(plain),
        };
        let Some(fit) = fit else { return Self::default() };
        let of_technique = seen.iter().map(|one| {
            let technique = one.technique;
            (technique.to_owned(), fit.log_factor(seen, Some(technique)).exp())
        });
        Self { shared: fit.log_factor(seen, None).exp(), of_technique: of_technique.collect() }
    }
}

/// Standard deviations of the three parts; `own` comes on top of `OWN_SD`.
#[derive(Debug, Clone, Copy)]
struct Widths {
    shared: f64,
    of_technique: f64,
    own: f64,
}

struct Fit {
    widths: Widths,
    root: Cholesky,
    /// What was seen, in units in which it is independent.
    whitened: Vec<f64>,
    log_likelihood: f64,
}

impl Fit {
    fn of(seen: &[Seen<'_>], widths: Widths) -> Self {
        let covariance = |(i, a): (usize, &Seen<'_>)| {
            let of_b = |(j, b): (usize, &Seen<'_>)| {
                let noise = a.sd.powi(2) + OWN_SD.powi(2) + widths.own.powi(2);
                widths.between(a.technique == b.technique) + if i == j { noise } else { 0.0 }
            };
            seen.iter().enumerate().map(of_b).collect::<Vec<f64>>()
        };
        let root = Cholesky::of(seen.iter().enumerate().map(covariance).collect());
        let ratios: Vec<f64> = seen.iter().map(|one| one.ratio.ln()).collect();
        let whitened = root.forward(&ratios);
        let misfit: f64 = whitened.iter().map(|x| x * x).sum();
        let log_likelihood = -0.5 * misfit - root.log_determinant();
        Self { widths, root, whitened, log_likelihood }
    }

    /// Expected logarithm of the factor of an unseen strategy, of a technique that was seen or of
    /// none.
    fn log_factor(&self, seen: &[Seen<'_>], technique: Option<&str>) -> f64 {
        let to_seen = seen.iter().map(|one| self.widths.between(Some(one.technique) == technique));
        let to_seen = self.root.forward(&to_seen.collect::<Vec<f64>>());
        to_seen.iter().zip(&self.whitened).map(|(a, b)| a * b).sum()
    }
}

impl Widths {
    /// Covariance of two strategies.
    fn between(self, is_same_technique: bool) -> f64 {
        let of_technique = if is_same_technique { self.of_technique.powi(2) } else { 0.0 };
        self.shared.powi(2) + of_technique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(technique: &str, ratio: f64) -> Seen<'_> {
        Seen { technique, ratio, sd: 0.03 }
    }

    fn factors(all: &[Seen<'_>]) -> (f64, f64, f64) {
        let correction = Correction::learnt(all);
        (correction.of("ddp"), correction.of("fsdp"), correction.of("pipeline"))
    }

    fn near(a: f64, b: f64, by: f64) -> bool {
        (a - b).abs() <= by
    }

    #[test]
    fn without_evidence_nothing_is_corrected() {
        assert_eq!(factors(&[]), (1.0, 1.0, 1.0));
    }

    #[test]
    fn what_may_be_a_trials_noise_moves_nothing_else() {
        let (ddp, fsdp, _) = factors(&[seen("ddp", 1.03)]);
        assert!(near(ddp, 1.0, 0.005) && near(fsdp, 1.0, 0.005), "{ddp} {fsdp}");
    }

    #[test]
    fn what_is_far_off_moves_all_strategies_of_its_group() {
        let (ddp, fsdp, _) = factors(&[seen("ddp", 1.4)]);
        assert!(near(ddp, 1.4, 0.03) && near(fsdp, ddp, 1e-9), "{ddp} {fsdp}");
    }

    #[test]
    fn the_more_strategies_agree_the_more_of_it_is_taken_to_be_shared() {
        let few = factors(&[seen("ddp", 1.06)]).2;
        let many = factors(&[seen("ddp", 1.06), seen("fsdp", 1.06), seen("ddp", 1.06)]).2;
        assert!(few < many && many > 1.04, "{few} {many}");
    }

    #[test]
    fn techniques_that_are_off_by_different_factors_are_corrected_by_their_own() {
        let all = [
            seen("ddp", 1.5),
            seen("ddp", 1.52),
            seen("ddp", 1.48),
            seen("fsdp", 0.99),
            seen("fsdp", 1.0),
        ];
        let (ddp, fsdp, pipeline) = factors(&all);
        assert!(near(ddp, 1.5, 0.04) && near(fsdp, 1.0, 0.04), "{ddp} {fsdp}");
        assert!((0.99..1.4).contains(&pipeline), "{pipeline}");
    }

    #[test]
    fn strategies_that_share_nothing_say_nothing_of_others() {
        let all = [seen("ddp", 1.4), seen("ddp", 0.7), seen("ddp", 1.5), seen("ddp", 0.65)];
        let (ddp, fsdp, _) = factors(&all);
        assert!(near(ddp, 1.0, 0.1) && near(fsdp, 1.0, 0.1), "{ddp} {fsdp}");
    }
}
