//! What is left of a run as a planning problem, for a plan that is only looked at.
//!
//! It is the problem that the solver would be given now (`asking`), with the same options. But tasks
//! whose trials go on are in it too, as far as they are measured: nothing is to be launched. Nothing
//! is recorded: the state that is asked about stays as it is.

use saturn_core::{Candidate, Objective, Plan, Problem, Wide};

use crate::facts::config::Level;
use crate::facts::ids::TaskId;
use crate::facts::record::{AttemptEnd, Record, TaskEnd};
use crate::knowledge::paces::LEAST_NEWS;
use crate::planning::asking::least_move_gain;
use crate::planning::deadlines::LeftOut;
use crate::planning::problem::{LEAST_RUNTIME_S, Remaining, plannable_at_once};
use crate::planning::warm_start::warm_start;
use crate::state::breadth::holds;
use crate::state::run::State;

/// What is left of a run, as the solver would be asked about it.
#[derive(Debug)]
pub struct RemainingWork {
    /// The usable devices, what is left of each task, and what runs now.
    pub problem: Problem,
    /// Its tasks.
    pub tasks: Vec<TaskId>,
    /// The objective, which its plan minimises.
    pub objective: Objective,
    /// Switches that a plan may have for each task.
    pub max_switches: usize,
    /// The part by which a plan with switches must end earlier.
    pub min_switch_gain: f64,
    /// The part by which a plan that moves running tasks must end earlier.
    pub min_move_gain: f64,
    /// The seconds by which a plan that moves running tasks must end earlier.
    pub min_move_gain_s: f64,
    /// What is open of the plan in force. Only its order, places and shares mean anything.
    pub warm_start: Option<Plan>,
    /// Measured strategies of open tasks that the nodes can't hold now.
    pub wide: Vec<Wide>,
    /// The tasks that count as cancelled: those that were named, and those that come after them.
    pub cancelled: Vec<TaskId>,
    /// Tasks that have not ended and that a plan can't contain now.
    pub unplanned: Vec<TaskId>,
}

/// What is left of a run at `now_s`, if the tasks `without` were cancelled now. Their devices count
/// as free at once.
pub fn remaining_work(state: &State, without: &[TaskId], now_s: f64) -> RemainingWork {
    let mut state = state.clone();
    for record in state.departures(LEAST_NEWS, state.attempts.values()) {
        state.apply(&record, now_s);
    }
    let cancelled = cancel(&mut state, without, now_s);
    let remaining = Remaining::new(&state, &plannable_at_once(&state), &LeftOut::default(), now_s);
    let is_planned = |task: &TaskId| remaining.tasks.iter().any(|one| one.id == *task);
    let unplanned = state.open_tasks.iter().copied().filter(|task| !is_planned(task)).collect();
    let wide = wide(&state, &remaining);
    let policy = &state.config.policy;
    let (min_move_gain, min_move_gain_s) = least_move_gain(&state);
    let is_makespan = remaining.objective == Objective::Makespan;
    RemainingWork {
        warm_start: warm_start(&remaining, &state),
        objective: remaining.objective,
        max_switches: if is_makespan { policy.max_switches } else { 0 },
        min_switch_gain: policy.min_switch_gain,
        min_move_gain,
        min_move_gain_s,
        tasks: remaining.tasks.iter().map(|task| task.id).collect(),
        problem: remaining.problem,
        wide,
        cancelled,
        unplanned,
    }
}

/// The strategies that tasks could use, were there nodes for them.
fn wide(state: &State, remaining: &Remaining) -> Vec<Wide> {
    let max_nodes = state.config.policy.max_nodes;
    let open = state.open_tasks.iter().copied().filter(|task| !state.task(*task).must_not_train());
    let of_task = |id: TaskId| {
        let task = remaining.tasks.iter().position(|one| one.id == id);
        let group = state.task(id).group;
        let is_too_wide = |gpu_type: &str, gpus| !holds(&remaining.breadths, gpu_type, gpus);
        let choices = state.choices(id);
        let choices = choices.filter(move |one| is_too_wide(one.gpu_type, one.trial.strategy.gpus));
        let pace = state.pace(id);
        choices.map(move |choice| {
            let strategy = &choice.trial.strategy;
            let runtime_s = pace.time_s(choice);
            // A switch in mid-run is planned among managed techniques only.
            let is_managed = state.config.level_of(&strategy.technique) == Level::Managed;
            let width = state.exceeded_width(choice.gpu_type, strategy.gpus);
            Wide {
                task: task.filter(|_| is_managed && runtime_s.is_some()),
                group,
                candidate: Candidate {
                    technique: strategy.technique.as_str().into(),
                    gpus: strategy.gpus,
                    gpu_type: Some(choice.gpu_type.into()),
                    runtime_s: runtime_s.unwrap_or(0.0).max(LEAST_RUNTIME_S),
                    pack: true,
                    // Nodes that could hold it may have any host memory.
                    host_bytes: 0,
                    relative_error: 0.0,
                },
                across: width.filter(|_| max_nodes > 1),
                max_nodes,
            }
        })
    };
    open.flat_map(of_task).collect()
}

/// Cancels tasks, and the tasks that come after them, as a run does. Returns those that were
/// cancelled.
fn cancel(state: &mut State, without: &[TaskId], now_s: f64) -> Vec<TaskId> {
    let mut cancelled = Vec::new();
    let mut open: Vec<TaskId> = without.iter().rev().copied().collect();
    while let Some(task) = open.pop() {
        if state.has_ended(task) {
            continue;
        }
        cancelled.push(task);
        let live = state.attempt_of(task).map(|(id, _)| id);
        let step = state.task(task).checkpoint_step;
        let end = TaskEnd::Cancelled { reason: String::new() };
        state.apply(&Record::TaskEnded { task, end }, now_s);
        if let Some(attempt) = live {
            let end = AttemptEnd::Killed;
            state.apply(&Record::Ended { attempt, end, step, step_s: None }, now_s);
        }
        let followers = state.followers.get(&task).into_iter().flatten().copied();
        open.extend(followers.filter(|one| state.task(*one).spec.wishes.after.contains(&task)));
    }
    cancelled
}
