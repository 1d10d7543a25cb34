//! A workload as a person writes it down (TOML): nodes, tasks, and their step times.
//!
//! Text in, a [`Case`] out, or an error that says what is wrong, where, and what is expected. The
//! caller reads the files: a workload only names its profile.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use saturn_core::Node;
use serde::Deserialize;

use crate::cases::case::{Case, Job, Knowledge, Moves};
use crate::cases::script::{Early, Faults, Lost, Slow};
use crate::cases::workload_error::{WorkloadError, quoted, seconds, value};
use crate::cases::workload_task::{TaskFile, model_of};
use crate::workloads::table::{Model, Table};
use crate::workloads::truth::{GroupTruth, TechniqueTruth, Truth};

/// The type of all devices: a pool of several types is not simulated.
const GPU_TYPE: &str = "gpu";
/// Seconds of a launch and of a checkpoint if neither workload nor profile has them.
const USUAL_LOAD_S: f64 = 30.0;
const USUAL_SAVE_S: f64 = 10.0;
/// Seconds between two checkpoints.
const USUAL_EVERY_S: f64 = 1800.0;
/// Steps of a trial.
const USUAL_TRIAL_STEPS: u32 = 4;
/// More tasks are a typing error.
pub(crate) const MOST_TASKS: usize = 10_000;
const MOST_NODES: usize = 10_000;
pub(crate) const MOST_GPUS: u32 = 1024;
/// A node that is slower is a lost one.
const MOST_SLOW: f64 = 1000.0;

/// A workload as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadFile {
    profile: Option<String>,
    /// Whether no step time is known at the beginning.
    #[serde(default)]
    trials: bool,
    #[serde(default)]
    costs: Costs,
    #[serde(default)]
    faults: Faults,
    nodes: Vec<NodeFile>,
    tasks: Vec<TaskFile>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Costs {
    load_s: Option<f64>,
    save_s: Option<f64>,
    checkpoint_every_s: Option<f64>,
    trial_steps: Option<u32>,
    neighbours: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    gpus: u32,
    #[serde(default = "one")]
    count: usize,
}

pub(crate) fn one() -> usize {
    1
}

