//! Workloads drawn from a seed: nodes, groups of tasks, the truth about them, and their
//! requirements.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use rand::{Rng, RngExt};
use saturn_core::{Knobs, Node, Origin, Strategy, Trial};
use saturn_engine::{
    Allowed, DeviceKind, Level, Mode, NewTask, Policy, RunConfig, TaskSpec, TechniqueRef, Wishes,
};

use crate::workloads::truth::{GroupTruth, TechniqueTruth, Truth};

/// The login name of the person who shares some simulated runs.
pub(crate) const GUEST_LOGIN: &str = "lena";

/// Names of the techniques of a workload; the last trains by itself.
pub const TECHNIQUES: [&str; 3] = ["ddp", "fsdp", "box"];
/// Types of devices.
pub const TYPES: [&str; 2] = ["fast", "slow"];

/// How large a workload may be.
#[derive(Debug, Clone)]
pub struct Size {
    /// Most nodes.
    pub nodes: usize,
    /// Most devices of a node.
    pub gpus: u32,
    /// Most tasks.
    pub tasks: usize,
    /// Fewest and most steps of a task.
    pub steps: (u64, u64),
    /// Most techniques, from the front of [`TECHNIQUES`].
    pub techniques: usize,
}

/// Nodes, tasks, and the truth about them.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The nodes at the beginning.
    pub nodes: Vec<Node>,
    /// The configuration of the run.
    pub config: RunConfig,
    /// The truth.
    pub truth: Truth,
    /// The tasks.
    pub tasks: Vec<NewTask>,
}

impl Workload {
    /// Draws a workload.
    pub fn draw(rng: &mut impl Rng, size: &Size) -> Self {
        let num_nodes = rng.random_range(1..=size.nodes);
        let nodes: Vec<Node> = (0..num_nodes)
            .map(|index| {
                let gpu_type = TYPES[usize::from(rng.random_bool(0.3))];
                Node::new(format!("n{index}"), rng.random_range(1..=size.gpus), gpu_type)
            })
            .collect();
        let num_tasks = rng.random_range(1..=size.tasks);
        let num_groups = rng.random_range(1..=num_tasks);
        let num_techniques = rng.random_range(1..=size.techniques);
        let widest = nodes.iter().map(|node| node.gpus).max().unwrap_or(1);
        let mut truth = Truth {
            groups: BTreeMap::new(),
            speeds: TYPES
                .iter()
                .zip([1.0, 0.4])
                .map(|(name, one)| ((*name).to_owned(), one))
                .collect(),
        };
        for group in 0..num_groups {
            truth.groups.insert(group_name(group), draw_group(rng, num_techniques, widest));
        }
        let tasks = (0..num_tasks)
            .map(|index| {
                let steps = rng.random_range(size.steps.0..=size.steps.1);
                let spec = task(index, &group_name(rng.random_range(0..num_groups)), steps);
                NewTask { spec, after: Vec::new() }
            })
            .collect();
        let techniques = TECHNIQUES[..num_techniques].iter().map(|name| technique(name)).collect();
        let config = RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cuda,
            device_memory_bytes: None,
            techniques,
            policy: Policy::default(),
        };
        Self { nodes, config, truth, tasks }
    }

    /// Gives every task the trials that exact measurements on the present nodes would have.
    pub fn measure(&mut self) {
        let types: BTreeMap<&str, u32> =
            self.nodes.iter().fold(BTreeMap::new(), |mut all, node| {
                let widest = all.entry(node.gpu_type.as_str()).or_insert(0);
                *widest = node.gpus.max(*widest);
                all
            });
        for NewTask { spec, .. } in &mut self.tasks {
            for (gpu_type, widest) in &types {
                for gpus in 1..=*widest {
                    for technique in &self.config.techniques {
                        let strategy = Strategy {
                            technique: technique.name.clone(),
                            gpus,
                            knobs: Knobs::new(),
                        };
                        spec.measured.push(Trial {
                            task: spec.name.clone(),
                            profile_key: Some(spec.profile_key.clone()),
                            gpu_type: Some((*gpu_type).to_owned()),
                            device_memory_bytes: None,
                            outcome: Some(self.truth.outcome(
                                &spec.profile_key,
                                &strategy,
                                gpu_type,
                            )),
                            trained: None,
                            strategy,
                            origin: Origin::default(),
                        });
                    }
                }
            }
        }
    }
}

fn group_name(group: usize) -> String {
    format!("g{group}")
}

/// A task of that many steps, without measurements and without requirements.
pub fn task(index: usize, group: &str, steps: u64) -> TaskSpec {
    TaskSpec {
        name: format!("t{index}"),
        dir: format!("tasks/t{index}"),
        steps: Some(steps),
        epochs: None,
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: None,
        allowed: Allowed::default(),
        profile_key: group.to_owned(),
        measured: Vec::new(),
        wishes: Wishes::default(),
        evaluation: None,
        parameters: saturn_core::Knobs::new(),
        goal: None,
        is_rest: false,
        start_step: 0,
        owner: None,
    }
}

/// A technique of [`TECHNIQUES`].
pub fn technique(name: &str) -> TechniqueRef {
    TechniqueRef {
        name: name.to_owned(),
        level: if name == TECHNIQUES[2] { Level::BlackBox } else { Level::Managed },
        import: Some(format!("saturn.techniques.{name}:T")),
        pickle: None,
    }
}

fn draw_group(rng: &mut impl Rng, num_techniques: usize, widest: u32) -> GroupTruth {
    let mut techniques = BTreeMap::new();
    for (index, name) in TECHNIQUES.iter().enumerate().take(num_techniques) {
        let is_first = index == 0;
        let truth = TechniqueTruth {
            factor: rng.random_range(0.7..1.5),
            scaling: rng.random_range(0.4..1.0),
            measured: BTreeMap::new(),
            // The first technique runs everywhere, so that every task can be trained.
            fits_from: if is_first { 1 } else { rng.random_range(1..=widest) },
            refusal: (!is_first && rng.random_bool(0.15)).then(|| "it has no layers".to_owned()),
        };
        techniques.insert((*name).to_owned(), truth);
    }
    GroupTruth {
        step_s: rng.random_range(0.05..1.0),
        load_s: rng.random_range(0.5..10.0),
        save_s: rng.random_range(0.1..3.0),
        evaluating: None,
        batches_per_epoch: 50,
        techniques,
    }
}
