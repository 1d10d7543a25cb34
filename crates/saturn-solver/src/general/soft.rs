//! Soft deadlines of a whole problem: the least tardiness, the prices, and the tardiness of a plan.

use crate::general::instance::Instance;
use crate::general::play::Placed;

impl Instance<'_> {
    /// Whether some deadline is soft.
    pub(crate) fn has_soft_deadlines(&self) -> bool {
        self.tasks.iter().any(|task| task.wished.is_finite())
    }

    /// No plan is less tardy.
    pub(crate) fn least_tardiness(&self) -> f64 {
        self.tasks.iter().map(|task| task.tardiness(task.earliest_end)).sum()
    }

    /// The mean price of a late second, and the highest over the mean; 1 and 1 without any.
    pub(crate) fn late_prices(&self) -> (f64, f64) {
        let soft = self.tasks.iter().filter(|task| task.wished.is_finite());
        let prices: Vec<f64> = soft.map(|task| task.late_price).collect();
        let mean = prices.iter().sum::<f64>() / prices.len().max(1) as f64;
        let most = prices.iter().copied().fold(0.0, f64::max);
        if prices.is_empty() { (1.0, 1.0) } else { (mean, most / mean) }
    }
}

/// The tardiness of gangs.
pub(crate) fn tardiness(instance: &Instance, placed: &[Placed]) -> f64 {
    placed.iter().map(|one| instance.tasks[one.task].tardiness(one.end())).sum()
}
