//! How long a training of so many steps takes, and what it costs at a price of a GPU's hour.

use crate::choice::{Choice, Verdict};
use crate::sum::Interval;

/// A training that is asked about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Training {
    /// Its optimizer steps.
    pub steps: u64,
    /// The price of an hour of one GPU, in any currency.
    pub price: Option<f64>,
}

impl Training {
    /// Seconds of the whole training, without its start and its checkpoints.
    pub fn seconds(self, choice: &Choice) -> Interval {
        #[expect(clippy::cast_precision_loss, reason = "no training has 2^53 steps")]
        let steps = self.steps as f64;
        choice.estimate.step_s.scaled(steps)
    }

    /// The price of the whole training, in the currency of an hour's; `None` without a price.
    pub fn cost(self, choice: &Choice) -> Option<Interval> {
        let gpu_hours = f64::from(choice.strategy.gpus()) / 3600.0;
        Some(self.seconds(choice).scaled(gpu_hours * self.price?))
    }

    /// The choice that costs least of those that surely fit; `None` without a price.
    pub fn cheapest<'a>(self, choices: impl Iterator<Item = &'a Choice>) -> Option<&'a Choice> {
        least(choices, |choice| Some(self.cost(choice)?.value))
    }

    /// The choice that takes least time of those that surely fit.
    pub fn fastest<'a>(self, choices: impl Iterator<Item = &'a Choice>) -> Option<&'a Choice> {
        least(choices, |choice| Some(choice.estimate.step_s.value))
    }
}

/// Of the choices that surely fit and have a measure, the first with the least.
fn least<'a>(
    choices: impl Iterator<Item = &'a Choice>,
    measure: impl Fn(&Choice) -> Option<f64>,
) -> Option<&'a Choice> {
    choices
        .filter(|choice| choice.verdict == Verdict::Fits)
        .filter_map(|choice| Some((choice, measure(choice)?)))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(choice, _)| choice)
}
