//! The configuration of a run (techniques and policy) and of its tasks.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use saturn_core::{ForecastErrors, Knobs, Strategy, StrategyKey, Trial};
use serde::{Deserialize, Serialize};

use crate::facts::ids::TaskId;
use crate::facts::machines::MachineMemory;
use crate::facts::owner::Owner;
use crate::facts::sharing::Sharing;

/// Whether a run only measures, or also trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Trials only.
    Search,
    /// Trials where the profile is incomplete, and training to the end by plans.
    Orchestrate,
}

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A CPU slot: one pinned core.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// Which of the two technique interfaces a technique implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Saturn owns the training loop; one rank a device.
    Managed,
    /// The technique trains by itself, in one process that sees all devices of the gang.
    BlackBox,
}

/// A technique of the library, as a worker finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TechniqueRef {
    /// Registered name.
    pub name: String,
    /// Interface level.
    pub level: Level,
    /// `module:Class`, where it can be imported.
    pub import: Option<String>,
    /// Path of its pickle within the run directory, where it can't.
    pub pickle: Option<String>,
}

/// The technique of tasks that are scripts, which train by themselves. A task is tried under it
/// only if the task names it.
pub(crate) const SCRIPT: &str = "script";

/// One task. Its functions stay in its directory: the engine never needs them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Unique name.
    pub name: String,
    /// Directory within the run directory.
    pub dir: String,
    /// Optimizer steps to train, where the task says so.
    pub steps: Option<u64>,
    /// Passes over the loader to train, where the task says so instead.
    pub epochs: Option<u64>,
    /// Batches of the loader that make one step: how epochs become steps.
    #[serde(default = "one_batch_a_step")]
    pub batches_a_step: NonZeroU64,
    /// Whether it can go on from a checkpoint. A task that can't is never stopped for a plan or a
    /// trial.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub can_resume: bool,
    /// Device counts that the task allows; `None` allows all.
    pub gpu_range: Option<Vec<u32>>,
    /// Techniques and knobs that the task allows.
    #[serde(default, skip_serializing_if = "Allowed::is_all")]
    pub allowed: Allowed,
    /// Tasks with equal keys perform alike by construction and share their trials.
    pub profile_key: String,
    /// Trials known from an earlier search.
    #[serde(default)]
    pub measured: Vec<Trial>,
    /// The user's wishes for the task's schedule.
    #[serde(default)]
    pub wishes: Wishes,
    /// When its model is evaluated; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<EvaluationSpec>,
    /// The values that tell it from other tasks, for people: learning rate, width and so on.
    #[serde(default, skip_serializing_if = "Knobs::is_empty")]
    pub parameters: Knobs,
    /// The metric that says how well the task does, for people; `None`: its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Whether this task runs the part of a script that follows the training. Another task trains.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rest: bool,
    /// Finished steps in the checkpoint of another task that this task continues. Earlier journals
    /// have 0 here; then the first attempt reports the step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_step: u64,
    /// Whose it is; `None`: of the person whose process drives the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// The metric that says how well a task does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// `loss`, or a metric of its evaluations.
    pub metric: String,
    /// Whether less of it is better, or more.
    pub mode: GoalMode,
}

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalMode {
    /// Less.
    Min,
    /// More.
    Max,
}

/// When a task's model is evaluated: after its last step in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationSpec {
    /// Steps between two evaluations; `None`: the model is evaluated only after the last step.
    pub every_steps: Option<NonZeroU64>,
}

/// Which techniques and knobs a task may be tried and trained under.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowed {
    /// Names of techniques; `None` allows all.
    pub techniques: Option<Vec<String>>,
    /// Names of techniques that it forbids.
    pub not_techniques: Vec<String>,
    /// The values that knobs may have, by technique and knob. All others are free.
    pub knobs: BTreeMap<String, BTreeMap<String, Vec<serde_json::Value>>>,
}

impl Allowed {
    fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

impl TaskSpec {
    /// Whether the task may be tried and trained under a technique on so many devices.
    pub fn allows_key(&self, key: &StrategyKey) -> bool {
        self.allows_way(&key.technique, key.gpus)
    }

    fn allows_way(&self, technique: &str, gpus: u32) -> bool {
        self.gpu_range.as_ref().is_none_or(|range| range.contains(&gpus))
            && self.allows_technique(technique)
    }

    /// Whether the task may be tried and trained under a technique, on any number of devices.
    pub fn allows_technique(&self, name: &str) -> bool {
        let is_forbidden = self.allowed.not_techniques.iter().any(|one| one == name);
        match &self.allowed.techniques {
            Some(all) => all.iter().any(|one| one == name) && !is_forbidden,
            None => name != SCRIPT && !is_forbidden,
        }
    }

