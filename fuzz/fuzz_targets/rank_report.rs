//! What ranks say, one report a line: the engine takes it in, whatever it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| saturn_fuzz_readers::rank_report(text));
