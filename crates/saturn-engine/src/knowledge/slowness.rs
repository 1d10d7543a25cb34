//! How slow nodes (stragglers) enter step times and forecasts.
//!
//! A node that becomes slow in mid-training slows down every strategy on it, not only the strategy
//! that happens to train there. So a strategy's step time leaves out steps on slow nodes, and a
//! forecast stretches every task on a slow node by the same factor. `changes/slowness` finds the
//! slow nodes.

use saturn_core::Gang;

use crate::state::attempt::{Attempt, MIN_STEPS_TO_CORRECT, Recent, Warm};
use crate::state::device::Slowness;
use crate::state::run::State;

impl State {
    /// The slowness of a gang, which is that of its slowest node; `None` if all its nodes are well.
    pub(crate) fn slowness_of(&self, gang: &Gang, now_s: f64) -> Option<Slowness> {
        gang.iter()
            .filter_map(|part| self.nodes.get(part.node)?.slowness)
            .filter(|slowness| now_s < slowness.until_s())
            .max_by(|a, b| a.factor.total_cmp(&b.factor))
    }

    /// The mark up to which an attempt's clock tells of its strategy. On a slow node the newest
    /// steps don't, until they have been compared.
    pub(crate) fn well_until(&self, attempt: &Attempt) -> Warm {
        let slowness = self.slowness_of(&attempt.gang, attempt.stepped_s);
        let compared = attempt.recent.map(|recent| recent.from).or(attempt.warm);
        compared.filter(|_| slowness.is_some()).unwrap_or_else(|| attempt.here())
    }

    /// Steps of an attempt that tell of its strategy, and the seconds that they took; `None` if
    /// they are too few.
    pub(crate) fn well_clocked(&self, attempt: &Attempt) -> Option<(f64, f64)> {
        attempt.clocked_until(self.well_until(attempt))
    }

    /// The expected seconds a step of an attempt's newest steps, on nodes that are well. They come
    /// from the attempt's earlier steps, or from this run's training under the strategy. `None` if
    /// the newest steps are the first evidence.
    pub(crate) fn pace_before(&self, attempt: &Attempt, recent: &Recent) -> Option<f64> {
        let (steps, taken_s) = recent.since.clocked_until(recent.from);
        if steps >= MIN_STEPS_TO_CORRECT {
            return Some(taken_s / steps as f64);
        }
        if attempt.warm != Some(recent.since) {
            return None;
        }
        let gpu_type = self.gang_type(&attempt.gang);
        let trial = self.trial_of(attempt.task, &attempt.strategy, gpu_type)?;
        let is_slow = self.slowness_of(&attempt.gang, attempt.stepped_s).is_some();
        if trial.is_trained_here {
            trial.trained_step_s
        } else if is_slow {
            self.step_s(attempt.task, &attempt.strategy, gpu_type)
        } else {
            None
        }
    }
}
