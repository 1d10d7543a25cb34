//! Tests that measured steps correct the estimates of other strategies, and most those of similar
//! ones.

use proptest::prelude::*;
use saturn_estimate::{Residuals, SD_MODEL, SD_NOISE, SD_TECHNIQUE};

#[test]
fn nothing_measured_corrects_nothing() {
    let (mean, sd) = Residuals::default().correction("ddp");
    assert!(mean.abs() < 1e-12);
    let all = (SD_MODEL.powi(2) + SD_TECHNIQUE.powi(2) + SD_NOISE.powi(2)).sqrt();
    assert!((sd - all).abs() < 1e-12);
}

#[test]
fn one_trial_moves_its_own_technique_more_than_others() {
    let mut seen = Residuals::default();
    seen.add("ddp", 1.0, 1.3);
    let ((own, own_sd), (other, other_sd)) = (seen.correction("ddp"), seen.correction("fsdp"));
    assert!(0.0 < other && other < own && own < 1.3f64.ln());
    assert!(own_sd < other_sd && other_sd < Residuals::default().correction("fsdp").1);
    // By hand: the share is 0.12² / (0.12² + 0.06² + 0.05²) of the log ratio.
    let share = 0.0144 / (0.0144 + 0.0036 + 0.0025);
    assert!((other - share * 1.3f64.ln()).abs() < 1e-12);
}

#[test]
fn what_is_no_time_says_nothing() {
    let mut seen = Residuals::default();
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        seen.add("ddp", 1.0, wrong);
    }
    assert!(seen.is_empty());
}

proptest! {
    #[test]
    fn more_trials_never_make_a_correction_less_sure(
        ratios in prop::collection::vec((0.3f64..3.0, 0usize..3), 1..12)
    ) {
        let names = ["ddp", "fsdp", "pipeline"];
        let mut seen = Residuals::default();
        let mut before = seen.correction("ddp").1;
        let (mut least, mut most) = (0.0f64, 0.0f64);
        for (ratio, technique) in ratios {
            seen.add(names[technique], 1.0, ratio);
            (least, most) = (least.min(ratio.ln()), most.max(ratio.ln()));
            let (mean, sd) = seen.correction("ddp");
            prop_assert!(sd <= before + 1e-9 && sd >= SD_NOISE - 1e-9);
            prop_assert!(mean.is_finite() && mean.abs() <= 2.0 * most.max(-least) + 1e-9);
            before = sd;
        }
    }
}
