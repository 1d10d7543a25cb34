//! A planning problem: a cluster, and tasks with the strategies that each may run under.
//!
//! Invariants of a [`Problem`] that came through [`Problem::from_json`] or [`Problem::validate`]:
//! there is at least one node and one task. Every GPU count is at least 1, and every runtime is
//! finite and positive. Names are unique, and every name that is referred to exists. No task comes
//! before itself, and no two running tasks share a device. Whether each task *fits* the cluster is
//! not an invariant: see [`Problem::unplaceable`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{ProblemError, read};
use crate::number;
use crate::object;
use crate::plan::{Gang, Placement};

/// The type of nodes whose file names no type.
pub const DEFAULT_GPU_TYPE: &str = "gpu";

/// A machine in the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique name, as plans print it. If a file leaves it empty, it becomes `n0`, `n1` … by
    /// position.
    #[serde(default)]
    pub name: String,
    /// Number of devices.
    #[serde(deserialize_with = "number::gpus")]
    pub gpus: u32,
    /// The type of its devices. Nodes of one type differ only in their GPU count.
    #[serde(rename = "type", default = "default_gpu_type")]
    pub gpu_type: String,
    /// The price of an hour during which the node holds anything, in any currency.
    #[serde(default, deserialize_with = "number::real", skip_serializing_if = "is_zero")]
    pub price_per_hour: f64,
    /// When the node arrives, seconds.
    #[serde(default, deserialize_with = "number::seconds", skip_serializing_if = "is_zero")]
    pub available_from_s: f64,
    /// When the node leaves, seconds. Every gang on it must have ended by then.
    #[serde(
        default,
        deserialize_with = "number::some_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub available_until_s: Option<f64>,
    /// Bytes of host memory that the gangs on it may take together; `None`: no limit.
    #[serde(
        default,
        deserialize_with = "number::some_bytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub host_memory_bytes: Option<u64>,
}

impl Node {
    /// A node that costs nothing and is always there.
    pub fn new(name: impl Into<String>, gpus: u32, gpu_type: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            gpus,
            gpu_type: gpu_type.into(),
            price_per_hour: 0.0,
            available_from_s: 0.0,
            available_until_s: None,
            host_memory_bytes: None,
        }
    }

    /// When the node leaves, seconds; infinite if it stays.
    pub fn until_s(&self) -> f64 {
        self.available_until_s.unwrap_or(f64::INFINITY)
    }

    /// Bytes of host memory that the gangs on it may take together; the largest number if there is
    /// no limit.
    pub fn host_memory(&self) -> u64 {
        self.host_memory_bytes.unwrap_or(u64::MAX)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_no_bytes(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(value: &f64) -> bool {
    value.to_bits() == 1.0f64.to_bits()
}

fn one() -> f64 {
    1.0
}

fn default_gpu_type() -> String {
    DEFAULT_GPU_TYPE.to_owned()
}

/// The pool of devices that a plan may use.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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

/// A candidate strategy of a task, among which the solver chooses.
///
/// If no node of a type has `gpus` devices, a gang of that type takes several nodes. It takes whole
/// nodes, and no more of them than it needs. With `pack` it may take only a part of its last node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Name of the technique, opaque to the planner. Shared, since a large problem has few names.
    pub technique: Arc<str>,
    /// Number of devices that the gang holds.
    #[serde(deserialize_with = "number::gpus")]
    pub gpus: u32,
    /// The device type that the runtime is valid for; `None`: every type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<Arc<str>>,
    /// Seconds from launch to end.
    #[serde(deserialize_with = "number::seconds")]
    pub runtime_s: f64,
    /// Whether a gang wider than a node may leave a part of its last node to other gangs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pack: bool,
    /// Bytes of host memory that the gang takes on each of its nodes.
    #[serde(default, deserialize_with = "number::bytes", skip_serializing_if = "is_no_bytes")]
    pub host_bytes: u64,
    /// How unsure `runtime_s` is: the standard deviation of the logarithm of the true runtime, whose
    /// median `runtime_s` is. So 0.1 is about 10% either way, two times in three. Only a solve that
    /// draws runtimes looks at it.
    #[serde(default, deserialize_with = "number::real", skip_serializing_if = "is_zero")]
    pub relative_error: f64,
}

impl Candidate {
    /// The most devices that a gang of it holds on nodes of one type, whose narrowest and widest nodes
    /// have so many. Only whole nodes of different widths leave open how many.
    pub fn most_held(&self, narrowest: u32, widest: u32) -> u32 {
        if self.gpus <= widest || self.pack {
            self.gpus
        } else if narrowest == widest {
            self.gpus.div_ceil(widest).saturating_mul(widest)
        } else {
            // Without any one of its nodes, the gang would have too few devices.
            self.gpus.saturating_add(widest - 1)
        }
    }
}

/// A measured strategy of a task that no node of a cluster can hold, and the nodes that could.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wide {
    /// The task's number in the problem; `None` if the problem can't use the strategy whatever
    /// nodes there are.
    pub task: Option<usize>,
    /// Tasks with equal numbers share their strategies.
    pub group: usize,
    /// The strategy.
    pub candidate: Candidate,
    /// Of a strategy across nodes: devices of the nodes on which it was measured. `None`: it was
    /// measured within a node.
    pub across: Option<u32>,
    /// The most nodes that a gang may take.
    pub max_nodes: u32,
}

