//! A planning problem: refused in words, or read back as it was written.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| saturn_fuzz_readers::problem(text));
