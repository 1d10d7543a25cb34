//! When a plan is asked for, what the solver is told, and whether its answer is adopted.
//!
//! Where no plan is in force (at the start, or when a strategy was excluded), the answer is adopted
//! with running tasks left where they are. While one is in force, a better one is asked for at each
//! interval, in which running tasks may be moved; it is adopted only where it ends earlier by more
//! than `min_gain` of the time left, with the cost of every switch counted; one that leaves running
//! tasks where they are need gain only a little. Whatever is adopted has
//! passed the checker of `saturn-core` in the form in which it is followed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use saturn_core::{Assignment, Objective, Plan, PlanStatus, Problem, TrialOutcome, check};

use crate::config::Mode;
use crate::engine::Engine;
use crate::event::{Action, SolveAnswer};
use crate::forecast::{devices, forecast, load_s, running};
use crate::ids::TaskId;
use crate::record::{PlannedTask, Record, RunPlan, TaskEnd};
use crate::remaining::{Remaining, RemainingTask, candidates, switch_costs_are_known};
use crate::state::{Phase, State, TaskState, TaskStatus};

/// A solve that was asked for and has not answered: what its indices mean.
#[derive(Debug)]
pub(crate) struct PendingSolve {
    request: u64,
    remaining: Remaining,
    /// Whether the plan in force stays if the answer isn't better.
    is_introspection: bool,
    /// Exclusions when it was asked for: one more makes its answer useless.
    num_excluded: usize,
}

impl Engine {
    /// Asks for a plan where none is in force.
    pub(crate) fn ask_for_plan(&mut self, now_s: f64) {
        if self.solve.is_none() {
            self.ask(false, now_s);
        }
    }

    /// Asks for a better plan when it is time to.
    pub(crate) fn introspect(&mut self, now_s: f64) {
        let is_time = now_s >= self.next_solve_s();
        let has_choice =
            self.state.config.mode == Mode::Orchestrate && self.state.phase() == Phase::Training;
        if is_time && has_choice && self.solve.is_none() {
            self.ask(true, now_s);
        }
    }

    /// When a better plan is asked for while one is in force: when the interval is over, or as soon
    /// as switches can be planned that couldn't be when it was last asked for.
    pub(crate) fn next_solve_s(&self) -> f64 {
        let is_open = |task: &&TaskState| !matches!(task.status, TaskStatus::Ended(_));
        let is_alone = self.state.tasks.iter().filter(is_open).count() < 2;
        if !is_alone && switch_costs_are_known(&self.state) && !self.knew_switch_costs {
            return self.last_solve_s;
        }
        self.last_solve_s + self.state.config.policy.interval_s
    }

    fn ask(&mut self, is_introspection: bool, now_s: f64) {
        let remaining = Remaining::new(&self.state, is_introspection, now_s);
        self.last_solve_s = now_s;
        self.knew_switch_costs = switch_costs_are_known(&self.state);
        if remaining.tasks.is_empty() {
            return;
        }
        self.num_solves += 1;
        let request = self.num_solves;
        self.act(Action::Solve {
            request,
            problem: remaining.problem.clone(),
            max_switches: self.state.config.policy.max_switches,
            warm_start: remaining.warm_start(&self.state),
        });
        let num_excluded = num_excluded(&self.state);
        self.solve = Some(PendingSolve { request, remaining, is_introspection, num_excluded });
    }

