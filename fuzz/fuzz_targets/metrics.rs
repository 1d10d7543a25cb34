//! Losses as ranks write them, one point a line, torn where they were killed: read, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| saturn_fuzz_readers::metrics(bytes));
