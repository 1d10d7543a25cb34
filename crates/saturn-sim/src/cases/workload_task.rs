//! The tasks of a workload: each entry is one task or several tasks that are alike.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use saturn_core::names::escape_terminal;
use serde::Deserialize;

use crate::cases::case::Job;
use crate::cases::script::{Arrivals, Pace};
use crate::cases::workload_error::{MOST_SECONDS, WorkloadError, quoted, seconds, value};
use crate::cases::workload_file::{MOST_GPUS, MOST_TASKS, one};
use crate::workloads::table::{Model, Table};
use crate::workloads::truth::Evaluating;

/// More steps are a typing error.
const MOST_STEPS: u64 = 1_000_000_000_000;

/// More tasks an hour are a typing error, and fewer a day.
const MOST_AN_HOUR: f64 = 1e6;
const LEAST_A_DAY: f64 = 0.01;

/// What stands before the model's name in the name of a group, and what may stand behind it.
const MODEL: &str = "model ";
const EVALUATED: &str = ", evaluated";

/// The name of the model that all tasks of a group have; `None` if its tasks have step times of
/// their own.
pub(crate) fn model_of(group: &str) -> Option<&str> {
    let name = group.strip_prefix(MODEL)?;
    Some(name.rsplit_once(EVALUATED).map_or(name, |(name, _)| name))
}

/// A task as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskFile {
    pub(crate) name: String,
    #[serde(default = "one")]
    count: usize,
    steps: u64,
    model: Option<String>,
    step_s: Option<BTreeMap<String, BTreeMap<String, f64>>>,
    gpus: Option<Vec<u32>>,
    asks_gpus: Option<u32>,
    #[serde(default)]
    arrive_s: f64,
    arrivals: Option<ArrivalsFile>,
    pub(crate) owner: Option<String>,
    evaluate: Option<EvaluateFile>,
}

/// When the entry's tasks evaluate their models, beside at their ends.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvaluateFile {
    every_steps: Option<u64>,
    takes_s: f64,
}

/// Arrivals of an entry's tasks, drawn from the seed.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum ArrivalsFile {
    /// One task after another, as in a Poisson process.
    Poisson { every_s: f64 },
    /// Several tasks at a time.
    Bursts { every_s: f64, size: usize },
    /// By the hour of the day, one or several at a time.
    Hours {
        per_hour: [f64; 24],
        #[serde(default = "one")]
        size: usize,
    },
}

impl TaskFile {
    /// The name of the task's group, and its step times.
    pub(crate) fn model(
        &self,
        at: &dyn Fn(&str) -> String,
        profile: Option<&Table>,
    ) -> Result<(String, Model), WorkloadError> {
        match (&self.step_s, &self.model, profile) {
            (Some(step_s), None, _) => {
                Ok((format!("task {}", self.name), own_model(&at("step_s"), step_s)?))
            }
            (None, Some(name), Some(profile)) => {
                let model = profile.model(name).ok_or_else(|| {
                    let names: Vec<&str> = profile.models().map(|(name, _)| name).collect();
                    let expected = format!("a model of the profile: {}", names.join(", "));
                    value(&at("model"), &quoted(name), &escape_terminal(&expected))
                })?;
                Ok((format!("{MODEL}{name}{}", self.evaluated()), model.clone()))
            }
            (None, Some(name), None) => {
                let found = format!("{} without a profile", quoted(name));
                let expected =
                    "`profile = \"FILE\"` at the top of the workload: the file that has the model";
                Err(value(&at("model"), &found, expected))
            }
            (Some(_), Some(_), _) => {
                Err(value(&at("step_s"), "beside `model`", "one of `model` and `step_s`"))
            }
            (None, None, _) => Err(value(
                &at("model"),
                "missing",
                "a model of the profile, or `step_s = { ddp = { 1 = 0.9, 2 = 0.5 } }`: seconds a \
                 step by technique and GPU count",
            )),
        }
    }

    /// What tells the group of its tasks from tasks of the same model that evaluate otherwise.
    fn evaluated(&self) -> String {
        self.evaluate.map_or_else(String::new, |EvaluateFile { every_steps, takes_s }| {
            let every =
                every_steps.map_or_else(String::new, |every| format!(" every {every} steps"));
            format!("{EVALUATED}{every} in {takes_s} s")
        })
    }

    /// When its tasks evaluate their models.
    pub(crate) fn evaluating(
        &self,
        at: &dyn Fn(&str) -> String,
    ) -> Result<Option<Evaluating>, WorkloadError> {
        let Some(EvaluateFile { every_steps, takes_s }) = self.evaluate else { return Ok(None) };
        let every = every_steps.map(|every| {
            NonZeroU64::new(every)
                .ok_or_else(|| value(&at("evaluate.every_steps"), "0", "a whole number from 1 on"))
        });
        let takes_s = seconds(&at("evaluate.takes_s"), takes_s)?;
        Ok(Some(Evaluating { every: every.transpose()?, takes_s }))
    }

