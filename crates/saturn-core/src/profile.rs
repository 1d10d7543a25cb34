//! A profile: what trials found of each strategy, seconds a step and peak memory or why it can't
//! run, and what training found later.
//!
//! Invariants of a [`Profile`] that came through [`Profile::from_json`] or [`Profile::validate`]:
//! names are not empty, and GPU counts are at least 1. Seconds a step are finite and positive, with
//! at least one timed step. Each trial has an outcome or a measurement by training. There is at
//! most one trial for a task, technique, GPU count and knobs on the same hardware and software,
//! under the same limit of memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{ProblemError, read};
use crate::number;
use crate::object;
use crate::trained::Trained;
use crate::validate::named;

/// The knobs that a trial chose. Only the technique knows their meaning.
pub type Knobs = serde_json::Map<String, serde_json::Value>;

/// A technique, a device count and knobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Strategy {
    /// Registered name of the technique.
    pub technique: String,
    /// Number of devices.
    pub gpus: u32,
    /// The knobs of the technique.
    #[serde(default)]
    pub knobs: Knobs,
}

/// A technique on a number of devices, whatever its knobs. A trial is run for such a key, and a key
/// is excluded if it can't run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StrategyKey {
    /// Registered name of the technique.
    pub technique: String,
    /// Number of devices.
    pub gpus: u32,
}

impl Strategy {
    /// The strategy without its knobs.
    pub fn key(&self) -> StrategyKey {
        StrategyKey { technique: self.technique.clone(), gpus: self.gpus }
    }

    /// Whether it has this technique and number of devices.
    pub fn is_of(&self, key: &StrategyKey) -> bool {
        self.gpus == key.gpus && self.technique == key.technique
    }

    /// Whether both have the same technique and number of devices, whatever their knobs.
    pub fn is_like(&self, other: &Self) -> bool {
        self.gpus == other.gpus && self.technique == other.technique
    }
}

/// The outcome of a trial. Every variant is data: a strategy that can't run is not an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum TrialOutcome {
    /// It ran, and was timed.
    Measured {
        /// Seconds a step: an estimate of the mean over the task's steps, from the timed steps.
        step_s: f64,
        /// Seconds from launch to the first step: fork, build, load.
        setup_s: f64,
        /// Seconds that training stands still for a checkpoint, if measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint_s: Option<f64>,
        /// The largest memory of any rank, bytes: device memory on GPUs, resident set on CPU slots.
        peak_memory_bytes: u64,
        /// How many steps were timed.
        timed_steps: u32,
        /// The standard error of `step_s` relative to `step_s`, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        relative_error: Option<f64>,
        /// Seconds that the first steps of a launch take longer than later steps (kernels,
        /// compilation), if measured. `setup_s` does not include them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_s: Option<f64>,
        /// The standard deviation of single steps relative to `step_s`, if known. It says how much
        /// a number of training steps tell about the mean.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        variation: Option<f64>,
        /// Batches in one pass over the task's loader, if it has a length.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batches_per_epoch: Option<u64>,
        /// Seconds that an evaluation of the task's model takes, if the task has evaluations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evaluation_s: Option<f64>,
    },
    /// The technique says that it can't run this task, and why.
    NotApplicable {
        /// In the technique's words.
        reason: String,
    },
    /// It ran out of memory, or would certainly have done so.
    OutOfMemory {
        /// The allocator's message, or how much memory it needs at least.
        detail: String,
    },
    /// It raised an exception.
    Failed {
        /// The exception, in one line.
        error: String,
        /// The worker's traceback; empty if the worker died without one.
        traceback: String,
    },
}

/// What is known of a strategy: the outcome of its trial, the result of training, or both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the task.
    pub task: String,
    /// The key of all tasks that perform like this one by construction, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_key: Option<String>,
    /// The type of device that it ran on, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// How much each device could hold, bytes; absent if only the device's size limited it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory_bytes: Option<u64>,
    /// The strategy, with the knobs that the technique chose.
    #[serde(flatten)]
    pub strategy: Strategy,
    /// The outcome of its trial; absent if the strategy trained without a trial, on an estimate.
    #[serde(flatten)]
    pub outcome: Option<TrialOutcome>,
    /// The result of training. Its seconds a step have precedence over the trial's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained: Option<Trained>,
    /// The hardware and software that it ran on, and when.
    #[serde(flatten)]
    pub origin: Origin,
}

impl Trial {
    /// When the strategy was last measured, seconds of Unix time, if known.
    pub fn newest_unix_s(&self) -> Option<u64> {
        let trained_unix_s = self.trained.and_then(|trained| trained.measured_unix_s);
        trained_unix_s.max(self.origin.measured_unix_s)
    }
}

