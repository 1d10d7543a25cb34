//! What the Python face asks for, and what of it a resume needs again.

use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};

use saturn_core::Profile;
use saturn_engine::{Machines, Mode, NewTask, Policy, RunConfig, TechniqueRef, TrialBudget};
use serde::{Deserialize, Serialize};

use crate::cluster::Exchange;
use crate::disk::Disk;
use crate::error::RuntimeError;
use crate::hardware::Hardware;
use crate::store::{Platform, Shelf, StoreSettings};

/// A run to start: version 1 of the request that `saturn.search` and `saturn.orchestrate` make.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    version: u32,
    /// The run directory: it exists and holds the pickled tasks.
    pub run_dir: PathBuf,
    mode: Mode,
    /// The user's interpreter.
    python: String,
    /// The user's `sys.path`.
    python_path: Vec<String>,
    /// The user's working directory.
    cwd: PathBuf,
    /// Modules that the warm parent imports besides torch.
    preload: Vec<String>,
    /// Device count; `None` for all that are free.
    devices: Option<u32>,
    /// Whether to wait for devices that other runs hold.
    #[serde(default)]
    wait: bool,
    /// Where this machine's device locks are, where that is not the usual place.
    #[serde(default)]
    locks_dir: Option<PathBuf>,
    interval_s: f64,
    #[serde(default)]
    checkpoint_every_s: Option<f64>,
    solver_time_limit_s: f64,
    /// Switches that may be planned for each task; the default where absent.
    #[serde(default)]
    max_switches: Option<usize>,
    /// How many nodes a task may take at once; all where absent.
    #[serde(default)]
    nodes_per_task: Option<NonZeroU32>,
    seed: u64,
    /// Silence after which an attempt counts as hung.
    #[serde(default)]
    stall_s: Option<f64>,
    /// Time from a kill after which processes that still live cost their devices.
    #[serde(default)]
    kill_grace_s: Option<f64>,
    /// Seconds that stopping running tasks must save; the default where absent.
    #[serde(default)]
    min_gain_s: Option<f64>,
    /// What each device may hold.
    #[serde(default)]
    device_memory_bytes: Option<u64>,
    /// What all attempts together may take of the machine's own memory; what is available where
    /// absent.
    #[serde(default)]
    host_memory_bytes: Option<u64>,
    warmup_steps: u32,
    timed_steps: u32,
    /// At most how many steps a trial times; the default where absent.
    #[serde(default)]
    max_timed_steps: Option<u32>,
    /// How much may be spent on trials; the default where absent.
    #[serde(default)]
    trial_budget: TrialBudget,
    techniques: Vec<TechniqueRef>,
    /// What it has to do with the store; `None`: nothing.
    #[serde(default)]
    store: Option<StoreSettings>,
    /// Seconds that the caller has spent on this run before.
    #[serde(default)]
    prepared_s: f64,
    /// The tasks to begin with.
    tasks: Vec<NewTask>,
    /// Whether more may come: the run then goes on until it is told to close.
    #[serde(default)]
    keep_open: bool,
    /// The disk to use: tests make it fail.
    #[serde(skip)]
    pub disk: Disk,
    /// The way to the agents of a cluster, on whose devices it is to run; `None`: on this machine's.
    #[serde(skip)]
    pub cluster: Option<Exchange>,
}

/// How workers are launched: kept in the journal for a resume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LaunchSettings {
    /// The user's interpreter.
    pub(crate) python: String,
    /// The user's `sys.path`.
    pub(crate) python_path: Vec<String>,
    /// The user's working directory.
    pub(crate) cwd: PathBuf,
    /// Modules that the warm parent imports besides torch.
    pub(crate) preload: Vec<String>,
    /// Device count that the user asked for; `None` for all that are free.
    pub(crate) devices: Option<u32>,
    /// Where device locks are, where that is not the usual place.
    #[serde(default)]
    pub(crate) locks_dir: Option<PathBuf>,
    /// A name of this run that no other run ever had: workers carry it in their environment.
    #[serde(default)]
    pub(crate) run_id: String,
    /// What it has to do with the store.
    #[serde(default)]
    pub(crate) store: Option<StoreSettings>,
    /// What the user allows all attempts together to take of a machine's own memory; `None`: what is
    /// available when a process takes the run up.
    #[serde(default)]
    pub(crate) host_memory_bytes: Option<u64>,
    /// What its trials hold for, where that is known.
    #[serde(default)]
    pub(crate) platform: Option<Platform>,
}

impl LaunchSettings {
    /// What the machines are that this process has for the run.
    pub(crate) fn machines(&self, hardware: &Hardware, is_cluster: bool) -> Machines {
        Machines {
            device_kind: hardware.kind,
            host_memory_bytes: self.host_memory_bytes.or(hardware.host_memory_bytes),
            pool_may_grow: is_cluster,
        }
    }

    /// The run's part of the store, where it has one.
    pub(crate) fn shelf(&self) -> Option<Shelf> {
        Shelf::open(self.store.as_ref()?, self.platform.clone()?)
    }
}

/// What a request asks of whom.
pub(crate) struct Parts {
    pub(crate) config: RunConfig,
    pub(crate) settings: LaunchSettings,
    pub(crate) tasks: Vec<NewTask>,
    pub(crate) keep_open: bool,
}

