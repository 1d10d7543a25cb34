//! When a plan is asked for, what the solver is told, and whether its answer is adopted.
//!
//! Where no plan is in force (at the start, or when a strategy was excluded), the answer is adopted
//! with running tasks left where they are. While one is in force, a better one is asked for at each
//! interval, in which running tasks may be moved; it is adopted only where it ends earlier by more
//! than `min_gain` of the time left, with the cost of every switch counted. Whatever is adopted has
//! passed the checker of `saturn-core` in the form in which it is followed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use saturn_core::{
    Assignment, Candidate, Objective, Plan, PlanStatus, Problem, ProblemTask, Strategy,
    TrialOutcome, WHOLE, check,
};

use crate::config::Mode;
use crate::engine::Engine;
use crate::event::{Action, SolveAnswer};
use crate::forecast::{devices, expected_s, forecast, load_s, running, time_left_s};
use crate::ids::TaskId;
use crate::record::{PlannedTask, Record, RunPlan, TaskEnd};
use crate::state::{Phase, State, TaskStatus, TrialSlot};

/// A solve that was asked for and has not answered: what its indices mean.
#[derive(Debug)]
pub(crate) struct PendingSolve {
    request: u64,
    problem: Problem,
    /// Task of each problem task, and strategy of each of its candidates.
    tasks: Vec<(TaskId, Vec<Strategy>)>,
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

    /// Asks for a better plan when the interval is over.
    pub(crate) fn introspect(&mut self, now_s: f64) {
        let is_time = now_s - self.last_solve_s >= self.state.config.policy.interval_s;
        let has_choice =
            self.state.config.mode == Mode::Orchestrate && self.state.phase() == Phase::Training;
        if is_time && has_choice && self.solve.is_none() {
            self.ask(true, now_s);
        }
    }

