//! The two kinds of deadline that a wish may hold: hard, and soft with a price.

use crate::facts::config::Wishes;

impl Wishes {
    /// The time by which every plan must end the task, if any plan can, seconds: a hard deadline, or
    /// a soft deadline and the most by which it may be missed.
    pub fn latest_s(&self) -> Option<f64> {
        let more_s = if self.late_price.is_some() { self.most_late_s? } else { 0.0 };
        Some(self.deadline_s? + more_s)
    }

    /// A soft deadline in seconds, and the price of each second after it. `None` without a soft
    /// deadline.
    pub fn soft_deadline(&self) -> Option<(f64, f64)> {
        self.deadline_s.zip(self.late_price)
    }
}
