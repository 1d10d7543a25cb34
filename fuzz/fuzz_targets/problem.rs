//! A planning problem: refused in words, or read back as it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saturn_core::Problem;

fuzz_target!(|text: &str| {
    if let Ok(problem) = Problem::from_json(text) {
        let again = serde_json::to_string(&problem).expect("it is data");
        assert_eq!(Problem::from_json(&again).expect("it was just written"), problem);
        let _ = problem.unplaceable();
    }
});
