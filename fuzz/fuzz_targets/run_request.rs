//! What the Python face asks for: a run, or words that say what is wrong with it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| saturn_fuzz_readers::run_request(text));