impl Wide {
    /// Whether nodes like `node` can hold it, if there are enough of them.
    pub fn is_held_by(&self, node: &Node) -> bool {
        let gpus = self.candidate.gpus;
        let is_of_type = self.candidate.gpu_type.as_deref().is_none_or(|one| one == node.gpu_type);
        is_of_type
            && self.candidate.host_bytes <= node.host_memory()
            && match self.across {
                None => gpus <= node.gpus,
                // On wider nodes the same number of devices is another gang.
                Some(width) => node.gpus <= width && gpus.div_ceil(node.gpus) <= self.max_nodes,
            }
    }
}

/// Devices of one node, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldDevices {
    /// The node's name.
    pub node: String,
    /// Device ids on it, ascending.
    pub devices: Vec<u32>,
}

/// The strategy and place of a task that already runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// The technique of its strategy.
    pub technique: String,
    /// The GPU count of its strategy.
    #[serde(deserialize_with = "number::gpus")]
    pub gpus: u32,
    /// The device type of its strategy, if the strategy names one.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// The devices that it holds.
    #[serde(deserialize_with = "object::list")]
    pub placement: Vec<HeldDevices>,
    /// Whether it may be stopped, to continue on other devices, under another strategy, or later.
    #[serde(default)]
    pub movable: bool,
}

/// A task as the planner sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemTask {
    /// Unique name.
    pub name: String,
    /// The strategies that it may run under. The solver chooses one, or a sequence of them if the
    /// task may be switched. For a running task, their runtimes are the seconds that are left.
    #[serde(deserialize_with = "object::list")]
    pub strategies: Vec<Candidate>,
    /// The earliest start, seconds.
    #[serde(default, deserialize_with = "number::seconds", skip_serializing_if = "is_zero")]
    pub release_s: f64,
    /// Names of tasks that must have ended before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The weight of its end in the objective `completion`.
    #[serde(default = "one", deserialize_with = "number::real", skip_serializing_if = "is_one")]
    pub weight: f64,
    /// The latest end, seconds. With a `late_price` it is a *soft* deadline: it may be missed.
    #[serde(
        default,
        deserialize_with = "number::some_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub deadline_s: Option<f64>,
    /// The price of a second after the deadline, which makes the deadline soft. Plans make the sum
    /// of these prices small before they look at the objective, so only their ratios matter.
    #[serde(
        default,
        deserialize_with = "number::some_real",
        skip_serializing_if = "Option::is_none"
    )]
    pub late_price: Option<f64>,
    /// The most seconds by which a soft deadline may be missed; `None`: any.
    #[serde(
        default,
        deserialize_with = "number::some_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub most_late_s: Option<f64>,
    /// The names of the only nodes that it may use; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_nodes: Option<Vec<String>>,
    /// The names of nodes that it may not use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_nodes: Vec<String>,
    /// Seconds lost whenever the task changes strategy or place before its end. During these
    /// seconds it holds its next devices. `None`: it must run whole under one strategy.
    #[serde(
        default,
        deserialize_with = "number::some_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub switch_cost_s: Option<f64>,
    /// The name of the [owner](Owner) on whose cap it counts; `None`: it counts on no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its present strategy and place, if it already runs.
    #[serde(default, deserialize_with = "running", skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
}

