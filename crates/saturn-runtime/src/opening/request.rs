//! The request of the Python face, and the part of it that a resume needs again.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use saturn_engine::{Mode, NewTask, Policy, RunConfig, TechniqueRef, TrialBudget};
use saturn_store::{Disk, Platform};
use serde::Deserialize;

use crate::cluster::exchange::Exchange;
use crate::devices::hardware::Hardware;
use crate::keeping::shelf::StoreSettings;
use crate::launching::settings::LaunchSettings;
use crate::opening::shares::{Quotas, Rules, Shares};
use crate::run_files::new_tasks::check_tasks;
use crate::system::error::RuntimeError;
use crate::system::run_id::new_run_id;

/// A request to start a run, as `saturn.search` and `saturn.orchestrate` write it (version 1).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    version: u32,
    /// The run directory, which exists and holds the pickled tasks.
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
    /// How many devices to use; `None`: all that are free.
    devices: Option<u32>,
    /// Whether to wait for devices that other runs hold.
    #[serde(default)]
    wait: bool,
    /// The directory of this machine's device locks, if not the usual one.
    #[serde(default)]
    locks_dir: Option<PathBuf>,
    interval_s: f64,
    #[serde(default)]
    checkpoint_every_s: Option<f64>,
    solver_time_limit_s: f64,
    /// How many switches may be planned for each task; `None`: the default.
    #[serde(default)]
    max_switches: Option<usize>,
    /// How many nodes a task may use at once; `None`: all.
    #[serde(default)]
    nodes_per_task: Option<NonZeroU32>,
    seed: u64,
    /// The silence after which an attempt counts as hung, seconds.
    #[serde(default)]
    stall_s: Option<f64>,
    /// How long after a kill a process may live before its devices are set aside, seconds.
    #[serde(default)]
    kill_grace_s: Option<f64>,
    /// The seconds that a new plan must save before it may stop running tasks; `None`: the default.
    #[serde(default)]
    min_gain_s: Option<f64>,
    /// How much each device may hold, bytes.
    #[serde(default)]
    device_memory_bytes: Option<u64>,
    /// How much of a machine's memory all attempts together may take, bytes; `None`: as much as is
    /// available.
    #[serde(default)]
    host_memory_bytes: Option<u64>,
    warmup_steps: u32,
    timed_steps: u32,
    /// The most steps that a trial times; `None`: the default.
    #[serde(default)]
    max_timed_steps: Option<u32>,
    /// How much may be spent on trials; the default where absent.
    #[serde(default)]
    trial_budget: TrialBudget,
    techniques: Vec<TechniqueRef>,
    /// How the run uses the store; `None`: not at all.
    #[serde(default)]
    store: Option<StoreSettings>,
    /// Seconds that the caller has already spent on this run.
    #[serde(default)]
    prepared_s: f64,
    /// The tasks to begin with.
    tasks: Vec<NewTask>,
    /// Whether more tasks may come. The run then goes on until a person closes it.
    #[serde(default)]
    keep_open: bool,
    /// For how long ranks train on if this process dies, until another resumes the run, seconds.
    /// `None`: they end with it. Means nothing on a cluster.
    #[serde(default)]
    outlives_s: Option<f64>,
    /// The directory at which other people of this machine reach the run, if it is shared with them.
    #[serde(default)]
    door: Option<PathBuf>,
    /// How large the shares of these people of the machine are, by login name. Others have 1.
    #[serde(default)]
    shares: Shares,
    /// How many devices these people's tasks may hold at once, by login name. Others may hold all.
    #[serde(default)]
    quotas: Quotas,
    /// The disk to use; tests make it fail.
    #[serde(skip)]
    pub disk: Disk,
    /// The exchange with the agents of a cluster, whose devices the run uses; `None`: this
    /// machine's devices.
    #[serde(skip)]
    pub cluster: Option<Exchange>,
}

/// A request, split by who needs which part.
pub(crate) struct Parts {
    pub(crate) config: RunConfig,
    pub(crate) settings: LaunchSettings,
    pub(crate) tasks: Vec<NewTask>,
    pub(crate) keep_open: bool,
    pub(crate) rules: Rules,
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
        let refused = |reason: String| RuntimeError::Refused { reason };
        let numbers = [
            ("interval_s", request.interval_s),
            ("checkpoint_every_s", request.checkpoint_every_s.unwrap_or(1.0)),
            ("solver_time_limit_s", request.solver_time_limit_s),
            ("stall_s", request.stall_s.unwrap_or(1.0)),
            ("kill_grace_s", request.kill_grace_s.unwrap_or(1.0)),
            ("outlives_s", request.outlives_s.unwrap_or(1.0)),
        ];
        for (name, value) in numbers {
            if !(value.is_finite() && value > 0.0) {
                let reason =
                    format!("`{name}` is {value}; it must be a positive number of seconds");
                return Err(refused(reason));
            }
        }
        if let TrialBudget::Seconds(budget_s) = request.trial_budget
            && !(budget_s.is_finite() && budget_s > 0.0)
        {
            let reason = format!(
                "`trial_budget` is {budget_s}; it must be a positive number of device-seconds"
            );
            return Err(refused(reason));
        }
        if request.device_memory_bytes == Some(0) {
            return Err(refused("`device_memory_bytes` is 0; it must be positive".to_owned()));
        }
        if request.host_memory_bytes == Some(0) {
            return Err(refused("`host_memory_bytes` is 0; it must be positive".to_owned()));
        }
        check_tasks(&mut request.tasks, request.device_memory_bytes).map_err(refused)?;
        Ok(request)
    }

    /// Splits the request into what the engine needs and what the launcher needs.
    pub(crate) fn into_parts(self, hardware: &Hardware) -> Result<Parts, RuntimeError> {
        let platform = self.store.as_ref().and_then(|store| {
            Platform::of(hardware.in_words(), &self.python_path, &store.techniques)
        });
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
            host_memory_bytes: self.host_memory_bytes,
            host_memory_by_node: hardware.host_memory_by_node(),
            stall_s: self.stall_s.unwrap_or(defaults.stall_s),
            kill_grace_s: self.kill_grace_s.unwrap_or(defaults.kill_grace_s),
            min_gain_s: self.min_gain_s.unwrap_or(defaults.min_gain_s),
            pool_may_grow: self.cluster.is_some(),
            hardware: hardware.in_words(),
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
            run_dir: None,
            store: self.store,
            host_memory_bytes: self.host_memory_bytes,
            outlives_s: self.outlives_s.filter(|_| self.cluster.is_none()),
            door: self.door,
            shared_gpus: BTreeSet::new(),
            platform,
        };
        Ok(Parts {
            config,
            settings,
            tasks: self.tasks,
            keep_open: self.keep_open,
            rules: Rules { shares: Some(self.shares), quotas: Some(self.quotas) },
        })
    }

    /// How many devices the user asked for; `None`: all that are free.
    pub(crate) fn devices(&self) -> Option<u32> {
        self.devices
    }

    /// Seconds that the caller has already spent on this run.
    pub(crate) fn prepared_s(&self) -> f64 {
        self.prepared_s
    }

    /// Whether to wait for devices that other runs hold.
    pub(crate) fn waits(&self) -> bool {
        self.wait
    }

    /// The directory of device locks, if not the usual one.
    pub(crate) fn locks_dir(&self) -> Option<&Path> {
        self.locks_dir.as_deref()
    }
}
