//! What people ask of a run, one command a line: done, or refused in words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saturn_core::{Cluster, Node};
use saturn_engine::{Command, DeviceKind, Engine, Event, Mode, Policy, RunConfig};

fuzz_target!(|text: &str| {
    let mut engine = Engine::new(RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: Vec::new(),
        policy: Policy::default(),
    });
    let cluster = Cluster { nodes: vec![Node::new("n0", 2, "cpu")] };
    engine.handle(Event::Begin { cluster }, 0.0);
    for (index, line) in text.lines().enumerate() {
        if let Ok(command) = serde_json::from_str::<Command>(line) {
            engine.handle(Event::Command { command }, index as f64);
        }
    }
});