    /// Checks that a node has the devices for some strategy of the task.
    pub(crate) fn check_counts(
        &self,
        at: &dyn Fn(&str) -> String,
        model: &Model,
        widest: u32,
    ) -> Result<(), WorkloadError> {
        let known: BTreeSet<u32> =
            model.step_s.values().flat_map(|curve| curve.keys().copied()).collect();
        let list = |counts: &BTreeSet<u32>| {
            counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let is_usable =
            |gpus: &u32| *gpus <= widest && self.gpus.as_ref().is_none_or(|all| all.contains(gpus));
        if !known.iter().any(is_usable) {
            let known = list(&known);
            return Err(match &self.gpus {
                None => value(
                    &at("step_s"),
                    &format!("known on {known} GPUs"),
                    &format!("a GPU count that a node has: {widest} at most"),
                ),
                Some(gpus) => value(
                    &at("gpus"),
                    &format!("{gpus:?}"),
                    &format!("one of {known}, on which a step time is known, up to {widest}"),
                ),
            });
        }
        Ok(())
    }

    /// The tasks of the entry.
    pub(crate) fn jobs(
        &self,
        at: &dyn Fn(&str) -> String,
        group: &str,
    ) -> Result<Vec<Job>, WorkloadError> {
        if self.name.trim().is_empty() {
            return Err(value(&at("name"), "empty", "a name"));
        }
        if !(1..=MOST_STEPS).contains(&self.steps) {
            let expected = format!("a whole number from 1 to {MOST_STEPS}");
            return Err(value(&at("steps"), &self.steps.to_string(), &expected));
        }
        if !(1..=MOST_TASKS).contains(&self.count) {
            let expected = format!("a whole number from 1 to {MOST_TASKS}");
            return Err(value(&at("count"), &self.count.to_string(), &expected));
        }
        if self.asks_gpus == Some(0) {
            return Err(value(&at("asks_gpus"), "0", "a whole number from 1 on"));
        }
        let arrives_s = seconds(&at("arrive_s"), self.arrive_s)?;
        let job = |number: usize| Job {
            name: if self.count > 1 {
                format!("{}-{number}", self.name)
            } else {
                self.name.clone()
            },
            group: group.to_owned(),
            steps: self.steps,
            gpus: self.gpus.clone(),
            asks: self.asks_gpus,
            arrives_s,
            owner: self.owner.clone().unwrap_or_default(),
            ends_after: None,
        };
        Ok((1..=self.count).map(job).collect())
    }

    /// When the entry's tasks arrive, if that is drawn. `first` is the index of its first task.
    pub(crate) fn arrivals(
        &self,
        at: &dyn Fn(&str) -> String,
        first: usize,
    ) -> Result<Option<Arrivals>, WorkloadError> {
        let every = |every_s| Ok(Pace::Every(seconds(&at("arrivals.every_s"), every_s)?));
        let (pace, size) = match self.arrivals {
            None => return Ok(None),
            Some(ArrivalsFile::Poisson { every_s }) => (every(every_s)?, 1),
            Some(ArrivalsFile::Bursts { every_s, size }) => (every(every_s)?, size),
            Some(ArrivalsFile::Hours { per_hour, size }) => {
                let are_numbers = per_hour.iter().all(|tasks| (0.0..=MOST_AN_HOUR).contains(tasks));
                // With fewer, tasks might arrive after more seconds than a workload may take.
                if !are_numbers || per_hour.iter().sum::<f64>() < LEAST_A_DAY {
                    let expected = format!(
                        "24 numbers of tasks from 0 to {MOST_AN_HOUR}, in all at least {LEAST_A_DAY}"
                    );
                    return Err(value(
                        &at("arrivals.per_hour"),
                        &format!("{per_hour:?}"),
                        &expected,
                    ));
                }
                (Pace::PerHour(per_hour.map(|tasks| tasks / size.max(1) as f64)), size)
            }
        };
        if size == 0 {
            return Err(value(&at("arrivals.size"), "0", "a whole number from 1 on"));
        }
        let jobs = first..first + self.count;
        Ok(Some(Arrivals { jobs, first_s: self.arrive_s, pace, size }))
    }
}

/// Step times that a task gives itself.
fn own_model(
    at: &str,
    step_s: &BTreeMap<String, BTreeMap<String, f64>>,
) -> Result<Model, WorkloadError> {
    let mut model = Model::default();
    for (technique, curve) in step_s {
        for (gpus, step_s) in curve {
            let number = gpus.parse::<u32>().ok().filter(|gpus| (1..=MOST_GPUS).contains(gpus));
            let Some(number) = number else {
                let expected = format!("a GPU count from 1 to {MOST_GPUS} before the seconds");
                return Err(value(&format!("{at}.{technique}"), &quoted(gpus), &expected));
            };
            if !(step_s.is_finite() && *step_s > 0.0 && *step_s <= MOST_SECONDS) {
                let at = format!("{at}.{technique}.{gpus}");
                return Err(value(&at, &step_s.to_string(), "positive seconds"));
            }
            model.add(technique, number, *step_s, None);
        }
    }
    if model.step_s.is_empty() {
        return Err(value(at, "empty", "seconds a step, such as `{ ddp = { 1 = 0.9 } }`"));
    }
    Ok(model)
}