/// The hardware and software that a trial ran on, in more detail than a type of device, and when. A
/// later run needs this to know whether the trial is valid for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The devices: a GPU's name, or a processor's name and how it is cut into slots. Absent if the
    /// trial is valid on any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// The versions of software, by name. Absent if the trial is valid for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<BTreeMap<String, String>>,
    /// For a gang on several nodes, the number of devices of the largest node then. The trial is
    /// valid only where the largest node has as many. Absent if the gang fitted one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_gpus: Option<u32>,
    /// When the trial ended, seconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_unix_s: Option<u64>,
}

/// The trials of a workload, as `profile.json` holds them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// The trials in the order in which they ended.
    pub trials: Vec<Trial>,
}

/// The version that [`Profile::to_json`] writes.
const VERSION: u32 = 1;

impl Profile {
    /// Reads a profile file and checks it. Refuses unknown fields by name.
    pub fn from_json(text: &str) -> Result<Self, ProblemError> {
        let file: ProfileFile = read(text)?;
        if file.version != VERSION {
            return Err(ProblemError::Value {
                at: "version".to_owned(),
                found: file.version.to_string(),
                expected: "1, the only version of profiles",
            });
        }
        let trials: Result<_, _> = file
            .trials
            .into_iter()
            .enumerate()
            .map(|(index, trial)| trial.checked(index))
            .collect();
        let profile = Self { trials: trials? };
        profile.validate()?;
        Ok(profile)
    }

    /// Checks the invariants of this module that types do not express.
    pub fn validate(&self) -> Result<(), ProblemError> {
        let mut seen = BTreeMap::new();
        for (index, trial) in self.trials.iter().enumerate() {
            let at = |field: &str| format!("trials[{index}].{field}");
            let strategy = &trial.strategy;
            named(&trial.task, || at("task"))?;
            named(&strategy.technique, || at("technique"))?;
            number::check_gpus(|| at("gpus"), strategy.gpus)?;
            if let Some(trained) = trial.trained {
                trained.check(|field| at(&format!("trained.{field}")))?;
            } else if trial.outcome.is_none() {
                return Err(missing(at("outcome"), "what came of the trial, or `trained`"));
            }
            if let Some(TrialOutcome::Measured {
                step_s,
                setup_s,
                checkpoint_s,
                timed_steps,
                relative_error,
                warmup_s,
                variation,
                evaluation_s,
                ..
            }) = trial.outcome
            {
                number::check_runtime(|| at("step_s"), step_s)?;
                number::check_cost(|| at("setup_s"), setup_s)?;
                number::check_cost(|| at("checkpoint_s"), checkpoint_s.unwrap_or(0.0))?;
                number::check_ratio(|| at("relative_error"), relative_error.unwrap_or(0.0))?;
                number::check_cost(|| at("warmup_s"), warmup_s.unwrap_or(0.0))?;
                number::check_ratio(|| at("variation"), variation.unwrap_or(0.0))?;
                number::check_cost(|| at("evaluation_s"), evaluation_s.unwrap_or(0.0))?;
                if timed_steps == 0 {
                    return Err(ProblemError::Value {
                        at: at("timed_steps"),
                        found: "0".to_owned(),
                        expected: "at least 1",
                    });
                }
            }
            let knobs = serde_json::Value::Object(strategy.knobs.clone()).to_string();
            let name = format!("{} {}x{} {knobs}", trial.task, strategy.technique, strategy.gpus);
            let here = format!("trials[{index}]");
            let Origin { hardware, software, node_gpus, .. } = &trial.origin;
            let origin = (hardware, software, node_gpus);
            let place = (&trial.profile_key, &trial.gpu_type, trial.device_memory_bytes, origin);
            if let Some(first) = seen.insert((name.clone(), place), here.clone()) {
                return Err(ProblemError::DuplicateName { at: here, name, first });
            }
        }
        Ok(())
    }

    /// The profile as a file that [`Profile::from_json`] reads.
    pub fn to_json(&self) -> String {
        let file = serde_json::json!({ "version": VERSION, "trials": self.trials });
        format!("{file:#}\n")
    }
}

fn missing(at: String, expected: &'static str) -> ProblemError {
    ProblemError::Value { at, found: "missing".to_owned(), expected }
}

fn first_version() -> u32 {
    VERSION
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    #[serde(default = "first_version")]
    version: u32,
    #[serde(deserialize_with = "object::list")]
    trials: Vec<TrialFile>,
}

