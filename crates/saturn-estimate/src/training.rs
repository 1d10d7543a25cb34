//! The duration of a training with a number of steps, and its cost at a price for a GPU's hour.

use crate::choice::{Choice, Verdict};
use crate::sum::Interval;

/// The length and price of a training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Training {
    /// The number of its optimizer steps.
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

    /// The cost of the whole training, in the currency of `price`; `None` without a price.
    pub fn cost(self, choice: &Choice) -> Option<Interval> {
        let gpu_hours = f64::from(choice.strategy.gpus()) / 3600.0;
        Some(self.seconds(choice).scaled(gpu_hours * self.price?))
    }

    /// The cheapest of the choices that surely fit; `None` without a price.
    pub fn cheapest<'a>(self, choices: impl Iterator<Item = &'a Choice>) -> Option<&'a Choice> {
        least(choices, |choice| Some(self.cost(choice)?.value))
    }

    /// The fastest of the choices that surely fit.
    pub fn fastest<'a>(self, choices: impl Iterator<Item = &'a Choice>) -> Option<&'a Choice> {
        least(choices, |choice| Some(choice.estimate.step_s.value))
    }
}

/// The choice with the least measure, among choices that surely fit and have a measure. On a tie,
/// the first.
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
