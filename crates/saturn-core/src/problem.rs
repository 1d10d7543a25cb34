//! A planning problem: a cluster, and tasks with the strategies that each may run under.
//!
//! Invariants of a [`Problem`] that came through [`Problem::from_json`] or [`Problem::validate`]:
//! at least one node and one task, every GPU count at least 1, every runtime finite and positive,
//! every switch cost finite and not negative, names unique. Whether each task *fits* the cluster is not an invariant: see
//! [`Problem::unplaceable`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{ProblemError, read};
use crate::number;
use crate::object;

/// The type of nodes that name none.
pub const DEFAULT_GPU_TYPE: &str = "gpu";

/// A machine in the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique name, as plans print it; empty in a file means `n0`, `n1` … by position.
    #[serde(default)]
    pub name: String,
    /// Number of devices.
    #[serde(deserialize_with = "number::gpus")]
    pub gpus: u32,
    /// The kind of device; nodes of one type are interchangeable but for their GPU count.
    #[serde(rename = "type", default = "default_gpu_type")]
    pub gpu_type: String,
}

fn default_gpu_type() -> String {
    DEFAULT_GPU_TYPE.to_owned()
}

/// The pool of devices that a plan may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Machines, in the order of the file.
    #[serde(deserialize_with = "object::list")]
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Number of devices in all nodes.
    pub fn num_gpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).sum()
    }
}

/// One way to run a task: what the solver chooses among.
///
/// Where no node of a type has `gpus` devices, a gang of that type takes several nodes: whole ones,
/// no more of them than it needs, and with `pack` all but the last of them whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Name of the technique, opaque to the planner.
    pub technique: String,
    /// Number of devices that the gang holds.
    #[serde(deserialize_with = "number::gpus")]
    pub gpus: u32,
    /// The device type that the runtime holds for; `None` means every type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Seconds from launch to end.
    #[serde(deserialize_with = "number::seconds")]
    pub runtime_s: f64,
    /// Whether a gang wider than a node may leave part of its last node to others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pack: bool,
}

/// A task as the planner sees it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemTask {
    /// Unique name.
    pub name: String,
    /// The strategies it may run under; one is chosen, or one after another where it may be switched.
    #[serde(deserialize_with = "object::list")]
    pub strategies: Vec<Candidate>,
    /// Seconds lost whenever it changes strategy or place in mid-run, during which it holds the
    /// devices that it goes on with; `None` where it must run whole under one strategy.
    #[serde(
        default,
        deserialize_with = "number::some_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub switch_cost_s: Option<f64>,
}

/// Cluster and tasks: the input of a solve.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The devices.
    #[serde(deserialize_with = "object::one")]
    pub cluster: Cluster,
    /// The workload.
    #[serde(deserialize_with = "object::list")]
    pub tasks: Vec<ProblemTask>,
}

impl Problem {
    /// Reads a problem file and checks it.
    ///
    /// Unknown fields are refused by name, as is everything that [`Problem::validate`] refuses.
    pub fn from_json(text: &str) -> Result<Self, ProblemError> {
        let mut problem: Self = read(text)?;
        for (index, node) in problem.cluster.nodes.iter_mut().enumerate() {
            if node.name.is_empty() {
                node.name = format!("n{index}");
            }
        }
        problem.validate()?;
        Ok(problem)
    }

    /// Checks what the types alone don't say: see the invariants of this module.
    pub fn validate(&self) -> Result<(), ProblemError> {
        self.validate_cluster()?;
        if self.tasks.is_empty() {
            return Err(empty("tasks", "a list of at least one task"));
        }
        let mut names = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            unique(&mut names, &task.name, || format!("tasks[{index}].name"))?;
            if task.strategies.is_empty() {
                return Err(empty(
                    &format!("tasks[{index}].strategies"),
                    "a list of at least one strategy",
                ));
            }
            if let Some(cost_s) = task.switch_cost_s {
                number::check_cost(|| format!("tasks[{index}].switch_cost_s"), cost_s)?;
            }
            for (position, strategy) in task.strategies.iter().enumerate() {
                let at = |field: &str| format!("tasks[{index}].strategies[{position}].{field}");
                named(&strategy.technique, || at("technique"))?;
                number::check_gpus(|| at("gpus"), strategy.gpus)?;
                number::check_runtime(|| at("runtime_s"), strategy.runtime_s)?;
            }
        }
        Ok(())
    }

    fn validate_cluster(&self) -> Result<(), ProblemError> {
        let nodes = &self.cluster.nodes;
        if nodes.is_empty() {
            return Err(empty("cluster.nodes", "a list of at least one node"));
        }
        let mut names = BTreeMap::new();
        for (index, node) in nodes.iter().enumerate() {
            unique(&mut names, &node.name, || format!("cluster.nodes[{index}].name"))?;
            number::check_gpus(|| format!("cluster.nodes[{index}].gpus"), node.gpus)?;
        }
        let total: u64 = nodes.iter().map(|node| u64::from(node.gpus)).sum();
        if total > number::MAX_CLUSTER_GPUS {
            return Err(ProblemError::Value {
                at: "cluster.nodes".to_owned(),
                found: format!("{total} GPUs in all"),
                expected: "at most 10000000 GPUs in all",
            });
        }
        Ok(())
    }

    /// The tasks that fit the cluster under none of their strategies: (index, why).
    pub fn unplaceable(&self) -> Vec<(usize, String)> {
        let mut devices_by_type: BTreeMap<&str, u32> = BTreeMap::new();
        for node in &self.cluster.nodes {
            *devices_by_type.entry(&node.gpu_type).or_default() += node.gpus;
        }
        let fits = |strategy: &Candidate| match &strategy.gpu_type {
            Some(wanted) => {
                devices_by_type.get(wanted.as_str()).is_some_and(|&gpus| strategy.gpus <= gpus)
            }
            None => devices_by_type.values().any(|&gpus| strategy.gpus <= gpus),
        };
        let pool = || {
            let listed: Vec<String> =
                devices_by_type.iter().map(|(kind, gpus)| format!("{gpus} of `{kind}`")).collect();
            listed.join(", ")
        };
        self.tasks
            .iter()
            .enumerate()
            .filter(|(_, task)| !task.strategies.iter().any(fits))
            .map(|(index, task)| {
                let mut needs: Vec<String> = task.strategies.iter().map(need).collect();
                needs.dedup();
                (index, format!("needs {}; the cluster has {}", needs.join(" or "), pool()))
            })
            .collect()
    }
}

fn need(strategy: &Candidate) -> String {
    let gpus = strategy.gpus;
    let noun = if gpus == 1 { "GPU" } else { "GPUs" };
    match &strategy.gpu_type {
        Some(kind) => format!("{gpus} {noun} of type `{kind}` (`{}`)", strategy.technique),
        None => format!("{gpus} {noun} of one type (`{}`)", strategy.technique),
    }
}

fn empty(at: &str, expected: &'static str) -> ProblemError {
    ProblemError::Value { at: at.to_owned(), found: "empty".to_owned(), expected }
}

/// Refuses an empty name.
pub(crate) fn named(name: &str, at: impl FnOnce() -> String) -> Result<(), ProblemError> {
    if name.is_empty() { Err(empty(&at(), "a name")) } else { Ok(()) }
}

fn unique<'a>(
    seen: &mut BTreeMap<&'a str, String>,
    name: &'a str,
    at: impl Fn() -> String,
) -> Result<(), ProblemError> {
    named(name, &at)?;
    match seen.insert(name, at()) {
        Some(first) => Err(ProblemError::DuplicateName { at: at(), name: name.to_owned(), first }),
        None => Ok(()),
    }
}
