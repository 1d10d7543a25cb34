//! A journal of version 1, one row a line: translated, or refused in words.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| saturn_fuzz_readers::journal_v1(text));
