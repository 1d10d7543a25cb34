//! The task that most tests submit, and the engine that some begin with. A test names only what
//! matters to it.

use std::num::NonZeroU64;

use saturn_core::{Cluster, Knobs, Node, TrialOutcome};
use saturn_engine::{
    Allowed, DeviceKind, Engine, Event, Level, Mode, Policy, RunConfig, TaskSpec, TechniqueRef,
    Wishes,
};

/// A task of 1,000 steps that performs like no other task, and of which nothing was measured.
pub(crate) fn spec(name: &str) -> TaskSpec {
    TaskSpec {
        name: name.to_owned(),
        dir: format!("tasks/{name}"),
        steps: Some(1000),
        epochs: None,
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: None,
        allowed: Allowed::default(),
        profile_key: name.to_owned(),
        measured: Vec::new(),
        wishes: Wishes::default(),
        evaluation: None,
        parameters: Knobs::new(),
        goal: None,
        is_rest: false,
        start_step: 0,
        owner: None,
    }
}

/// The engine of a run that has begun on one node, with managed techniques of these names.
pub(crate) fn engine(techniques: &[&str], gpus: u32, policy: Policy) -> Engine {
    engine_on(vec![Node::new("n", gpus, "cpu")], techniques, policy)
}

/// The same on these nodes.
pub(crate) fn engine_on(nodes: Vec<Node>, techniques: &[&str], policy: Policy) -> Engine {
    let technique = |name: &&str| TechniqueRef {
        name: (*name).to_owned(),
        level: Level::Managed,
        import: None,
        pickle: None,
    };
    let mut engine = Engine::new(RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: techniques.iter().map(technique).collect(),
        policy,
    });
    engine.handle(Event::Begin { cluster: Cluster { nodes } }, 0.0);
    engine
}

/// A trial that found these seconds a step, whose checkpoints take no time.
pub(crate) fn measured(step_s: f64) -> TrialOutcome {
    TrialOutcome::Measured {
        step_s,
        setup_s: 2.0,
        checkpoint_s: Some(0.0),
        peak_memory_bytes: 1,
        timed_steps: 9,
        relative_error: Some(0.03),
        warmup_s: None,
        variation: None,
        batches_per_epoch: None,
        evaluation_s: None,
    }
}
