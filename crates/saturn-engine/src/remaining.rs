//! What is left of a run as a planning problem, and what is left of its plan as an answer to that.

use std::collections::BTreeMap;

use saturn_core::{
    Assignment, Candidate, Objective, Plan, Problem, ProblemTask, Strategy, TrialOutcome,
};

use crate::config::Level;
use crate::forecast::{expected_s, load_s, running, time_left_s};
use crate::ids::TaskId;
use crate::state::{State, TaskStatus, TrialSlot};

/// A task with fewer steps left than this is not cut: its segments would be too few steps to share
/// them out as planned.
const MIN_STEPS_TO_CUT: u64 = 50;

/// The planning problem of what is left to do, and what its indices mean.
#[derive(Debug, Default)]
pub(crate) struct Remaining {
    pub(crate) problem: Problem,
    /// One for each task of the problem.
    pub(crate) tasks: Vec<RemainingTask>,
}

/// A task that has not ended.
#[derive(Debug)]
pub(crate) struct RemainingTask {
    pub(crate) id: TaskId,
    /// One for each of its candidates.
    pub(crate) strategies: Vec<Strategy>,
    /// Finished steps when the problem was made.
    pub(crate) step: u64,
}

impl Remaining {
    /// A running task's present strategy costs no set-up; every other strategy of it does, and is
    /// there only where running tasks `may_move`; only then may it be switched later on.
    pub(crate) fn new(state: &State, may_move: bool, now_s: f64) -> Self {
        let attempts: BTreeMap<TaskId, _> = running(state).collect();
        let mut remaining = Self::default();
        remaining.problem.cluster = state.config.cluster.clone();
        for task in state.task_ids() {
            if matches!(state.task(task).status, TaskStatus::Ended(_)) {
                continue;
            }
            let attempt = attempts.get(&task);
            let mut strategies = Vec::new();
            let mut options = Vec::new();
            for trial in candidates(state, task) {
                let runtime_s = match attempt {
                    Some(attempt) if attempt.strategy == trial.strategy => {
                        Some(time_left_s(state, task, attempt, None, now_s))
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
            if options.is_empty() {
                continue;
            }
            let may_switch = may_move || attempt.is_none();
            remaining.problem.tasks.push(ProblemTask {
                switch_cost_s: may_switch
                    .then(|| planned_switch_s(state, task, &strategies))
                    .flatten(),
                ..ProblemTask::new(state.name(task), options)
            });
            let step = state.task(task).step;
            remaining.tasks.push(RemainingTask { id: task, strategies, step });
        }
        remaining
    }

    /// What is left of the newest plan as a plan of this problem; `None` where there was none.
    ///
    /// Only its order, places and shares mean something. It may lack tasks.
    pub(crate) fn warm_start(&self, state: &State) -> Option<Plan> {
        let plan = state.plans.last()?;
        let mut assignments = Vec::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let steps = state.task(task.id).steps.unwrap_or(0);
            let left = steps.saturating_sub(task.step).max(1) as f64;
            let mut from = task.step;
            for planned in plan.places_of(task.id).filter(|one| !one.is_done_at(task.step)) {
                let until = planned.until_step.unwrap_or(steps);
                let strategy = task.strategies.iter().position(|one| *one == planned.strategy)?;
                assignments.push(Assignment {
                    task: index,
                    strategy,
                    gang: planned.gang.clone(),
                    share: until.saturating_sub(from) as f64 / left,
                    start_s: planned.start_s,
                    end_s: planned.end_s,
                });
                from = until;
            }
        }
        Some(Plan { assignments, ..Plan::none(Objective::Makespan) })
    }
}

/// Whether anything is known of what a switch would cost: a checkpoint was timed, in a trial or since.
pub(crate) fn switch_costs_are_known(state: &State) -> bool {
    state.config.policy.max_switches > 0 && state.tasks.iter().any(|task| task.save_s > 0.0)
}

/// Seconds that a planned switch costs a task: a checkpoint, as long as its last one took, or the
/// longest of any task's before it has made one; and building and loading under its slowest strategy
/// to set up. `None` where that isn't known, where too little is left of it, or where some strategy
/// is a black box, which saves when it likes.
fn planned_switch_s(state: &State, task: TaskId, strategies: &[Strategy]) -> Option<f64> {
    let left = state.task(task).steps?.saturating_sub(state.task(task).step);
    let are_managed =
        strategies.iter().all(|strategy| state.config.level_of(strategy) == Level::Managed);
    if !switch_costs_are_known(state) || left < MIN_STEPS_TO_CUT || !are_managed {
        return None;
    }
    let own_s = Some(state.task(task).save_s).filter(|save_s| *save_s > 0.0);
    let longest_s = state.tasks.iter().map(|task| task.save_s).fold(0.0, f64::max);
    let load_s = strategies.iter().map(|strategy| load_s(state, task, strategy));
    Some(own_s.unwrap_or(longest_s) + load_s.fold(0.0, f64::max))
}

/// The strategies that a task may run under from here on.
pub(crate) fn candidates(state: &State, task: TaskId) -> Vec<&TrialSlot> {
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
