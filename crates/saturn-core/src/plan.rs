//! A plan: which strategy, devices and start each task gets, and what is proven about it.
//!
//! A task that may be switched can have several assignments, its *segments*: each does a share of
//! its work under a strategy and on devices of its own, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::problem::Problem;

/// What a solve can say of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// The gap to the lower bound is proven to be at most 1e-6.
    Optimal,
    /// A valid plan; optimality is not proven.
    Feasible,
    /// No plan exists.
    Infeasible,
    /// Time ran out before any plan was found.
    TimedOut,
}

/// The devices that an assignment holds on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Index into the cluster's nodes.
    pub node: usize,
    /// Device ids on that node, ascending.
    pub devices: Vec<u32>,
}

/// All devices of one gang, node by node.
pub type Gang = Vec<Placement>;

/// The place in a plan of one task, or of one segment of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Index into the problem's tasks.
    pub task: usize,
    /// Index into that task's strategies.
    pub strategy: usize,
    /// Devices held from `start_s` to `end_s`.
    pub gang: Gang,
    /// The part of the task's work that is done in it: 1 for a whole task. The shares of a task's
    /// segments sum to 1.
    #[serde(default = "whole")]
    pub share: f64,
    /// Seconds from the start of the plan.
    pub start_s: f64,
    /// `start_s` plus `share` of the strategy's runtime, plus the task's switch cost in each segment
    /// but its first.
    pub end_s: f64,
}

/// The share of an assignment that does all of its task's work.
pub const WHOLE: f64 = 1.0;

fn whole() -> f64 {
    WHOLE
}

impl Assignment {
    /// Whether it does only part of its task's work.
    pub fn is_segment(&self) -> bool {
        self.share < WHOLE
    }
}

/// The answer of a solve: indices refer to the problem that was solved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is proven.
    pub status: PlanStatus,
    /// Completion time of the last task, seconds; 0 without assignments.
    pub makespan_s: f64,
    /// No plan of this problem has a smaller makespan, seconds.
    pub lower_bound_s: f64,
    /// Wall-clock seconds that the solve took.
    pub solve_s: f64,
    /// One for each task, or one for each of its segments; by start.
    pub assignments: Vec<Assignment>,
}

impl Plan {
    /// (makespan − lower bound) / lower bound; 0 where the bound is 0.
    pub fn gap(&self) -> f64 {
        if self.lower_bound_s > 0.0 {
            ((self.makespan_s - self.lower_bound_s) / self.lower_bound_s).max(0.0)
        } else {
            0.0
        }
    }

    /// Whether there is something to run: an optimal or a feasible plan.
    pub fn is_usable(&self) -> bool {
        matches!(self.status, PlanStatus::Optimal | PlanStatus::Feasible)
    }

    /// This plan of `old` as a start for a solve of `new`: tasks and nodes are matched by name,
    /// strategies by technique, GPU count and type. What has no match is left out, with all segments
    /// of its task, so the result is no valid plan by itself.
    #[must_use]
    pub fn carried_over(&self, old: &Problem, new: &Problem) -> Self {
        let task_index: BTreeMap<&str, usize> =
            new.tasks.iter().enumerate().map(|(index, task)| (task.name.as_str(), index)).collect();
        let node_index: BTreeMap<&str, usize> = (0..)
            .zip(&new.cluster.nodes)
            .map(|(index, node)| (node.name.as_str(), index))
            .collect();
        let carry = |one: &Assignment| {
            let old_task = old.tasks.get(one.task)?;
            let strategy = old_task.strategies.get(one.strategy)?;
            let task = *task_index.get(old_task.name.as_str())?;
            let strategy = new.tasks[task].strategies.iter().position(|other| {
                other.technique == strategy.technique
                    && other.gpus == strategy.gpus
                    && other.gpu_type == strategy.gpu_type
            })?;
            let carry_part = |part: &Placement| {
                let name = old.cluster.nodes.get(part.node)?.name.as_str();
                Some(Placement { node: *node_index.get(name)?, devices: part.devices.clone() })
            };
            let gang = one.gang.iter().map(carry_part).collect::<Option<Gang>>()?;
            Some(Assignment { task, strategy, gang, ..*one })
        };
        let carried: Vec<Option<Assignment>> = self.assignments.iter().map(carry).collect();
        let lost: BTreeSet<usize> = self
            .assignments
            .iter()
            .zip(&carried)
            .filter(|(_, carried)| carried.is_none())
            .map(|(one, _)| one.task)
            .collect();
        let assignments = self
            .assignments
            .iter()
            .zip(carried)
            .filter(|(one, _)| !lost.contains(&one.task))
            .filter_map(|(_, carried)| carried)
            .collect();
        Self { assignments, ..self.clone() }
    }

    /// The plan as a file, with the names of `problem`, which must be the problem that was solved;
    /// one assignment a line.
    ///
    /// Without a plan, `makespan_s` and `gap` are null; for an infeasible problem `unplaceable`
    /// names each task that fits nowhere and says why.
    pub fn to_json(&self, problem: &Problem) -> String {
        let usable = self.is_usable();
        let mut fields = vec![
            ("version", json!(1)),
            ("status", json!(self.status)),
            ("makespan_s", json!(usable.then_some(self.makespan_s))),
            ("lower_bound_s", json!(self.lower_bound_s)),
            ("gap", json!(usable.then(|| self.gap()))),
            ("solve_s", json!(self.solve_s)),
        ];
        if self.status == PlanStatus::Infeasible {
            let reasons: Vec<Value> = problem
                .unplaceable()
                .into_iter()
                .map(|(task, reason)| json!({ "task": problem.tasks[task].name, "reason": reason }))
                .collect();
            fields.push(("unplaceable", Value::Array(reasons)));
        }
        let mut file = String::from("{\n");
        for (name, value) in fields {
            let _infallible = writeln!(file, "  \"{name}\": {value},");
        }
        file.push_str("  \"assignments\": [");
        for (index, assignment) in self.assignments.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _infallible = write!(file, "{comma}\n    {}", rendered(assignment, problem));
        }
        file.push_str("\n  ]\n}\n");
        file
    }
}

/// One assignment on one line, fields in the order of the format.
fn rendered(assignment: &Assignment, problem: &Problem) -> String {
    let task = &problem.tasks[assignment.task];
    let strategy = &task.strategies[assignment.strategy];
    let placement: Vec<String> = assignment
        .gang
        .iter()
        .map(|part| {
            let node = json!(problem.cluster.nodes[part.node].name);
            format!("{{\"node\": {node}, \"devices\": {}}}", json!(part.devices))
        })
        .collect();
    let share = if assignment.is_segment() {
        format!("\"share\": {}, ", json!(assignment.share))
    } else {
        String::new()
    };
    format!(
        "{{\"task\": {}, \"technique\": {}, \"gpus\": {}, \"placement\": [{}], \
         {share}\"start_s\": {}, \"end_s\": {}}}",
        json!(task.name),
        json!(strategy.technique),
        strategy.gpus,
        placement.join(", "),
        json!(assignment.start_s),
        json!(assignment.end_s),
    )
}
