//! What the Python face asks for, and what of it a resume needs again.

use std::num::NonZeroU64;
use std::path::PathBuf;

use saturn_core::{Profile, Trial};
use saturn_engine::{Mode, Policy, RunConfig, TaskSpec, TechniqueRef};
use serde::{Deserialize, Serialize};

use crate::devices::Pool;
use crate::error::RuntimeError;

/// A run to start: version 1 of the request that `saturn.search` and `saturn.orchestrate` make.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    version: u32,
    /// The run directory: it exists and holds the pickled tasks.
    pub run_dir: PathBuf,
    mode: Mode,
    #[serde(flatten)]
    launch: LaunchSettings,
    interval_s: f64,
    checkpoint_every_s: f64,
    solver_time_limit_s: f64,
    /// Switches that may be planned for each task; the default where absent.
    #[serde(default)]
    max_switches: Option<usize>,
    seed: u64,
    /// Silence after which an attempt counts as hung.
    #[serde(default)]
    stall_s: Option<f64>,
    /// What each device may hold.
    #[serde(default)]
    device_memory_bytes: Option<u64>,
    warmup_steps: u32,
    timed_steps: u32,
    techniques: Vec<TechniqueRef>,
    tasks: Vec<TaskRequest>,
}

/// A task of a request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskRequest {
    name: String,
    dir: String,
    steps: Option<u64>,
    epochs: Option<u64>,
    /// One where it isn't said.
    #[serde(default)]
    batches_a_step: Option<NonZeroU64>,
    gpu_range: Option<Vec<u32>>,
    profile_key: String,
    #[serde(default)]
    measured: Vec<Trial>,
}

/// How workers are launched: kept in the journal for a resume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LaunchSettings {
    /// The user's interpreter.
    pub(crate) python: String,
    /// The user's `sys.path`.
    pub(crate) python_path: Vec<String>,
    /// The user's working directory.
    pub(crate) cwd: PathBuf,
    /// Modules that the warm parent imports besides torch.
    pub(crate) preload: Vec<String>,
    /// Device count that the user asked for; `None` for all there are.
    pub(crate) devices: Option<u32>,
}

impl RunRequest {
    /// Reads a request.
    pub fn from_json(json: &str) -> Result<Self, RuntimeError> {
        let request: Self = serde_json::from_str(json)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        if request.version != 1 {
            let reason = format!("version is {}, not 1", request.version);
            return Err(RuntimeError::Request { reason });
        }
        let numbers = [
            ("interval_s", request.interval_s),
            ("checkpoint_every_s", request.checkpoint_every_s),
            ("solver_time_limit_s", request.solver_time_limit_s),
            ("stall_s", request.stall_s.unwrap_or(1.0)),
        ];
        for (name, value) in numbers {
            if !(value.is_finite() && value > 0.0) {
                let reason =
                    format!("`{name}` is {value}; it must be a positive number of seconds");
                return Err(RuntimeError::Request { reason });
            }
        }
        if request.device_memory_bytes == Some(0) {
            let reason = "`device_memory_bytes` is 0; it must be positive".to_owned();
            return Err(RuntimeError::Request { reason });
        }
        Ok(request)
    }

    /// Splits into what the engine and what the launchers need.
    ///
    /// Trials that were measured on another type of device, or under another limit of its memory,
    /// are left out.
    pub(crate) fn into_parts(
        self,
        pool: &Pool,
    ) -> Result<(RunConfig, LaunchSettings), RuntimeError> {
        let mut tasks = Vec::new();
        for task in self.tasks {
            let known = Profile { trials: task.measured };
            known.validate().map_err(|error| {
                let reason = format!("known trials of task `{}`: {error}", task.name);
                RuntimeError::Request { reason }
            })?;
            let holds_here = |trial: &Trial| {
                trial.gpu_type.as_ref().is_none_or(|gpu_type| gpu_type == pool.gpu_type())
                    && trial.device_memory_bytes == self.device_memory_bytes
            };
            tasks.push(TaskSpec {
                name: task.name,
                dir: task.dir,
                steps: task.steps,
                epochs: task.epochs,
                batches_a_step: task.batches_a_step.unwrap_or(NonZeroU64::MIN),
                gpu_range: task.gpu_range,
                profile_key: task.profile_key,
                measured: known.trials.into_iter().filter(holds_here).collect(),
            });
        }
        let defaults = Policy::default();
        let config = RunConfig {
            mode: self.mode,
            device_kind: pool.kind(),
            cluster: pool.cluster(),
            device_memory_bytes: self.device_memory_bytes,
            techniques: self.techniques,
            tasks,
            policy: Policy {
                interval_s: self.interval_s,
                checkpoint_every_s: self.checkpoint_every_s,
                solver_time_limit_s: self.solver_time_limit_s,
                max_switches: self.max_switches.unwrap_or(defaults.max_switches),
                seed: self.seed,
                warmup_steps: self.warmup_steps,
                timed_steps: self.timed_steps,
                stall_s: self.stall_s.unwrap_or(defaults.stall_s),
                ..defaults
            },
        };
        Ok((config, self.launch))
    }

    /// The device count that the user asked for.
    pub(crate) fn devices(&self) -> Option<u32> {
        self.launch.devices
    }
}
