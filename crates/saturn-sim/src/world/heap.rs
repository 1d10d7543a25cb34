//! A queue of the future events of a world, in order of time; events of equal time are in order of
//! arrival.

use std::collections::BTreeMap;

/// Events with their times.
#[derive(Debug)]
pub(crate) struct Heap<T> {
    things: BTreeMap<(u64, u64), T>,
    num_added: u64,
}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Self { things: BTreeMap::new(), num_added: 0 }
    }
}

impl<T> Heap<T> {
    /// Adds an event at a time from 0 on, seconds.
    pub(crate) fn add(&mut self, at_s: f64, thing: T) {
        self.num_added += 1;
        // The bits of floats from 0 on are ordered as the floats are.
        self.things.insert((at_s.max(0.0).to_bits(), self.num_added), thing);
    }

    /// The time of the next event.
    pub(crate) fn next_s(&self) -> Option<f64> {
        self.things.first_key_value().map(|((at, _), _)| f64::from_bits(*at))
    }

    /// Takes the next event out.
    pub(crate) fn take(&mut self) -> Option<(f64, T)> {
        self.things.pop_first().map(|((at, _), thing)| (f64::from_bits(at), thing))
    }

    /// Drops events that are cancelled.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.things.retain(|_, thing| keep(thing));
    }
}