    /// Whether the task may be tried and trained under a strategy, its knobs included.
    pub fn allows(&self, strategy: &Strategy) -> bool {
        let pinned = self.allowed.knobs.get(&strategy.technique).into_iter().flatten();
        self.allows_way(&strategy.technique, strategy.gpus)
            && pinned.into_iter().all(|(knob, values)| {
                strategy.knobs.get(knob).is_some_and(|value| values.contains(value))
            })
    }
}

pub(super) fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn one_batch_a_step() -> NonZeroU64 {
    NonZeroU64::MIN
}

/// A user's wishes for a task's schedule. They may change while the run goes on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wishes {
    /// A task of higher priority has a larger weight in the sum of ends that plans minimise.
    pub priority: i32,
    /// The time on the run's clock by which it should have ended, seconds.
    pub deadline_s: Option<f64>,
    /// The price of a second after the deadline, which makes the deadline soft: plans keep hard
    /// deadlines first, and then make the sum of these prices small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_price: Option<f64>,
    /// The most seconds by which a plan may miss the soft deadline; `None`: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_late_s: Option<f64>,
    /// No training before this time on the run's clock, seconds.
    pub release_s: f64,
    /// Tasks that must be done before it starts.
    pub after: Vec<TaskId>,
}

/// How much may be spent on trials.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialBudget {
    /// Every strategy is measured, whatever that costs.
    #[default]
    Full,
    /// Each group's first trial, and then each trial that is expected to save more than it costs.
    Worthwhile,
    /// As `Worthwhile`, up to this many device-seconds. Each group's first trial runs in any case.
    Seconds(f64),
}

/// The numbers that govern trials, retries, the watchdog and introspection, and how far forecasts
/// may be trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Longest time between two plans while tasks run, seconds.
    pub interval_s: f64,
    /// Time between two checkpoints of an attempt, seconds; `None`: derived from the cost of a
    /// checkpoint and the rate of failures.
    pub checkpoint_every_s: Option<f64>,
    /// Steps of a trial that are not timed.
    pub warmup_steps: u32,
    /// At least how many steps of a trial are timed.
    pub timed_steps: u32,
    /// At most how many steps of a trial are timed, if a step's time is not known well before.
    pub max_timed_steps: u32,
    /// How much may be spent on trials.
    pub trial_budget: TrialBudget,
    /// A task is given up after this many failures in a row without a new checkpoint.
    pub max_failures: u32,
    /// Wait before the first retry, seconds; doubles with each failure in a row.
    pub backoff_s: f64,
    /// Silence of an attempt after which it counts as hung, seconds. Must exceed the longest step.
    pub stall_s: f64,
    /// Seconds after a kill until the devices of processes that still live are set aside.
    pub kill_grace_s: f64,
    /// Share of the time left that a new plan must save before running tasks are moved for it.
    pub min_gain: f64,
    /// Seconds that a new plan must save at least before running tasks are moved for it. The
    /// forecast of a stop and a start is wrong by seconds.
    #[serde(default = "least_gain_s", skip_serializing_if = "is_least_gain")]
    pub min_gain_s: f64,
    /// Switches that may be planned for each task.
    pub max_switches: usize,
    /// Most time that a solve may take, seconds: less if little is left to train.
    pub solver_time_limit_s: f64,
    /// The part by which a plan with switches must end earlier than the best plan without switches.
    pub min_switch_gain: f64,
    /// Seed of the solver.
    pub seed: u64,
    /// How much host memory of a machine all attempts on it may take together, bytes: the user's limit,
    /// the same for every machine. `None`: each node's own number counts.
    pub host_memory_bytes: Option<u64>,
    /// How much host memory the machine of each node has, by the node's name. A node that is not here
    /// has no limit of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub host_memory_by_node: BTreeMap<String, MachineMemory>,
    /// How many nodes a gang may take at most.
    pub max_nodes: u32,
    /// Whether nodes may join, as on a cluster.
    #[serde(skip_serializing_if = "is_yes")]
    pub pool_may_grow: bool,
    /// How several people share the devices; `None`: the run is of one person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// How wrong the forecasts of earlier runs on these devices were. It tells people how far to trust
    /// an expected end; no decision uses it.
    #[serde(skip_serializing_if = "ForecastErrors::is_empty")]
    pub earlier_errors: ForecastErrors,
    /// The description of each type of device; empty where it is not known. It says to which devices
    /// the errors of this run's forecasts belong; no decision uses it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hardware: BTreeMap<String, String>,
}

impl Policy {
    /// The least number of steps of a trial, warm-up included. If steps take seconds, a trial takes
    /// no more steps than these.
    pub(crate) fn trial_steps(&self) -> u32 {
        self.warmup_steps + self.timed_steps
    }

    /// How much host memory of the node of this name all its attempts may take together, bytes;
    /// `None`: no limit.
    pub(crate) fn host_memory_of(&self, node: &str) -> Option<u64> {
        let own = self.host_memory_by_node.get(node);
        match (self.host_memory_bytes, own) {
            (Some(limit), Some(own)) => Some(own.share_of(limit)),
            (limit, own) => limit.or(own.map(|own| own.available_bytes)),
        }
    }

