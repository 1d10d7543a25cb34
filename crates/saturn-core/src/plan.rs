//! A plan: the strategy, devices and start of each task, and what is proven of the plan.
//!
//! A task that may be switched can have several assignments, its *segments*. They follow each
//! other, and each does a share of the task's work under a strategy and on devices of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::objective::Objective;
use crate::problem::{Problem, ProblemTask};
use crate::robust::Robust;

/// A plan is *optimal* if its bound is proven to be within this of its value, relative to the bound:
/// (value − bound) / bound ≤ 10⁻⁶. This is the only place that says how near is near enough. Every
/// proof is made with tolerances that sum to less.
pub const OPTIMAL_GAP: f64 = 1e-6;

/// What a solve proved of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// The gap to the lower bound is proven to be at most [`OPTIMAL_GAP`].
    Optimal,
    /// A valid plan; optimality is not proven.
    Feasible,
    /// No plan exists that the solve was allowed to make: a reason has a refutation, which the checker
    /// has verified.
    Infeasible,
    /// No plan was found, and it is not proven that none exists: time ran out, or the solver had
    /// nothing left to try.
    TimedOut,
}

/// Why a solve ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SolveEnd {
    /// It was complete: more time would change nothing.
    Complete,
    /// It reached its limit of time or moves.
    Limit,
    /// It was told to stop.
    Interrupted,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The index of the task that the reason concerns, if it concerns one.
    pub task: Option<usize>,
    /// The reason in words.
    pub reason: String,
    /// A proof that the checker can verify, if there is a proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refutation: Option<Refutation>,
}

impl Reason {
    /// A reason in words alone, which proves nothing.
    pub fn unproven(task: Option<usize>, reason: impl Into<String>) -> Self {
        Self { task, reason: reason.into(), refutation: None }
    }
}

/// Why no plan exists, as [`verified`](crate::verified) verifies it. All but [`NoPlace`](Self::NoPlace)
/// hold for plans that switch no task in mid-run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "proof", rename_all = "snake_case")]
pub enum Refutation {
    /// No nodes that the task may use can hold it at any time.
    NoPlace,
    /// Even if no task ever waits for devices, the task ends after its deadline, or too late for a task
    /// that waits for it.
    TooLate,
    /// The tasks that must have ended by a time need more priced GPU-seconds than there are until
    /// then.
    Work {
        /// The time, seconds.
        until_s: f64,
        /// The price of a GPU-second, by the type of GPU.
        prices: BTreeMap<String, f64>,
    },
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

/// The place in a plan of a task or of one of its segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Index into the problem's tasks.
    pub task: usize,
    /// Index into that task's strategies.
    pub strategy: usize,
    /// Devices held from `start_s` to `end_s`.
    pub gang: Gang,
    /// The share of the task's work that it does: 1 for a whole task. The shares of a task's
    /// segments sum to 1.
    #[serde(default = "whole")]
    pub share: f64,
    /// Seconds from the start of the plan.
    pub start_s: f64,
    /// `start_s` plus `share` of the strategy's runtime. In each segment but a task's first, plus
    /// the task's switch cost.
    pub end_s: f64,
}

/// The share of an assignment that does all of its task's work.
pub const WHOLE: f64 = 1.0;

fn whole() -> f64 {
    WHOLE
}

impl Assignment {
    /// Whether it does only a part of its task's work.
    pub fn is_segment(&self) -> bool {
        self.share < WHOLE
    }
}

/// The answer of a solve. Indices refer to the problem that was solved.
///
/// A plan is better than another if its `tardiness` is smaller, or if that is equal and the value
/// under the objective is smaller. Each value has a bound of its own. [`Plan::gap`] concerns the
/// objective's value, and `status` that and the tardiness. Where soft deadlines are missed, the
/// bounds of the objectives' values hold for plans that are no tardier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How much is proven of the plan.
    pub status: PlanStatus,
    /// Why the solve ended.
    pub ended: SolveEnd,
    /// The objective that was minimised.
    pub objective: Objective,
    /// The end of the last task, seconds; 0 without assignments.
    pub makespan_s: f64,
    /// No plan of this problem has a smaller makespan, seconds. Plans that switch tasks in mid-run
    /// count only if the options allow switches and no fact of the problem prevents them.
    pub lower_bound_s: f64,
    /// Sum over tasks of weight times end, seconds; 0 without assignments.
    pub completion_s: f64,
    /// No plan of this problem has a smaller `completion_s`; 0 if nothing is proven.
    pub completion_bound_s: f64,
    /// The sum over nodes of price times the time during which the node holds anything.
    pub cost: f64,
    /// No plan of this problem has a smaller `cost`; 0 if nothing is proven.
    pub cost_bound: f64,
    /// The sum over soft deadlines of price times seconds late.
    #[serde(default)]
    pub tardiness: f64,
    /// No plan of this problem has a smaller `tardiness`.
    #[serde(default)]
    pub tardiness_bound: f64,
    /// Wall-clock seconds that the solve took.
    pub solve_s: f64,
    /// Why there is no plan, as far as it is known. With the status `Infeasible`, one of them at least
    /// has a refutation.
    pub reasons: Vec<Reason>,
    /// How the plan was chosen by drawn runtimes, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robust: Option<Box<Robust>>,
    /// One assignment for each task, or for each of its segments, in the order of their starts.
    pub assignments: Vec<Assignment>,
}