    pub(crate) fn solved(&mut self, request: u64, answer: Result<SolveAnswer, String>, now_s: f64) {
        let Some(pending) = self.solve.take_if(|pending| pending.request == request) else {
            return;
        };
        if pending.num_excluded != num_excluded(&self.state) {
            // What it answers is no longer the question; a new one is asked at once.
            return;
        }
        let plan = match answer {
            Ok(answer) if answer.plan.is_usable() => adopt(&self.state, &pending, &answer, now_s),
            Ok(answer) => Err(status_words(answer.plan.status).to_owned()),
            Err(error) => Err(error),
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(why) => return self.no_plan(&pending, &why, now_s),
        };
        if pending.is_introspection {
            let time_left_s = forecast(&self.state, now_s).end_s - now_s;
            let moves_s = switch_cost_s(&self.state, &plan);
            let best_s = plan.makespan_s + moves_s;
            let min_gain = self.state.config.policy.min_gain;
            let min_gain = if moves_s > 0.0 { min_gain } else { min_gain.min(MIN_GAIN_IN_PLACE) };
            if time_left_s - best_s <= min_gain * time_left_s {
                self.commit(Record::PlanKept { time_left_s, best_s }, now_s);
                return;
            }
        }
        self.commit(Record::Planned { plan }, now_s);
    }

    /// The solver found nothing: the plan in force goes on; without one, its tasks can't run.
    fn no_plan(&mut self, pending: &PendingSolve, why: &str, now_s: f64) {
        if pending.is_introspection {
            return;
        }
        for task in pending.remaining.tasks.iter().map(|task| task.id) {
            if self.state.task(task).status == TaskStatus::Waiting {
                let error = format!("no plan: {why}");
                let end = TaskEnd::Failed { error, traceback: String::new() };
                self.commit(Record::TaskEnded { task, end }, now_s);
            }
        }
    }

    /// Why a task can't run under any strategy, if so.
    pub(crate) fn why_hopeless(&self, task: TaskId) -> Option<TaskEnd> {
        if self.state.task(task).steps.is_some() && !candidates(&self.state, task).is_empty() {
            return None;
        }
        let mut error = "no technique can run it".to_owned();
        let mut traceback = String::new();
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for trial in self.state.trials_of(task) {
            let reason = match &trial.outcome {
                Some(TrialOutcome::NotApplicable { reason }) => reason.clone(),
                Some(TrialOutcome::OutOfMemory { .. }) => "out of memory".to_owned(),
                Some(TrialOutcome::Failed { error, traceback: trace }) => {
                    if traceback.is_empty() {
                        traceback.clone_from(trace);
                    }
                    error.clone()
                }
                Some(TrialOutcome::Measured { .. }) | None => continue,
            };
            let strategy = format!("{}×{}", trial.strategy.technique, trial.strategy.gpus);
            reasons.entry(reason).or_default().push(strategy);
        }
        for (strategy, reason) in &self.state.task(task).excluded {
            let strategy = format!("{}×{}", strategy.technique, strategy.gpus);
            reasons.entry(reason.clone()).or_default().push(strategy);
        }
        if self.state.trials_of(task).next().is_none() {
            "no strategy fits: its gpu_range allows none of the device counts there are"
                .clone_into(&mut error);
        } else if reasons.is_empty() {
            "the number of its steps is unknown: give `batch_count`, since its loader has no length"
                .clone_into(&mut error);
        }
        for (reason, strategies) in reasons {
            // Writing to a string can't fail.
            let _ = write!(error, "; {}: {reason}", strategies.join(", "));
        }
        Some(TaskEnd::Failed { error, traceback })
    }
}

fn num_excluded(state: &State) -> usize {
    state.tasks.iter().map(|task| task.excluded.len()).sum()
}

fn status_words(status: PlanStatus) -> &'static str {
    match status {
        PlanStatus::TimedOut => "the solver ran out of time before it found one",
        _ => "the solver says that none exists",
    }
}

