//! Seconds a step by model, technique and device count, read from a table that somebody measured or
//! from a profile that a run recorded.
//!
//! Only strategies within one node are kept. If a table has several rows for a technique on the
//! same number of devices (other knobs), the fastest counts. Missing values are not filled in.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{ProblemError, Profile, Trial, TrialOutcome};
use thiserror::Error;

/// Seconds a step on so many devices.
pub type Curve = BTreeMap<u32, f64>;

/// The measurements of one model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    /// Seconds a step by technique and device count.
    pub step_s: BTreeMap<String, Curve>,
    /// The largest memory of any rank, bytes, by technique and device count, where it was measured:
    /// of the measurement that counts.
    pub peak_bytes: BTreeMap<String, BTreeMap<u32, u64>>,
    /// Seconds from launch to the first step, if measured: the mean of its trials.
    pub load_s: Option<f64>,
    /// Seconds of a checkpoint, if measured: the mean of its trials.
    pub save_s: Option<f64>,
}

impl Model {
    /// Takes in a strategy. Of several measurements of it the fastest counts.
    pub(crate) fn add(&mut self, technique: &str, gpus: u32, step_s: f64, peak: Option<u64>) {
        let curve = self.step_s.entry(technique.to_owned()).or_default();
        if curve.get(&gpus).is_some_and(|known| *known <= step_s) {
            return;
        }
        curve.insert(gpus, step_s);
        let peaks = self.peak_bytes.entry(technique.to_owned()).or_default();
        match peak {
            Some(peak) => peaks.insert(gpus, peak),
            None => peaks.remove(&gpus),
        };
    }
}

/// Models by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    models: BTreeMap<String, Model>,
    /// The type of device of all measurements, if the file names it.
    gpu_type: Option<String>,
}

