//! When the driver stood still, and heard nothing of its tasks.
//!
//! A task may have trained meanwhile, or have ended long before the driver heard so. Nobody knows
//! which, so times that such a standstill overlaps are not compared with plans.

/// If the driver stood still for a smaller share of the time that was forecast or taken, the time is
/// still compared with its forecast.
pub(crate) const MOST_UNHEARD: f64 = 0.01;

/// The standstills of a run's drivers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Standstills {
    /// Begin and end of each, seconds; the oldest first.
    spans: Vec<(f64, f64)>,
}

impl Standstills {
    /// The driver stood still until now, for so many seconds.
    pub(crate) fn add(&mut self, for_s: f64, now_s: f64) {
        self.spans.push((now_s - for_s, now_s));
    }

    /// The parts of standstills between two times: begin and end, seconds.
    pub(crate) fn within(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = (f64, f64)> + '_ {
        let first = self.spans.partition_point(|(_, until_s)| *until_s <= from_s);
        let spans = self.spans[first..].iter().take_while(move |(since_s, _)| *since_s < to_s);
        spans.map(move |(since_s, until_s)| (since_s.max(from_s), until_s.min(to_s)))
    }

    /// Seconds of standstill between two times.
    pub(crate) fn seconds(&self, from_s: f64, to_s: f64) -> f64 {
        self.within(from_s, to_s).fold(0.0, |sum, (since_s, until_s)| sum + until_s - since_s)
    }
}