/// The answer as it will be followed, or why it can't be.
fn adopt(
    state: &State,
    pending: &PendingSolve,
    answer: &SolveAnswer,
    now_s: f64,
) -> Result<RunPlan, String> {
    let mut tasks: Vec<PlannedTask> = places(state, &pending.remaining, &answer.plan)
        .into_iter()
        // Some may have ended while the solver thought.
        .filter(|planned| !matches!(state.task(planned.task).status, TaskStatus::Ended(_)))
        .collect();
    keep_in_place(state, &mut tasks);
    if !pending.is_introspection {
        leave_running(state, &mut tasks);
    }
    let makespan_s = tasks.iter().map(|planned| planned.end_s).fold(0.0, f64::max);
    let lower_bound_s = answer.plan.lower_bound_s.min(makespan_s);
    let is_optimal = makespan_s <= lower_bound_s * (1.0 + 1e-6);
    let status = if is_optimal { PlanStatus::Optimal } else { PlanStatus::Feasible };
    let mut plan = RunPlan {
        at_s: now_s,
        status,
        makespan_s,
        lower_bound_s,
        solve_s: answer.plan.solve_s,
        current_practice_s: answer.current_practice_s,
        tasks,
    };
    check_as_followed(pending, &plan)?;
    for planned in &mut plan.tasks {
        planned.start_s += now_s;
        planned.end_s += now_s;
    }
    Ok(plan)
}

/// A plan's assignments in the run's words, by start.
fn places(state: &State, remaining: &Remaining, plan: &Plan) -> Vec<PlannedTask> {
    let mut assignments: Vec<&Assignment> = plan.assignments.iter().collect();
    assignments.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.task.cmp(&b.task)));
    let mut done: Vec<f64> = vec![0.0; remaining.tasks.len()];
    let mut reached: Vec<u64> = remaining.tasks.iter().map(|task| task.step).collect();
    let mut num_left = vec![0usize; remaining.tasks.len()];
    for one in &assignments {
        num_left[one.task] += 1;
    }
    assignments
        .into_iter()
        .map(|assignment| {
            let index = assignment.task;
            let RemainingTask { id, strategies, step } = &remaining.tasks[index];
            done[index] += assignment.share;
            num_left[index] -= 1;
            let until_step = state.task(*id).steps.filter(|_| num_left[index] > 0).map(|steps| {
                let left = steps.saturating_sub(*step);
                // Every segment trains at least a step.
                let last = steps.saturating_sub(num_left[index] as u64);
                reached[index] =
                    (step + rounded(done[index] * left as f64)).max(reached[index] + 1).min(last);
                reached[index]
            });
            PlannedTask {
                task: *id,
                strategy: strategies[assignment.strategy].clone(),
                gang: assignment.gang.clone(),
                share: assignment.share,
                until_step,
                start_s: assignment.start_s,
                end_s: assignment.end_s,
            }
        })
        .collect()
}

fn rounded(steps: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of steps"
    )]
    let steps = steps.max(0.0).round() as u64;
    steps
}

/// Has the checker look at a plan in the form in which it will be followed, times from 0.
fn check_as_followed(pending: &PendingSolve, plan: &RunPlan) -> Result<(), String> {
    let Remaining { problem: asked, tasks } = &pending.remaining;
    let mut problem = Problem::new(asked.cluster.clone(), Vec::new());
    let mut indices: BTreeMap<TaskId, usize> = BTreeMap::new();
    let mut assignments = Vec::new();
    for planned in &plan.tasks {
        let index = tasks.iter().position(|task| task.id == planned.task);
        let strategy = index.and_then(|index| {
            tasks[index].strategies.iter().position(|strategy| *strategy == planned.strategy)
        });
        let (Some(index), Some(strategy)) = (index, strategy) else {
            return Err("the solver planned what it was not asked for".to_owned());
        };
        let task = *indices.entry(planned.task).or_insert_with(|| {
            problem.tasks.push(asked.tasks[index].clone());
            problem.tasks.len() - 1
        });
        assignments.push(Assignment {
            task,
            strategy,
            gang: planned.gang.clone(),
            share: planned.share,
            start_s: planned.start_s,
            end_s: planned.end_s,
        });
    }
    let plan = Plan {
        status: plan.status,
        lower_bound_s: plan.lower_bound_s,
        solve_s: plan.solve_s,
        ..Plan::of(&problem, Objective::Makespan, assignments)
    };
    check(&problem, &plan).map_err(|violations| {
        let first = violations.first().map(ToString::to_string).unwrap_or_default();
        format!("the plan is wrong, which is a fault in Saturn: {first}")
    })
}

