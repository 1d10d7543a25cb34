//! The task that most tests submit. A test names only the fields that matter to it.

use std::num::NonZeroU64;

use saturn_core::Knobs;
use saturn_engine::{Allowed, TaskSpec, Wishes};

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
    }
}
