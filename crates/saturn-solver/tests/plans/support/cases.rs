//! How many random cases a test has: so many in the gate, `SATURN_TEST_CASES` times as many at night.

use proptest::prelude::ProptestConfig;

/// `number` cases, or the multiple of them that the environment asks for.
pub(crate) fn cases(number: u32) -> ProptestConfig {
    let times = std::env::var("SATURN_TEST_CASES").map_or(1, |times| times.parse().unwrap());
    ProptestConfig::with_cases(number * times)
}