    fn ask(&mut self, is_introspection: bool, now_s: f64) {
        let (problem, tasks) = problem_now(&self.state, is_introspection, now_s);
        self.last_solve_s = now_s;
        if tasks.is_empty() {
            return;
        }
        self.num_solves += 1;
        let request = self.num_solves;
        self.act(Action::Solve { request, problem: problem.clone() });
        let num_excluded = num_excluded(&self.state);
        self.solve = Some(PendingSolve { request, problem, tasks, is_introspection, num_excluded });
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
            let best_s = plan.makespan_s + switch_cost_s(&self.state, &plan);
            if time_left_s - best_s <= self.state.config.policy.min_gain * time_left_s {
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
        for (task, _) in &pending.tasks {
            if self.state.task(*task).status == TaskStatus::Waiting {
                let error = format!("no plan: {why}");
                let end = TaskEnd::Failed { error, traceback: String::new() };
                self.commit(Record::TaskEnded { task: *task, end }, now_s);
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

/// The strategies that a task may run under from here on.
fn candidates(state: &State, task: TaskId) -> Vec<&TrialSlot> {
    let excluded = &state.task(task).excluded;
    let widest = state.config.widest();
    let allowed = &state.config.tasks[task.0].gpu_range;
    state
        .trials_of(task)
        .filter(|trial| matches!(trial.outcome, Some(TrialOutcome::Measured { .. })))
        .filter(|trial| trial.strategy.gpus <= widest)
        .filter(|trial| allowed.as_ref().is_none_or(|range| range.contains(&trial.strategy.gpus)))
        .filter(|trial| {
            !excluded.iter().any(|(strategy, _)| {
                strategy.technique == trial.strategy.technique
                    && strategy.gpus == trial.strategy.gpus
            })
        })
        .collect()
}

/// The planning problem of all that is left to do, and what its indices mean. A running task's
/// present strategy costs no set-up; every other strategy of it does, and is there only where running
/// tasks `may_move`.
fn problem_now(
    state: &State,
    may_move: bool,
    now_s: f64,
) -> (Problem, Vec<(TaskId, Vec<Strategy>)>) {
    let attempts: BTreeMap<TaskId, _> = running(state).collect();
    let mut problem = Problem::new(state.config.cluster.clone(), Vec::new());
    let mut tasks = Vec::new();
    for task in state.task_ids() {
        if matches!(state.task(task).status, TaskStatus::Ended(_)) {
            continue;
        }
        let mut strategies = Vec::new();
        let mut options = Vec::new();
        for trial in candidates(state, task) {
            let runtime_s = match attempts.get(&task) {
                Some(attempt) if attempt.strategy == trial.strategy => {
                    Some(time_left_s(state, task, attempt, now_s))
                }
                Some(_) if !may_move => None,
                _ => expected_s(state, task, &trial.strategy),
            };
            let Some(runtime_s) = runtime_s else { continue };
            options.push(Candidate {
                technique: trial.strategy.technique.clone(),
                gpus: trial.strategy.gpus,
                gpu_type: None,
                // A task that is all but done still holds its devices for a moment.
                runtime_s: runtime_s.max(1e-3),
                pack: false,
            });
            strategies.push(trial.strategy.clone());
        }
        if !options.is_empty() {
            problem.tasks.push(ProblemTask::new(state.name(task), options));
            tasks.push((task, strategies));
        }
    }
    (problem, tasks)
}

/// The answer as it will be followed, or why it can't be.
fn adopt(
    state: &State,
    pending: &PendingSolve,
    answer: &SolveAnswer,
    now_s: f64,
) -> Result<RunPlan, String> {
    let mut tasks: Vec<PlannedTask> = answer
        .plan
        .assignments
        .iter()
        .map(|assignment| {
            let (task, strategies) = &pending.tasks[assignment.task];
            PlannedTask {
                task: *task,
                strategy: strategies[assignment.strategy].clone(),
                gang: assignment.gang.clone(),
                start_s: assignment.start_s,
                end_s: assignment.end_s,
            }
        })
        // Some may have ended while the solver thought.
        .filter(|planned| !matches!(state.task(planned.task).status, TaskStatus::Ended(_)))
        .collect();
    tasks.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.task.cmp(&b.task)));
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

/// Has the checker look at a plan in the form in which it will be followed, times from 0.
fn check_as_followed(pending: &PendingSolve, plan: &RunPlan) -> Result<(), String> {
    let mut problem = Problem::new(pending.problem.cluster.clone(), Vec::new());
    let mut assignments = Vec::new();
    for planned in &plan.tasks {
        let index = pending.tasks.iter().position(|(task, _)| *task == planned.task);
        let strategy = index.and_then(|index| {
            pending.tasks[index].1.iter().position(|strategy| *strategy == planned.strategy)
        });
        let (Some(index), Some(strategy)) = (index, strategy) else {
            return Err("the solver planned what it was not asked for".to_owned());
        };
        assignments.push(Assignment {
            task: problem.tasks.len(),
            strategy,
            gang: planned.gang.clone(),
            share: WHOLE,
            start_s: planned.start_s,
            end_s: planned.end_s,
        });
        problem.tasks.push(pending.problem.tasks[index].clone());
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

/// Puts running tasks first, where they are, and everything else after them in the plan's order.
fn leave_running(state: &State, tasks: &mut [PlannedTask]) {
    let attempts: BTreeMap<TaskId, _> = running(state).collect();
    tasks.sort_by_key(|planned| !attempts.contains_key(&planned.task));
    let mut free_at: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    for planned in tasks.iter_mut() {
        let runtime_s = planned.end_s - planned.start_s;
        if let Some(attempt) = attempts.get(&planned.task) {
            planned.gang.clone_from(&attempt.gang);
        }
        planned.start_s = devices(&planned.gang)
            .filter_map(|device| free_at.get(&device).copied())
            .fold(0.0, f64::max);
        planned.end_s = planned.start_s + runtime_s;
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

/// A planned start that is this close to the present is meant to be at once, seconds.
const AT_ONCE_S: f64 = 1e-6;