impl Plan {
    /// An answer without a plan.
    pub fn none(objective: Objective) -> Self {
        Self {
            status: PlanStatus::TimedOut,
            ended: SolveEnd::Limit,
            objective,
            makespan_s: 0.0,
            lower_bound_s: 0.0,
            completion_s: 0.0,
            completion_bound_s: 0.0,
            cost: 0.0,
            cost_bound: 0.0,
            tardiness: 0.0,
            tardiness_bound: 0.0,
            solve_s: 0.0,
            reasons: Vec::new(),
            robust: None,
            assignments: Vec::new(),
        }
    }

    /// A plan of `problem` with its values and without a proof.
    pub fn of(problem: &Problem, objective: Objective, assignments: Vec<Assignment>) -> Self {
        let mut plan = Self { status: PlanStatus::Feasible, ..Self::none(objective) };
        plan.set_assignments(problem, assignments);
        plan
    }

    /// Replaces the assignments, and computes the plan's values again.
    pub fn set_assignments(&mut self, problem: &Problem, assignments: Vec<Assignment>) {
        let mut ends: BTreeMap<usize, f64> = BTreeMap::new();
        let mut held: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
        for one in &assignments {
            let last_s = ends.entry(one.task).or_default();
            *last_s = last_s.max(one.end_s);
            for part in &one.gang {
                held.entry(part.node).or_default().push((one.start_s, one.end_s));
            }
        }
        self.makespan_s = ends.values().copied().fold(0.0, f64::max);
        let weight = |task: usize| problem.tasks.get(task).map_or(0.0, |task| task.weight);
        self.completion_s =
            ends.iter().fold(0.0, |sum, (task, last_s)| sum + weight(*task) * last_s);
        let tardiness = |(task, last_s): (&usize, &f64)| {
            let soft = problem.tasks.get(*task).and_then(ProblemTask::soft_deadline);
            soft.map_or(0.0, |(due_s, price)| price * seconds_late(due_s, *last_s))
        };
        self.tardiness = ends.iter().map(tardiness).fold(0.0, |sum, one| sum + one);
        let price = |node: usize| {
            problem.cluster.nodes.get(node).map_or(0.0, |node| node.price_per_hour / 3600.0)
        };
        self.cost =
            held.into_iter().fold(0.0, |sum, (node, spans)| sum + price(node) * seconds_in(spans));
        self.assignments = assignments;
    }

    /// The plan's value under its objective.
    pub fn value(&self) -> f64 {
        match self.objective {
            Objective::Makespan => self.makespan_s,
            Objective::Completion => self.completion_s,
            Objective::Cost => self.cost,
        }
    }

    /// The lower bound of the objective's value: no plan of this problem has a smaller one.
    pub fn bound(&self) -> f64 {
        match self.objective {
            Objective::Makespan => self.lower_bound_s,
            Objective::Completion => self.completion_bound_s,
            Objective::Cost => self.cost_bound,
        }
    }

    /// Whether this plan is better than another of the same problem and objective: less tardy, or as
    /// tardy and worth less.
    pub fn beats(&self, other: &Self) -> bool {
        self.is_less_tardy_than(other)
            || !other.is_less_tardy_than(self) && self.value() < other.value()
    }

    /// Whether soft deadlines are missed by less than in another plan, by more than rounding.
    pub fn is_less_tardy_than(&self, other: &Self) -> bool {
        self.tardiness < other.tardiness * (1.0 - SAME_TARDINESS)
    }

    /// (value − bound) / bound under the objective; infinite if the bound is 0 and the value is
    /// not.
    pub fn gap(&self) -> f64 {
        let over = (self.value() - self.bound()).max(0.0);
        if over > 0.0 { over / self.bound().max(0.0) } else { 0.0 }
    }

    /// Whether there is a plan to follow: an optimal or a feasible one.
    pub fn is_usable(&self) -> bool {
        matches!(self.status, PlanStatus::Optimal | PlanStatus::Feasible)
    }

    /// Translates this plan of `old` into a start for a solve of `new`. Tasks and nodes are matched
    /// by name, strategies by technique, GPU count and type. If part of a task has no match, all of
    /// its segments are left out. So the result need not be a valid plan.
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
}

/// Two sums of prices of late seconds are equal up to this, relative.
const SAME_TARDINESS: f64 = 1e-9;

/// Seconds by which an end is late; exactly 0 if the end is late by rounding alone.
pub fn seconds_late(due_s: f64, end_s: f64) -> f64 {
    let late_s = end_s - due_s;
    if late_s > 1e-12 * (1.0 + end_s) { late_s } else { 0.0 }
}

/// The total time that these spans cover; overlaps count once.
fn seconds_in(mut spans: Vec<(f64, f64)>) -> f64 {
    spans.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut covered = 0.0;
    let mut until = f64::NEG_INFINITY;
    for (from, to) in spans {
        covered += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    covered
}