fn running<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Running>, D::Error> {
    object::one(deserializer).map(Some)
}

impl Default for ProblemTask {
    fn default() -> Self {
        Self::new("", Vec::new())
    }
}

impl ProblemTask {
    /// A task that may run at any time and on any node, under any of its strategies.
    pub fn new(name: impl Into<String>, strategies: Vec<Candidate>) -> Self {
        Self {
            name: name.into(),
            strategies,
            release_s: 0.0,
            after: Vec::new(),
            weight: 1.0,
            deadline_s: None,
            late_price: None,
            most_late_s: None,
            only_nodes: None,
            not_nodes: Vec::new(),
            switch_cost_s: None,
            owner: None,
            running: None,
        }
    }

    /// The time from which it is late, and the price of a second from then on, if its deadline is
    /// soft.
    pub fn soft_deadline(&self) -> Option<(f64, f64)> {
        self.deadline_s.zip(self.late_price)
    }

    /// The index of the strategy under which the task already runs: the first with the same
    /// technique, GPU count and type.
    pub fn running_strategy(&self) -> Option<usize> {
        let running = self.running.as_ref()?;
        self.strategies.iter().position(|one| {
            *one.technique == *running.technique
                && one.gpus == running.gpus
                && one.gpu_type.as_deref() == running.gpu_type.as_deref()
        })
    }
}

/// Somebody whose tasks together may hold only so many devices at once, the *cap*.
///
/// A task of theirs may use a strategy only if its gang can't hold more than the cap by itself
/// ([`Candidate::most_held`]). Running tasks may hold more, for example because the cap was lowered. Until they hold no more than
/// the cap, no other gang of the owner starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Unique name, to which tasks refer.
    pub name: String,
    /// The most devices that the owner's gangs may hold at once.
    #[serde(deserialize_with = "number::gpus")]
    pub max_gpus: u32,
}

/// Cluster and tasks: the input of a solve.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The devices.
    #[serde(deserialize_with = "object::one")]
    pub cluster: Cluster,
    /// The tasks.
    #[serde(deserialize_with = "object::list")]
    pub tasks: Vec<ProblemTask>,
    /// The owners of tasks who may hold only so many devices at once.
    #[serde(default, deserialize_with = "object::list", skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// The latest end of every task, seconds.
    #[serde(
        default,
        deserialize_with = "number::some_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub deadline_s: Option<f64>,
}

impl Problem {
    /// A problem without a deadline.
    pub fn new(cluster: Cluster, tasks: Vec<ProblemTask>) -> Self {
        Self { cluster, tasks, owners: Vec::new(), deadline_s: None }
    }

    /// Reads a problem file and checks it.
    ///
    /// Refuses unknown fields by name, and everything that [`Problem::validate`] refuses.
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

    /// The latest end that a task may have, seconds: its deadline, or how far its soft deadline may
    /// be missed. Infinite without either.
    pub fn due_s(&self, task: &ProblemTask) -> f64 {
        let infinite = |seconds: Option<f64>| seconds.unwrap_or(f64::INFINITY);
        let more_s = if task.late_price.is_some() { infinite(task.most_late_s) } else { 0.0 };
        (infinite(task.deadline_s) + more_s).min(infinite(self.deadline_s))
    }

    /// The owner of a task. `None` if it has none, or if the owner's name is unknown.
    pub fn owner(&self, task: &ProblemTask) -> Option<&Owner> {
        let name = task.owner.as_ref()?;
        self.owners.iter().find(|owner| owner.name == *name)
    }

    /// The devices that a running task holds. `None` if the task is not running, or if a node's
    /// name is unknown.
    pub fn running_gang(&self, task: &ProblemTask) -> Option<Gang> {
        let part = |held: &HeldDevices| {
            let node = self.cluster.nodes.iter().position(|node| node.name == held.node)?;
            Some(Placement { node, devices: held.devices.clone() })
        };
        let mut gang =
            task.running.as_ref()?.placement.iter().map(part).collect::<Option<Gang>>()?;
        gang.sort_by_key(|part| part.node);
        Some(gang)
    }
}
