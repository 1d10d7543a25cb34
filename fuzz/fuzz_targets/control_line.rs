//! Lines on the control socket of a run: a request, or words that say why not.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| saturn_fuzz_readers::control_line(text));