/// Puts running tasks, which are in one piece, first, where they are, and everything else after them
/// in the plan's order.
fn leave_running(state: &State, tasks: &mut [PlannedTask]) {
    let attempts: BTreeMap<TaskId, _> = running(state).collect();
    tasks.sort_by_key(|planned| !attempts.contains_key(&planned.task));
    let mut free_at: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    let mut ended_at: BTreeMap<TaskId, f64> = BTreeMap::new();
    for planned in tasks.iter_mut() {
        let runtime_s = planned.end_s - planned.start_s;
        if let Some(attempt) = attempts.get(&planned.task) {
            planned.gang.clone_from(&attempt.gang);
        }
        planned.start_s = devices(&planned.gang)
            .filter_map(|device| free_at.get(&device).copied())
            .chain(ended_at.get(&planned.task).copied())
            .fold(0.0, f64::max);
        planned.end_s = planned.start_s + runtime_s;
        ended_at.insert(planned.task, planned.end_s);
        free_at.extend(devices(&planned.gang).map(|device| (device, planned.end_s)));
    }
}

/// Renames devices of each node so that running tasks which start first in the new plan under their
/// present strategy stay where they are. Devices of a node are interchangeable, so the plan stays
/// valid.
fn keep_in_place(state: &State, tasks: &mut [PlannedTask]) {
    let attempts: BTreeMap<TaskId, _> = running(state).collect();
    let mut renamed: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    for planned in tasks.iter().filter(|planned| planned.start_s <= AT_ONCE_S) {
        let Some(attempt) = attempts.get(&planned.task) else { continue };
        let same_nodes = planned.gang.len() == attempt.gang.len()
            && planned.gang.iter().zip(&attempt.gang).all(|(a, b)| a.node == b.node);
        if attempt.strategy == planned.strategy && same_nodes {
            let present = devices(&attempt.gang).map(|device| device.1);
            renamed.extend(devices(&planned.gang).zip(present));
        }
    }
    for (node, spec) in state.config.cluster.nodes.iter().enumerate() {
        let is_target =
            |device: &u32| renamed.iter().any(|((on, _), target)| *on == node && target == device);
        let targets: Vec<u32> = (0..spec.gpus).filter(|device| !is_target(device)).collect();
        let sources: Vec<u32> =
            (0..spec.gpus).filter(|device| !renamed.contains_key(&(node, *device))).collect();
        renamed.extend(sources.into_iter().map(|source| (node, source)).zip(targets));
    }
    for placement in tasks.iter_mut().flat_map(|planned| &mut planned.gang) {
        for device in &mut placement.devices {
            *device = renamed.get(&(placement.node, *device)).copied().unwrap_or(*device);
        }
        placement.devices.sort_unstable();
    }
}

/// Seconds that the switches of a plan cost beyond what its candidates' runtimes hold: a checkpoint of
/// each task that stops, as long as its last one took, and building and loading where it goes on
/// under its present strategy.
fn switch_cost_s(state: &State, plan: &RunPlan) -> f64 {
    running(state)
        .filter_map(|(task, attempt)| {
            let planned = plan.tasks.iter().find(|planned| planned.task == task)?;
            let is_same_strategy = planned.strategy == attempt.strategy;
            let is_left_alone = is_same_strategy
                && planned.gang == attempt.gang
                && planned.start_s <= plan.at_s + AT_ONCE_S;
            if is_left_alone {
                return None;
            }
            let load_s =
                if is_same_strategy { load_s(state, task, &attempt.strategy) } else { 0.0 };
            Some(state.task(task).save_s + load_s)
        })
        .sum()
}

/// Share of the time left that a new plan must save where it leaves running tasks where they are: it
/// costs nothing, but the forecasts that it is compared by are not exact.
const MIN_GAIN_IN_PLACE: f64 = 0.005;
/// A planned start that is this close to the present is meant to be at once, seconds.
const AT_ONCE_S: f64 = 1e-6;