    /// How much host memory an attempt on the node of this name could take at most if its machine were
    /// idle, bytes; `None`: no limit.
    pub(crate) fn most_host_memory_of(&self, node: &str) -> Option<u64> {
        let own = || self.host_memory_by_node.get(node).map(|own| own.total_bytes);
        self.host_memory_bytes.or_else(own)
    }
}

fn least_gain_s() -> f64 {
    5.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_least_gain(seconds: &f64) -> bool {
    seconds.to_bits() == least_gain_s().to_bits()
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            interval_s: 1000.0,
            checkpoint_every_s: None,
            warmup_steps: 1,
            timed_steps: 3,
            max_timed_steps: 30,
            trial_budget: TrialBudget::Full,
            max_failures: 3,
            backoff_s: 1.0,
            stall_s: 600.0,
            kill_grace_s: 10.0,
            min_gain: 0.05,
            min_gain_s: least_gain_s(),
            // The first switch of a task gains most of what switches can gain.
            max_switches: 1,
            solver_time_limit_s: 2.0,
            // Runtimes are estimates: a switch that gains less is more likely noise than time.
            min_switch_gain: 0.02,
            seed: 0,
            host_memory_bytes: None,
            host_memory_by_node: BTreeMap::new(),
            max_nodes: 1,
            pool_may_grow: true,
            sharing: None,
            earlier_errors: ForecastErrors::default(),
            hardware: BTreeMap::new(),
        }
    }
}

/// The configuration of a run. Nodes and tasks come by records of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// Whether the run only measures, or also trains.
    pub mode: Mode,
    /// What its devices are.
    pub device_kind: DeviceKind,
    /// How much each device may hold, bytes; `None`: only its own size limits it.
    #[serde(default)]
    pub device_memory_bytes: Option<u64>,
    /// The techniques to try.
    pub techniques: Vec<TechniqueRef>,
    /// The numbers that govern trials, retries, the watchdog and introspection.
    pub policy: Policy,
}

impl RunConfig {
    /// The level of a technique; managed where it isn't in the run.
    pub fn level_of(&self, technique: &str) -> Level {
        self.technique(technique).map_or(Level::Managed, |technique| technique.level)
    }

    /// How many ranks an attempt under a strategy has: at least one, also on no device.
    pub fn num_ranks(&self, strategy: &Strategy) -> u32 {
        match self.level_of(&strategy.technique) {
            Level::Managed => strategy.gpus.max(1),
            Level::BlackBox => 1,
        }
    }

    /// The registered technique of that name.
    pub fn technique(&self, name: &str) -> Option<&TechniqueRef> {
        self.techniques.iter().find(|technique| technique.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_allows_what_it_says_of_counts_techniques_and_knobs() {
        let spec = |allowed: serde_json::Value, gpu_range: serde_json::Value| -> TaskSpec {
            let spec = json!({"name": "t", "dir": "d", "steps": 1, "epochs": null,
                "gpu_range": gpu_range, "profile_key": "k", "allowed": allowed});
            serde_json::from_value(spec).unwrap()
        };
        let fsdp = |knobs: serde_json::Value| Strategy {
            technique: "fsdp".to_owned(),
            gpus: 2,
            knobs: serde_json::from_value(knobs).unwrap(),
        };
        let all = spec(json!({}), json!(null));
        assert!(all.allows(&fsdp(json!({}))) && all.allows(&fsdp(json!({"a": 1}))));
        assert!(!spec(json!({}), json!([1, 4])).allows(&fsdp(json!({}))));
        for (allowed, is_allowed) in [
            (json!({"techniques": ["ddp", "fsdp"]}), true),
            (json!({"techniques": ["ddp"]}), false),
            (json!({"techniques": ["ddp", "fsdp"], "not_techniques": ["fsdp"]}), false),
            (json!({"not_techniques": ["ddp"]}), true),
            (json!({"not_techniques": ["fsdp"]}), false),
            (json!({"knobs": {"ddp": {"a": [7]}}}), true),
        ] {
            let spec = spec(allowed.clone(), json!(null));
            assert_eq!(spec.allows(&fsdp(json!({"a": 1}))), is_allowed, "{allowed}");
        }
        let script = |one: &TaskSpec| one.allows_technique(SCRIPT);
        assert!(!script(&all), "a script's technique must be named");
        assert!(script(&spec(json!({"techniques": ["script"]}), json!(null))));
        let pinned = spec(json!({"knobs": {"fsdp": {"a": [1, 2]}}}), json!(null));
        assert!(pinned.allows(&fsdp(json!({"a": 2, "b": true}))));
        assert!(!pinned.allows(&fsdp(json!({"a": 3}))));
        assert!(!pinned.allows(&fsdp(json!({}))), "what is pinned must be there");
        assert!(pinned.allows_key(&fsdp(json!({})).key()), "before a trial no knobs are known");
    }
}
