//! What ranks say, one report a line: the engine takes it in, whatever it is.
#![no_main]

use std::num::NonZeroU64;

use libfuzzer_sys::fuzz_target;
use saturn_core::{Cluster, Node};
use saturn_engine::{
    Allowed, AttemptId, Command, DeviceKind, Engine, Event, Level, Mode, NewTask, Policy, RankReport,
    RunConfig, TaskSpec, TechniqueRef, Wishes,
};

fuzz_target!(|text: &str| {
    let technique =
        TechniqueRef { name: "ddp".into(), level: Level::Managed, import: None, pickle: None };
    let mut engine = Engine::new(RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: vec![technique],
        policy: Policy::default(),
    });
    let cluster = Cluster { nodes: vec![Node::new("n0", 2, "cpu")] };
    engine.handle(Event::Begin { cluster }, 0.0);
    let spec = TaskSpec {
        name: "t".into(),
        dir: "tasks/t".into(),
        steps: Some(9),
        epochs: None,
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: None,
        allowed: Allowed::default(),
        profile_key: "k".into(),
        measured: Vec::new(),
        wishes: Wishes::default(),
    };
    let command = Command::Submit { tasks: vec![NewTask { spec, after: Vec::new() }] };
    engine.handle(Event::Command { command }, 0.0);
    for (index, line) in text.lines().enumerate() {
        let Ok(report) = serde_json::from_str::<RankReport>(line) else { continue };
        let attempt = AttemptId(1 + index as u64 % 2);
        engine.handle(Event::Reported { attempt, rank: 0, report }, index as f64);
    }
});
