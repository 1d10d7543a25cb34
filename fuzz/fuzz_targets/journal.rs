//! A journal's records, one a line: whatever can be read is folded, and the run goes on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saturn_core::{Cluster, Node};
use saturn_engine::{Engine, Event, Record};

fuzz_target!(|text: &str| {
    let records: Vec<Record> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let timed = records.iter().enumerate().map(|(index, record)| (record, index as f64));
    if let Some(mut engine) = Engine::restore(timed) {
        let cluster = Cluster { nodes: vec![Node::new("n0", 2, "cpu")] };
        engine.handle(Event::Resume { cluster, device_memory_bytes: None }, 1e6);
        engine.handle(Event::Tick, 1e6 + 1.0);
    }
});