impl RunRequest {
    /// Reads a request.
    pub fn from_json(json: &str) -> Result<Self, RuntimeError> {
        let malformed = |reason: String| RuntimeError::Request { reason };
        let mut request: Self =
            serde_json::from_str(json).map_err(|error| malformed(error.to_string()))?;
        if request.version != 1 {
            return Err(malformed(format!("version is {}, not 1", request.version)));
        }
        let numbers = [
            ("interval_s", request.interval_s),
            ("checkpoint_every_s", request.checkpoint_every_s.unwrap_or(1.0)),
            ("solver_time_limit_s", request.solver_time_limit_s),
            ("stall_s", request.stall_s.unwrap_or(1.0)),
            ("kill_grace_s", request.kill_grace_s.unwrap_or(1.0)),
        ];
        for (name, value) in numbers {
            if !(value.is_finite() && value > 0.0) {
                let reason =
                    format!("`{name}` is {value}; it must be a positive number of seconds");
                return Err(malformed(reason));
            }
        }
        if let TrialBudget::Seconds(budget_s) = request.trial_budget
            && !(budget_s.is_finite() && budget_s > 0.0)
        {
            let reason = format!(
                "`trial_budget` is {budget_s}; it must be a positive number of device-seconds"
            );
            return Err(malformed(reason));
        }
        if request.device_memory_bytes == Some(0) {
            return Err(malformed("`device_memory_bytes` is 0; it must be positive".to_owned()));
        }
        if request.host_memory_bytes == Some(0) {
            return Err(malformed("`host_memory_bytes` is 0; it must be positive".to_owned()));
        }
        check_tasks(&mut request.tasks, request.device_memory_bytes).map_err(malformed)?;
        Ok(request)
    }

    /// Splits into what the engine and what the launcher need.
    pub(crate) fn into_parts(self, hardware: &Hardware) -> Result<Parts, RuntimeError> {
        let platform = self
            .store
            .as_ref()
            .and_then(|store| Platform::of(hardware, &self.python_path, &store.techniques));
        let defaults = Policy::default();
        let policy = Policy {
            interval_s: self.interval_s,
            checkpoint_every_s: self.checkpoint_every_s,
            solver_time_limit_s: self.solver_time_limit_s,
            max_switches: self.max_switches.unwrap_or(defaults.max_switches),
            max_nodes: self.nodes_per_task.map_or(u32::MAX, NonZeroU32::get),
            seed: self.seed,
            warmup_steps: self.warmup_steps,
            timed_steps: self.timed_steps,
            max_timed_steps: self
                .max_timed_steps
                .unwrap_or(defaults.max_timed_steps)
                .max(self.timed_steps),
            trial_budget: self.trial_budget,
            host_memory_bytes: self.host_memory_bytes.or(hardware.host_memory_bytes),
            stall_s: self.stall_s.unwrap_or(defaults.stall_s),
            kill_grace_s: self.kill_grace_s.unwrap_or(defaults.kill_grace_s),
            min_gain_s: self.min_gain_s.unwrap_or(defaults.min_gain_s),
            pool_may_grow: self.cluster.is_some(),
            ..defaults
        };
        let config = RunConfig {
            mode: self.mode,
            device_kind: hardware.kind,
            device_memory_bytes: self.device_memory_bytes,
            techniques: self.techniques,
            policy,
        };
        let settings = LaunchSettings {
            python: self.python,
            python_path: self.python_path,
            cwd: self.cwd,
            preload: self.preload,
            devices: self.devices,
            locks_dir: self.locks_dir,
            run_id: new_run_id()?,
            store: self.store,
            host_memory_bytes: self.host_memory_bytes,
            platform,
        };
        Ok(Parts { config, settings, tasks: self.tasks, keep_open: self.keep_open })
    }

    /// The device count that the user asked for.
    pub(crate) fn devices(&self) -> Option<u32> {
        self.devices
    }

    /// Seconds that the caller has spent on this run before.
    pub(crate) fn prepared_s(&self) -> f64 {
        self.prepared_s
    }

    /// Whether to wait for devices that other runs hold.
    pub(crate) fn waits(&self) -> bool {
        self.wait
    }

    /// Where device locks are, where that is not the usual place.
    pub(crate) fn locks_dir(&self) -> Option<&Path> {
        self.locks_dir.as_deref()
    }
}

/// A name that no other run has.
pub(crate) fn new_run_id() -> Result<String, RuntimeError> {
    let path = "/proc/sys/kernel/random/uuid";
    let id = std::fs::read_to_string(path).map_err(RuntimeError::file("read", path))?;
    Ok(id.trim().to_owned())
}

/// Checks what of new tasks the engine takes on trust, and leaves out trials that were measured under
/// another limit of device memory or as the task does not allow. The error says what is wrong.
pub(crate) fn check_tasks(
    tasks: &mut [NewTask],
    device_memory_bytes: Option<u64>,
) -> Result<(), String> {
    for task in tasks {
        let spec = &mut task.spec;
        let mut parts = Path::new(&spec.dir).components();
        if spec.dir.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!(
                "directory `{}` of task `{}` is not within the run directory",
                spec.dir, spec.name
            ));
        }
        let known = Profile { trials: std::mem::take(&mut spec.measured) };
        known
            .validate()
            .map_err(|error| format!("known trials of task `{}`: {error}", spec.name))?;
        let mut known = known.trials;
        known.retain(|trial| {
            trial.device_memory_bytes == device_memory_bytes && spec.allows(&trial.strategy)
        });
        spec.measured = known;
    }
    Ok(())
}
