//! Lines on the control socket of a run: a request, or words that say why not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saturn_runtime::control::Request;

fuzz_target!(|line: &str| {
    if let Err(error) = Request::from_line(line) {
        assert!(!error.is_empty());
    }
});
