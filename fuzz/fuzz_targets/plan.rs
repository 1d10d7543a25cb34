//! A small problem, as text or made of the bytes: solved, bounded, and checked.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| saturn_fuzz_readers::plan(bytes));