/// Why a table can't be read.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TableError {
    /// A column is missing.
    #[error(
        "line 1: the column `{column}` is missing; expected at least \
         `model,gpus,nodes,technique,step_s`"
    )]
    Column {
        /// Its name.
        column: &'static str,
    },
    /// A field does not fit its column.
    #[error("line {line}: `{column}` is `{found}`; expected {expected}")]
    Field {
        /// The line, from 1.
        line: usize,
        /// Its column.
        column: &'static str,
        /// The found text.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A profile can't be read.
    #[error(transparent)]
    Profile(#[from] ProblemError),
    /// A profile of several types of device.
    #[error("it has trials on several types of device ({types}); expected the profile of one type")]
    Types {
        /// Their names.
        types: String,
    },
    /// It has no usable measurement.
    #[error("it has no measured step time of a strategy within one node")]
    Empty,
}

impl Table {
    /// Reads a table (CSV without quotes) with the columns `model`, `gpus`, `nodes`, `technique`
    /// and `step_s`. Other columns are ignored, and so are rows of more than one node.
    pub fn from_csv(text: &str) -> Result<Self, TableError> {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
        let column = |column: &'static str| {
            let place = names.iter().position(|one| *one == column);
            place.ok_or(TableError::Column { column })
        };
        let (model, gpus, nodes) = (column("model")?, column("gpus")?, column("nodes")?);
        let (technique, step_s) = (column("technique")?, column("step_s")?);
        let gpu_type = names.iter().position(|one| *one == "gpu_type");
        let mut types = BTreeSet::new();
        let mut table = Self::default();
        for (index, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let field = |place: usize| fields.get(place).copied().unwrap_or_default();
            let wrong = |column, place, expected| TableError::Field {
                line: index + 2,
                column,
                found: field(place).to_owned(),
                expected,
            };
            if field(nodes) != "1" {
                continue;
            }
            let number = field(gpus).parse::<u32>().ok().filter(|gpus| *gpus > 0);
            let gpus = number.ok_or_else(|| wrong("gpus", gpus, "a whole number from 1 on"))?;
            let seconds = field(step_s).parse::<f64>().ok();
            let seconds = seconds.filter(|step_s| step_s.is_finite() && *step_s > 0.0);
            let seconds = seconds.ok_or_else(|| wrong("step_s", step_s, "positive seconds"))?;
            let known = table.models.entry(field(model).to_owned()).or_default();
            known.add(saturns_name(field(technique)), gpus, seconds, None);
            types.extend(gpu_type.map(|place| field(place).to_owned()));
        }
        table.gpu_type = types.pop_first().filter(|_| types.is_empty());
        table.filled()
    }

    /// Reads a profile, as a run and `saturn profile export` write it. A model goes by the names of
    /// its tasks and by its profile key.
    pub fn from_profile(text: &str) -> Result<Self, TableError> {
        let profile = Profile::from_json(text)?;
        let mut types: Vec<&str> =
            profile.trials.iter().filter_map(|one| one.gpu_type.as_deref()).collect();
        types.sort_unstable();
        types.dedup();
        if types.len() > 1 {
            return Err(TableError::Types { types: types.join(", ") });
        }
        let gpu_type = types.first().map(|name| (*name).to_owned());
        let mut table = Self { gpu_type, ..Self::default() };
        for trial in profile.trials.iter().filter(|one| one.origin.node_gpus.is_none()) {
            for name in std::iter::once(&trial.task).chain(&trial.profile_key) {
                table.add_trial(name, trial);
            }
        }
        let mean_of = |trials: &dyn Fn(&Trial) -> Option<f64>, name: &str| {
            let is_of = |one: &&Trial| one.task == name || one.profile_key.as_deref() == Some(name);
            let all: Vec<f64> = profile.trials.iter().filter(is_of).filter_map(trials).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        for (name, model) in &mut table.models {
            model.load_s = mean_of(&setup_s, name);
            model.save_s = mean_of(&checkpoint_s, name);
        }
        table.filled()
    }

    fn add_trial(&mut self, name: &str, trial: &Trial) {
        let step_s = match (&trial.trained, &trial.outcome) {
            (Some(trained), _) => trained.step_s,
            (None, Some(TrialOutcome::Measured { step_s, .. })) => *step_s,
            (None, _) => return,
        };
        let peak = match &trial.outcome {
            Some(TrialOutcome::Measured { peak_memory_bytes, .. }) => Some(*peak_memory_bytes),
            _ => None,
        };
        let model = self.models.entry(name.to_owned()).or_default();
        model.add(&trial.strategy.technique, trial.strategy.gpus, step_s, peak);
    }

    fn filled(self) -> Result<Self, TableError> {
        if self.models.is_empty() { Err(TableError::Empty) } else { Ok(self) }
    }

    /// The type of device that all measurements are of, if the file names it.
    pub fn gpu_type(&self) -> Option<&str> {
        self.gpu_type.as_deref()
    }

    /// The model of a name.
    pub fn model(&self, name: &str) -> Option<&Model> {
        self.models.get(name)
    }

    /// All models, by name.
    pub fn models(&self) -> impl Iterator<Item = (&str, &Model)> {
        self.models.iter().map(|(name, model)| (name.as_str(), model))
    }
}

fn setup_s(trial: &Trial) -> Option<f64> {
    match trial.outcome {
        Some(TrialOutcome::Measured { setup_s, .. }) => Some(setup_s),
        _ => None,
    }
}

fn checkpoint_s(trial: &Trial) -> Option<f64> {
    match trial.outcome {
        Some(TrialOutcome::Measured { checkpoint_s, .. }) => checkpoint_s,
        _ => None,
    }
}

/// Saturn's name for a technique of `benches/profile/a800-measured.csv`.
fn saturns_name(technique: &str) -> &str {
    match technique {
        "zero-dp" => "fsdp",
        "zero-offload" => "offload",
        other if other.starts_with("3d:") => "tensor",
        other => other,
    }
}
