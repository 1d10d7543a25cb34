//! Tardiness: the sum over soft deadlines of price times seconds late.
//!
//! A plan that is less tardy is better, whatever it is worth under the objective.

use std::cmp::Ordering;

/// Tardiness that differs by less, relative, is equal.
const SAME: f64 = 1e-9;

/// Compares the tardiness of two plans. If rounding alone may have made it differ, it is equal.
#[inline]
pub(crate) fn compare_tardiness(left: f64, right: f64) -> Ordering {
    if left < right * (1.0 - SAME) {
        Ordering::Less
    } else if right < left * (1.0 - SAME) {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}
