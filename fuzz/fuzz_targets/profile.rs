//! A profile: refused in words, or read back as it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saturn_core::Profile;

fuzz_target!(|text: &str| {
    if let Ok(profile) = Profile::from_json(text) {
        assert_eq!(Profile::from_json(&profile.to_json()).expect("it was just written"), profile);
    }
});
