//! The two kinds of deadline that a wish may hold: hard, and soft with a price.

use crate::facts::config::Wishes;

impl Wishes {
    /// The time by which a plan must have it end if it can, seconds: its deadline, or how far its
    /// soft deadline may be missed.
    pub fn latest_s(&self) -> Option<f64> {
        let more_s = if self.late_price.is_some() { self.most_late_s? } else { 0.0 };
        Some(self.deadline_s? + more_s)
    }

    /// The time from which it is late, seconds, and the price of a second from then on, if its
    /// deadline is soft.
    pub fn soft_deadline(&self) -> Option<(f64, f64)> {
        self.deadline_s.zip(self.late_price)
    }
}
