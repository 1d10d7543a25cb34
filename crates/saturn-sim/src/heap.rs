//! What is still to happen in a world, in order of time, and of coming where times are equal.

use std::collections::BTreeMap;

/// Things with their times.
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
    /// Adds a thing that happens at a time from 0 on, seconds.
    pub(crate) fn add(&mut self, at_s: f64, thing: T) {
        self.num_added += 1;
        // The bits of floats from 0 on are ordered as the floats are.
        self.things.insert((at_s.max(0.0).to_bits(), self.num_added), thing);
    }

    /// The time of the next thing.
    pub(crate) fn next_s(&self) -> Option<f64> {
        self.things.first_key_value().map(|((at, _), _)| f64::from_bits(*at))
    }

    /// Takes the next thing out.
    pub(crate) fn take(&mut self) -> Option<(f64, T)> {
        self.things.pop_first().map(|((at, _), thing)| (f64::from_bits(at), thing))
    }

    /// Drops what is not to happen any more.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.things.retain(|_, thing| keep(thing));
    }
}
