//! What people ask of a run, one command a line: done, or refused in words.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| saturn_fuzz_readers::command(text));
