//! What the Python face asks for: a run, or words that say what is wrong with it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saturn_runtime::RunRequest;

fuzz_target!(|json: &str| {
    if let Err(error) = RunRequest::from_json(json) {
        assert!(!error.to_string().is_empty());
    }
});
