//! A journal of version 1, one row a line: translated, or refused in words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saturn_engine::Engine;
use saturn_engine::migrate::migrate_v1;

fuzz_target!(|text: &str| {
    let rows = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    if let Ok(records) = migrate_v1(rows.map(|row| (row, 0.0))) {
        let _ = Engine::restore(records.iter().map(|(record, at_s)| (record, *at_s)));
    }
});
