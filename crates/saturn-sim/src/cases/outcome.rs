//! The outcome of a policy: who held which devices when, and the numbers that follow.
//!
//! `saturn_core::check` checks an outcome, and knows neither the world nor the policies. Each span
//! becomes a task of its own that comes after the task's span before.

use saturn_core::{
    Assignment, Candidate, Cluster, Gang, Objective, Placement, Plan, Problem, ProblemTask, WHOLE,
    check,
};

use crate::cases::case::Case;
use crate::cases::error::PolicyError;

/// The purpose for which devices were held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A trial of a strategy.
    Trial,
    /// Training, from its launch to the end of its processes.
    Training,
}

/// A gang from its launch to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Index of the task.
    pub job: usize,
    /// Its purpose.
    pub held: Held,
    /// Name of the technique.
    pub technique: String,
    /// Devices.
    pub gpus: u32,
    /// Its nodes and devices.
    pub gang: Gang,
    /// From, seconds.
    pub launched_s: f64,
    /// When it had loaded, seconds; `None` for a trial.
    pub ready_s: Option<f64>,
    /// To, seconds.
    pub ended_s: f64,
}

impl Span {
    /// Devices times seconds.
    pub fn device_s(&self) -> f64 {
        (self.ended_s - self.launched_s) * f64::from(self.gpus)
    }
}

/// What came of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// In the order in which they ended.
    pub spans: Vec<Span>,
    /// When each task arrived, seconds.
    pub arrives_s: Vec<f64>,
    /// When each task was done, seconds.
    pub ends_s: Vec<f64>,
}

impl Outcome {
    /// When the last task was done, seconds.
    pub fn makespan_s(&self) -> f64 {
        self.ends_s.iter().copied().fold(0.0, f64::max)
    }

    /// Seconds from each task's arrival to its end, ascending.
    fn completions_s(&self) -> Vec<f64> {
        let both = self.ends_s.iter().zip(&self.arrives_s);
        let mut all: Vec<f64> = both.map(|(end_s, arrives_s)| end_s - arrives_s).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// The mean over tasks of the seconds from arrival to end.
    pub fn mean_completion_s(&self) -> f64 {
        self.completions_s().iter().sum::<f64>() / self.ends_s.len().max(1) as f64
    }

    /// Nine tenths of the tasks took no longer from arrival to end, seconds.
    pub fn p90_completion_s(&self) -> f64 {
        let all = self.completions_s();
        let number = (all.len() * 9).div_ceil(10);
        number.checked_sub(1).and_then(|index| all.get(index)).copied().unwrap_or(0.0)
    }

    /// Devices times seconds that were held for trials, for training, or for either.
    pub fn device_s(&self, held: Option<Held>) -> f64 {
        let of = self.spans.iter().filter(|span| held.is_none_or(|held| span.held == held));
        of.map(Span::device_s).sum()
    }

    /// The share of the devices' time until the last task was done that training held.
    pub fn in_use(&self, num_gpus: u32) -> f64 {
        let all_s = self.makespan_s() * f64::from(num_gpus);
        if all_s > 0.0 { self.device_s(Some(Held::Training)) / all_s } else { 0.0 }
    }

    /// Launches of training beyond each task's first.
    pub fn num_moves(&self) -> usize {
        let training = self.spans.iter().filter(|span| span.held == Held::Training).count();
        training.saturating_sub(self.ends_s.len())
    }

    /// Checks four rules: no device is held twice at a time, the pool has every gang's devices,
    /// no task is trained twice at a time, and none holds devices before it arrives. A lost node
    /// holds all of its devices itself.
    pub(crate) fn check(&self, policy: &'static str, case: &Case) -> Result<(), PolicyError> {
        let wrong = |reason: String| PolicyError::Wrong { policy, reason };
        if let Some(job) = self.ends_s.iter().position(|end_s| !end_s.is_finite()) {
            return Err(wrong(format!("task #{job} has no end")));
        }
        let is_early = |span: &&Span| span.launched_s < case.arrives_s(span.job);
        if let Some(span) = self.spans.iter().find(is_early) {
            return Err(wrong(format!("task #{} is launched before it arrives", span.job)));
        }
        let (problem, plan) = self.as_plan(case);
        check(&problem, &plan).map_err(|violations| {
            wrong(violations.first().map(ToString::to_string).unwrap_or_default())
        })
    }

    fn as_plan(&self, case: &Case) -> (Problem, Plan) {
        let mut spans: Vec<&Span> = self.spans.iter().collect();
        spans.sort_by(|a, b| a.launched_s.total_cmp(&b.launched_s));
        let name = |index: usize| format!("span {index}");
        let mut last: Vec<Option<usize>> = vec![None; self.ends_s.len()];
        let mut tasks = Vec::with_capacity(spans.len());
        let mut assignments = Vec::with_capacity(spans.len());
        for (index, span) in spans.iter().enumerate() {
            let candidate = Candidate {
                technique: span.technique.as_str().into(),
                gpus: span.gpus,
                gpu_type: None,
                runtime_s: span.ended_s - span.launched_s,
                pack: true,
                host_bytes: 0,
                relative_error: 0.0,
            };
            // A group's trials run side by side under the name of one task.
            let is_training = span.held == Held::Training;
            let before = if is_training { last[span.job].replace(index) } else { None };
            tasks.push(ProblemTask {
                after: before.map(name).into_iter().collect(),
                ..ProblemTask::new(name(index), vec![candidate])
            });
            assignments.push(Assignment {
                task: index,
                strategy: 0,
                gang: span.gang.clone(),
                share: WHOLE,
                start_s: span.launched_s,
                end_s: span.ended_s,
            });
        }
        for (node, start_s, end_s) in case.absences(self.makespan_s()) {
            let gpus = case.nodes[node].gpus;
            let (technique, runtime_s) = ("absence".into(), end_s - start_s);
            let candidate = Candidate {
                technique,
                gpus,
                gpu_type: None,
                runtime_s,
                pack: true,
                host_bytes: 0,
                relative_error: 0.0,
            };
            tasks.push(ProblemTask::new(format!("absence {}", tasks.len()), vec![candidate]));
            assignments.push(Assignment {
                task: tasks.len() - 1,
                strategy: 0,
                gang: vec![Placement { node, devices: (0..gpus).collect() }],
                share: WHOLE,
                start_s,
                end_s,
            });
        }
        let problem = Problem::new(Cluster { nodes: case.nodes.clone() }, tasks);
        let plan = Plan::of(&problem, Objective::Makespan, assignments);
        (problem, plan)
    }
}