/// A trial in a file: one flat object with the fields of the strategy and of the outcome.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialFile {
    task: String,
    profile_key: Option<String>,
    gpu_type: Option<String>,
    device_memory_bytes: Option<u64>,
    technique: String,
    #[serde(deserialize_with = "number::gpus")]
    gpus: u32,
    #[serde(default)]
    knobs: Knobs,
    outcome: Option<OutcomeFile>,
    trained: Option<Trained>,
    step_s: Option<f64>,
    setup_s: Option<f64>,
    checkpoint_s: Option<f64>,
    peak_memory_bytes: Option<u64>,
    timed_steps: Option<u32>,
    relative_error: Option<f64>,
    warmup_s: Option<f64>,
    variation: Option<f64>,
    batches_per_epoch: Option<u64>,
    evaluation_s: Option<f64>,
    reason: Option<String>,
    detail: Option<String>,
    error: Option<String>,
    traceback: Option<String>,
    hardware: Option<String>,
    software: Option<BTreeMap<String, String>>,
    node_gpus: Option<u32>,
    measured_unix_s: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeFile {
    Measured,
    NotApplicable,
    OutOfMemory,
    Failed,
}

impl OutcomeFile {
    fn only_beside(self) -> &'static str {
        match self {
            Self::Measured => "only beside the outcome `measured`",
            Self::NotApplicable => "only beside the outcome `not_applicable`",
            Self::OutOfMemory => "only beside the outcome `out_of_memory`",
            Self::Failed => "only beside the outcome `failed`",
        }
    }
}

impl TrialFile {
    /// The trial, if it has exactly the fields of its outcome.
    fn checked(self, index: usize) -> Result<Trial, ProblemError> {
        let present = [
            ("step_s", OutcomeFile::Measured, self.step_s.is_some()),
            ("setup_s", OutcomeFile::Measured, self.setup_s.is_some()),
            ("checkpoint_s", OutcomeFile::Measured, self.checkpoint_s.is_some()),
            ("peak_memory_bytes", OutcomeFile::Measured, self.peak_memory_bytes.is_some()),
            ("timed_steps", OutcomeFile::Measured, self.timed_steps.is_some()),
            ("relative_error", OutcomeFile::Measured, self.relative_error.is_some()),
            ("warmup_s", OutcomeFile::Measured, self.warmup_s.is_some()),
            ("variation", OutcomeFile::Measured, self.variation.is_some()),
            ("batches_per_epoch", OutcomeFile::Measured, self.batches_per_epoch.is_some()),
            ("evaluation_s", OutcomeFile::Measured, self.evaluation_s.is_some()),
            ("reason", OutcomeFile::NotApplicable, self.reason.is_some()),
            ("detail", OutcomeFile::OutOfMemory, self.detail.is_some()),
            ("error", OutcomeFile::Failed, self.error.is_some()),
            ("traceback", OutcomeFile::Failed, self.traceback.is_some()),
        ];
        if let Some((field, owner, _)) =
            present.iter().find(|(_, owner, present)| *present && Some(*owner) != self.outcome)
        {
            return Err(ProblemError::Value {
                at: format!("trials[{index}].{field}"),
                found: "present".to_owned(),
                expected: owner.only_beside(),
            });
        }
        let missing = |field: &str| {
            missing(format!("trials[{index}].{field}"), "the field, as this outcome needs it")
        };
        let outcome = match self.outcome {
            None => None,
            Some(OutcomeFile::Measured) => Some(TrialOutcome::Measured {
                step_s: self.step_s.ok_or_else(|| missing("step_s"))?,
                setup_s: self.setup_s.ok_or_else(|| missing("setup_s"))?,
                checkpoint_s: self.checkpoint_s,
                peak_memory_bytes: self
                    .peak_memory_bytes
                    .ok_or_else(|| missing("peak_memory_bytes"))?,
                timed_steps: self.timed_steps.ok_or_else(|| missing("timed_steps"))?,
                relative_error: self.relative_error,
                warmup_s: self.warmup_s,
                variation: self.variation,
                batches_per_epoch: self.batches_per_epoch,
                evaluation_s: self.evaluation_s,
            }),
            Some(OutcomeFile::NotApplicable) => Some(TrialOutcome::NotApplicable {
                reason: self.reason.ok_or_else(|| missing("reason"))?,
            }),
            Some(OutcomeFile::OutOfMemory) => Some(TrialOutcome::OutOfMemory {
                detail: self.detail.ok_or_else(|| missing("detail"))?,
            }),
            Some(OutcomeFile::Failed) => Some(TrialOutcome::Failed {
                error: self.error.ok_or_else(|| missing("error"))?,
                traceback: self.traceback.unwrap_or_default(),
            }),
        };
        let strategy = Strategy {
            technique: self.technique.clone(),
            gpus: self.gpus,
            knobs: self.knobs.clone(),
        };
        let Self { task, profile_key, gpu_type, device_memory_bytes, trained, .. } = self;
        let Self { hardware, software, node_gpus, measured_unix_s, .. } = self;
        let origin = Origin { hardware, software, node_gpus, measured_unix_s };
        Ok(Trial {
            task,
            profile_key,
            gpu_type,
            device_memory_bytes,
            strategy,
            outcome,
            trained,
            origin,
        })
    }
}
