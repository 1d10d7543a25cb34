//! When a plan is asked for, what the solver is told, and whether its answer is adopted.
//!
//! A first plan is adopted as it is. While tasks run, a new one is asked for at each interval; it is
//! adopted only where it ends earlier than the plan in force by more than `min_gain` of the time
//! left, with the cost of every switch counted. Running tasks may be moved by it; one whose strategy
//! and devices stay the same is not touched.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use saturn_core::{Candidate, Plan, PlanStatus, Problem, ProblemTask, Strategy, TrialOutcome};

use crate::config::Mode;
use crate::engine::Engine;
use crate::event::{Action, SolveAnswer};
use crate::forecast::{devices, expected_s, forecast, running, setup_s, time_left_s};
use crate::ids::TaskId;
use crate::record::{PlannedTask, Record, RunPlan, TaskEnd};
use crate::state::{Phase, State, TaskStatus, TrialSlot};

/// A solve that was asked for and has not answered: what its indices mean.
#[derive(Debug)]
pub(crate) struct PendingSolve {
    request: u64,
    /// Task of each problem task, and strategy of each of its candidates.
    tasks: Vec<(TaskId, Vec<Strategy>)>,
    /// Whether the plan in force stays if the answer isn't better.
    is_introspection: bool,
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
        let (problem, tasks) = problem_now(&self.state, now_s);
        if tasks.is_empty() {
            self.last_solve_s = now_s;
            return;
        }
        self.num_solves += 1;
        self.last_solve_s = now_s;
        let request = self.num_solves;
        self.act(Action::Solve { request, problem });
        self.solve = Some(PendingSolve { request, tasks, is_introspection });
    }

    pub(crate) fn solved(&mut self, request: u64, answer: Result<SolveAnswer, String>, now_s: f64) {
        let Some(pending) = self.solve.take_if(|pending| pending.request == request) else {
            return;
        };
        // While it was solving, an exclusion may have made the plan in force stale, and its problem.
        if self.state.plan_is_stale && pending.is_introspection {
            return;
        }
        let plan = match answer {
            Ok(answer) if has_assignments(&answer.plan) => answer,
            Ok(answer) => return self.no_plan(&pending, status_words(answer.plan.status), now_s),
            Err(error) => return self.no_plan(&pending, &error, now_s),
        };
        let run_plan = to_run_plan(&self.state, &pending, &plan, now_s);
        if pending.is_introspection {
            let time_left_s = forecast(&self.state, now_s).end_s - now_s;
            let best_s = run_plan.makespan_s + switch_cost_s(&self.state, &run_plan);
            if time_left_s - best_s <= self.state.config.policy.min_gain * time_left_s {
                self.commit(Record::PlanKept { time_left_s, best_s }, now_s);
                return;
            }
        }
        self.commit(Record::Planned { plan: run_plan }, now_s);
        if self.state.phase() == Phase::Training {
            self.follow_plan(now_s);
        }
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

fn has_assignments(plan: &Plan) -> bool {
    matches!(plan.status, PlanStatus::Optimal | PlanStatus::Feasible)
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
    let widest = state.config.cluster.nodes.iter().map(|node| node.gpus).max().unwrap_or(0);
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
/// present strategy costs no set-up; every other strategy of it does.
fn problem_now(state: &State, now_s: f64) -> (Problem, Vec<(TaskId, Vec<Strategy>)>) {
    let attempts: BTreeMap<TaskId, _> = running(state).collect();
    let mut problem = Problem { cluster: state.config.cluster.clone(), tasks: Vec::new() };
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
            problem
                .tasks
                .push(ProblemTask { name: state.name(task).to_owned(), strategies: options });
            tasks.push((task, strategies));
        }
    }
    (problem, tasks)
}

fn to_run_plan(state: &State, pending: &PendingSolve, answer: &SolveAnswer, now_s: f64) -> RunPlan {
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
                start_s: now_s + assignment.start_s,
                end_s: now_s + assignment.end_s,
            }
        })
        .filter(|planned| !matches!(state.task(planned.task).status, TaskStatus::Ended(_)))
        .collect();
    tasks.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.task.cmp(&b.task)));
    keep_in_place(state, &mut tasks, now_s);
    RunPlan {
        at_s: now_s,
        status: answer.plan.status,
        makespan_s: answer.plan.makespan_s,
        lower_bound_s: answer.plan.lower_bound_s,
        solve_s: answer.plan.solve_s,
        current_practice_s: answer.current_practice_s,
        tasks,
    }
}

/// Renames devices of each node so that running tasks which start first in the new plan under their
/// present strategy stay where they are. Devices of a node are interchangeable, so the plan stays
/// valid.
fn keep_in_place(state: &State, tasks: &mut [PlannedTask], now_s: f64) {
    let attempts: BTreeMap<TaskId, _> = running(state).collect();
    let mut renamed: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    for planned in tasks.iter().filter(|planned| planned.start_s <= now_s + 1e-6) {
        let Some(attempt) = attempts.get(&planned.task) else { continue };
        let same_nodes = planned.gang.len() == attempt.gang.len()
            && planned.gang.iter().zip(&attempt.gang).all(|(a, b)| a.node == b.node);
        if attempt.strategy == planned.strategy && same_nodes {
            let present = devices(&attempt.gang).map(|device| device.1);
            renamed.extend(devices(&planned.gang).zip(present));
        }
    }
    for (node, spec) in state.config.cluster.nodes.iter().enumerate() {
        let mut unused = (0..spec.gpus)
            .filter(|device| !renamed.iter().any(|((on, _), to)| *on == node && to == device));
        let unused: Vec<u32> = unused.by_ref().collect();
        let unnamed: Vec<u32> =
            (0..spec.gpus).filter(|device| !renamed.contains_key(&(node, *device))).collect();
        for (from, to) in unnamed.into_iter().zip(unused) {
            renamed.insert((node, from), to);
        }
    }
    for placement in tasks.iter_mut().flat_map(|planned| &mut planned.gang) {
        for device in &mut placement.devices {
            *device = renamed.get(&(placement.node, *device)).copied().unwrap_or(*device);
        }
        placement.devices.sort_unstable();
    }
}

/// Seconds that the switches of a plan cost beyond what its candidates' runtimes hold: each task
/// that is stopped and goes on under its present strategy builds and loads again.
fn switch_cost_s(state: &State, plan: &RunPlan) -> f64 {
    running(state)
        .filter_map(|(task, attempt)| {
            let planned = plan.tasks.iter().find(|planned| planned.task == task)?;
            let is_moved = planned.strategy == attempt.strategy
                && (planned.gang != attempt.gang || planned.start_s > plan.at_s + 1e-6);
            is_moved.then(|| setup_s(state, task, &attempt.strategy))
        })
        .sum()
}