impl WorkloadFile {
    /// Whether a TOML text is a workload rather than a sweep: only workloads have `nodes` at their
    /// top. A text that is not TOML is no workload.
    pub fn is_one(text: &str) -> bool {
        text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("nodes"))
    }

    /// The name of the model in the profile that all tasks of a group have; `None` if they have
    /// step times of their own.
    pub fn model_of(group: &str) -> Option<&str> {
        model_of(group)
    }

    /// Reads the text of a workload.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        toml::from_str(text).map_err(|error| WorkloadError::of_text(text, &error))
    }

    /// The file with step times that it names: a table (CSV) or a profile (JSON), relative to the
    /// workload's own folder.
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// The workload with the step times of its profile.
    pub fn case(&self, profile: Option<&Table>) -> Result<Case, WorkloadError> {
        let nodes = self.nodes()?;
        let widest = nodes.iter().map(|node| node.gpus).max().unwrap_or(0);
        let mut truth = Truth::default();
        let mut jobs: Vec<Job> = Vec::new();
        let mut arrivals = Vec::new();
        let mut names: BTreeSet<String> = BTreeSet::new();
        if self.tasks.is_empty() {
            return Err(value("tasks", "empty", "at least one task"));
        }
        for (index, task) in self.tasks.iter().enumerate() {
            let at = |field: &str| format!("tasks[{index}].{field}");
            let (group, model) = task.model(&at, profile)?;
            task.check_counts(&at, &model, widest)?;
            if let Entry::Vacant(entry) = truth.groups.entry(group.clone()) {
                let evaluating = task.evaluating(&at)?;
                entry.insert(GroupTruth { evaluating, ..self.group(&model)? });
            }
            if task.owner.as_ref().is_some_and(String::is_empty) {
                return Err(value(&at("owner"), "empty", "a name"));
            }
            if task.owner.is_none() && self.tasks.iter().any(|other| other.owner.is_some()) {
                let expected = "an owner, as other tasks have";
                return Err(value(&at("owner"), "missing", expected));
            }
            let first = jobs.len();
            for job in task.jobs(&at, &group)? {
                if !names.insert(job.name.clone()) {
                    let expected = "a name that no other task has";
                    return Err(value(&at("name"), &quoted(&job.name), expected));
                }
                jobs.push(job);
            }
            arrivals.extend(task.arrivals(&at, first)?);
        }
        if jobs.len() > MOST_TASKS {
            let expected = format!("{MOST_TASKS} at most");
            return Err(value("tasks", &format!("{} tasks", jobs.len()), &expected));
        }
        let every_s = self.costs.checkpoint_every_s;
        let trial_steps = self.costs.trial_steps.unwrap_or(USUAL_TRIAL_STEPS);
        if !(2..=1000).contains(&trial_steps) {
            let expected = "a whole number from 2 to 1000";
            return Err(value("costs.trial_steps", &trial_steps.to_string(), expected));
        }
        let case = Case {
            nodes,
            moves: Moves::of(jobs.len()),
            jobs,
            arrivals,
            faults: self.faults()?,
            believed: truth.clone(),
            truth,
            knowledge: if self.trials { Knowledge::Nothing } else { Knowledge::Profile },
            checkpoint_every_s: match every_s {
                Some(0.0) => {
                    return Err(value("costs.checkpoint_every_s", "0", "more than 0 seconds"));
                }
                other => seconds("costs.checkpoint_every_s", other.unwrap_or(USUAL_EVERY_S))?,
            },
            trial_steps,
            neighbours: self.neighbours()?,
            seed: 0,
        };
        Ok(case.drawn(0.0, 0))
    }

    fn neighbours(&self) -> Result<f64, WorkloadError> {
        let factor = self.costs.neighbours.unwrap_or(1.0);
        if (1.0..=MOST_SLOW).contains(&factor) {
            return Ok(factor);
        }
        let expected = format!("a factor from 1 to {MOST_SLOW}");
        Err(value("costs.neighbours", &factor.to_string(), &expected))
    }

    fn faults(&self) -> Result<Faults, WorkloadError> {
        // Shorter times would be so many changes that no simulation ends.
        let positive = |at: &str, number: f64| match seconds(at, number)? {
            0.01.. => Ok(()),
            _ => Err(value(at, &number.to_string(), "at least 0.01 seconds")),
        };
        let share = |at: &str, share: f64| match share {
            0.0..=1.0 => Ok(()),
            _ => Err(value(at, &share.to_string(), "a share from 0 to 1")),
        };
        if let Some(Lost { every_s, away_s }) = self.faults.lost {
            positive("faults.lost.every_s", every_s)?;
            positive("faults.lost.away_s", away_s)?;
        }
        if let Some(Slow { every_s, lasts_s, factor }) = self.faults.slow {
            positive("faults.slow.every_s", every_s)?;
            positive("faults.slow.lasts_s", lasts_s)?;
            if !(factor > 1.0 && factor <= MOST_SLOW) {
                let expected = format!("a factor above 1, up to {MOST_SLOW}");
                return Err(value("faults.slow.factor", &factor.to_string(), &expected));
            }
        }
        if let Some(Early { share: of_tasks, at }) = self.faults.early {
            share("faults.early.share", of_tasks)?;
            share("faults.early.at", at)?;
        }
        Ok(self.faults)
    }

    fn nodes(&self) -> Result<Vec<Node>, WorkloadError> {
        let mut nodes = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if !(1..=MOST_GPUS).contains(&node.gpus) {
                let expected = format!("a whole number from 1 to {MOST_GPUS}");
                let at = format!("nodes[{index}].gpus");
                return Err(value(&at, &node.gpus.to_string(), &expected));
            }
            if !(1..=MOST_NODES).contains(&node.count) {
                let expected = format!("a whole number from 1 to {MOST_NODES}");
                let at = format!("nodes[{index}].count");
                return Err(value(&at, &node.count.to_string(), &expected));
            }
            for _ in 0..node.count {
                nodes.push(Node::new(format!("n{}", nodes.len()), node.gpus, GPU_TYPE));
            }
        }
        if nodes.is_empty() || nodes.len() > MOST_NODES {
            let expected = format!("from 1 to {MOST_NODES} nodes");
            return Err(value("nodes", &format!("{} nodes", nodes.len()), &expected));
        }
        Ok(nodes)
    }

    /// The truth about all tasks of a model.
    fn group(&self, model: &Model) -> Result<GroupTruth, WorkloadError> {
        let techniques = model.step_s.iter().map(|(name, curve)| {
            let measured = curve.clone();
            let technique =
                TechniqueTruth { factor: 1.0, scaling: 1.0, measured, fits_from: 1, refusal: None };
            (name.clone(), technique)
        });
        let load_s = self.costs.load_s.or(model.load_s).unwrap_or(USUAL_LOAD_S);
        let save_s = self.costs.save_s.or(model.save_s).unwrap_or(USUAL_SAVE_S);
        Ok(GroupTruth {
            step_s: 1.0,
            load_s: seconds("costs.load_s", load_s)?,
            save_s: seconds("costs.save_s", save_s)?,
            evaluating: None,
            batches_per_epoch: 1000,
            techniques: techniques.collect(),
        })
    }
}
