//! The stream of random numbers of one thread of a search: seeded, portable, fast.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Streams of one seed differ by `stream`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(
            seed ^ stream.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        ))
    }

    /// A number below `bound`, which must be positive and below 2^32.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // The product is below 2^32 * bound, its high half below bound.
        (((self.0.next_u64() >> 32) * bound as u64) >> 32) as usize
    }

    /// A number in [0, 1).
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number between `low` and `high`, uniform in its logarithm.
    pub(crate) fn log_between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    /// Puts `items` in random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
