//! Losses as ranks write them, one point a line, torn where they were killed: read, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let points = saturn_view::read_metrics(bytes).unwrap_or_default();
    assert!(points.is_sorted_by(|one, next| one.0 < next.0), "{points:?}");
});
