//! A journal's records, one a line: whatever can be read is folded, and the run goes on.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| saturn_fuzz_readers::journal(text));
