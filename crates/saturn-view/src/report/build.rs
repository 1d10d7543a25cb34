//! Builds a report from a run's state and history.

use saturn_engine::{
    AttemptEnd, AttemptId, NodeId, Purpose, RunPlan, State, TaskEnd, TaskId, TaskStatus,
};

use crate::facts::counts::{TaskCounts, TrialCounts};
use crate::facts::history::History;
use crate::facts::outcome::{
    did_all_that_was_planned, estimate_error, lateness, practice_total_s, realised_makespan_s,
    reference_plan, startup_s, total_s, train_s,
};
use crate::facts::past::PastAttempt;
use crate::facts::run_status::RunStatus;
use crate::phrases::events;
use crate::report::choices;
use crate::report::data::{
    AttemptReport, DeviceReport, EvaluationReport, InspectionReport, PlanReport, PlannedReport,
    Report, TaskReport, Totals, TrialReport, VERSION,
};
use crate::report::device_time::DeviceTimeReport;
use crate::report::metrics::TaskMetrics;

impl Report {
    /// Reports on the run called `name`. `metrics` holds what each task's workers recorded, in the
    /// order of the tasks (see [`crate::read_metrics`]). Missing entries count as empty.
    pub fn build(
        state: &State,
        history: &History,
        name: &str,
        mut metrics: Vec<TaskMetrics>,
    ) -> Self {
        let config = &state.config;
        metrics.resize(state.tasks.len(), TaskMetrics::default());
        Self {
            version: VERSION,
            name: name.to_owned(),
            mode: config.mode,
            status: RunStatus::of(state, history),
            device_kind: config.device_kind,
            device_memory_bytes: config.device_memory_bytes,
            devices: devices(state, history),
            techniques: config.techniques.iter().map(|one| one.name.clone()).collect(),
            now_s: state.now_s,
            totals: totals(state, history),
            plans: history.plans.iter().map(|one| plan(one)).collect(),
            tasks: state
                .task_ids()
                .zip(metrics)
                .map(|(id, metrics)| task(state, history, id, metrics))
                .collect(),
            inspections: inspections(state),
            trials: trials(state),
            choices: choices::of(state, history),
            attempts: history.attempts.iter().map(|(id, one)| attempt(state, *id, one)).collect(),
            device_time: DeviceTimeReport::of(state, history),
        }
    }
}

/// Every device that was ever in the pool. If a run was resumed on a smaller pool, the report still
/// shows where tasks ran before.
fn devices(state: &State, history: &History) -> Vec<DeviceReport> {
    let nodes = state.cluster.nodes.iter().zip(&state.nodes).enumerate();
    let of_node =
        |(node, (spec, now)): (usize, (&saturn_core::Node, &saturn_engine::NodeState))| {
            // The node may have come back with fewer devices.
            let num_devices = history.most_devices(NodeId(node)).max(spec.gpus);
            let (is_there, states) = (now.is_there, now.devices.clone());
            let (node_name, gpu_type) = (spec.name.clone(), spec.gpu_type.clone());
            (0..num_devices).map(move |device| {
                let state = states.get(device as usize);
                DeviceReport {
                    node,
                    node_name: node_name.clone(),
                    device,
                    gpu_type: gpu_type.clone(),
                    is_there: is_there && state.is_some(),
                    set_aside: state.and_then(|state| state.set_aside.clone()),
                }
            })
        };
    nodes.flat_map(of_node).collect()
}

fn totals(state: &State, history: &History) -> Totals {
    let counts = TaskCounts::of(state);
    let trials = TrialCounts::of(state);
    let reference = reference_plan(history);
    let makespan_s = realised_makespan_s(history);
    let held_s: f64 = history
        .attempts
        .values()
        .filter(|attempt| attempt.purpose == Purpose::Train)
        .filter_map(|attempt| {
            let from_s = attempt.launched_s.max(reference?.at_s);
            let until_s = attempt.ended.as_ref()?.at_s;
            let held_s = until_s - from_s - history.standstills.seconds(from_s, until_s);
            Some(held_s.max(0.0) * f64::from(attempt.strategy.gpus))
        })
        .sum();
    Totals {
        tasks: counts.all,
        done: counts.done,
        diverged: counts.diverged,
        failed: counts.failed,
        cancelled: counts.cancelled,
        stopped: counts.stopped,
        reference_plan: history.reference_plan(),
        total_s: total_s(state, history),
        startup_s: startup_s(state, history),
        current_practice_total_s: practice_total_s(history),
        current_practice_is_estimate: reference.is_some_and(|plan| plan.practice_is_estimate),
        did_all_that_was_planned: did_all_that_was_planned(state, history),
        makespan_s,
        planned_makespan_s: reference.map(|plan| plan.makespan_s),
        lower_bound_s: reference.map(|plan| plan.lower_bound_s).filter(|bound_s| *bound_s > 0.0),
        current_practice_s: reference.and_then(|plan| plan.current_practice_s),
        lacks_tasks: RunStatus::of(state, history).lacks_tasks(state.is_closed),
        device_use: reference
            .zip(makespan_s)
            .map(|(plan, makespan_s)| {
                held_s / history.heard_device_s(plan.at_s, plan.at_s + makespan_s)
            })
            .filter(|share| share.is_finite() && *share <= 1.0 + 1e-9),
        lateness: lateness(state, history),
        trials_s: history.plans.first().map_or(state.now_s, |plan| plan.at_s),
        trials: trials.known(),
        trials_measured: trials.measured,
    }
}

fn plan(plan: &RunPlan) -> PlanReport {
    let tasks = plan.places.iter().map(|place| PlannedReport {
        task: place.task.0,
        technique: place.strategy.technique.clone(),
        gpus: place.strategy.gpus,
        gang: (*place.gang).clone(),
        share: place.share,
        until_step: place.until_step,
        is_estimate: place.is_estimate,
        start_s: place.start_s,
        end_s: place.end_s,
    });
    PlanReport {
        at_s: plan.at_s,
        source: plan.source.clone(),
        status: plan.status,
        makespan_s: plan.makespan_s,
        lower_bound_s: plan.lower_bound_s,
        gap: plan.gap(),
        solve_s: plan.solve_s,
        current_practice_s: plan.current_practice_s,
        instead_of_s: plan.instead_of_s,
        tasks: tasks.collect(),
    }
}

fn task(state: &State, history: &History, id: TaskId, metrics: TaskMetrics) -> TaskReport {
    let TaskMetrics { losses, last_loss, evaluations } = metrics;
    let task = state.task(id);
    let attempts: Vec<&PastAttempt> = history.training(id).map(|(_, one)| one).collect();
    let last = attempts.last();
    let place = history.task(id).and_then(|task| task.first_place.as_ref());
    let (error, traceback) = match &task.status {
        TaskStatus::Ended(TaskEnd::Failed { error, traceback }) => {
            (Some(error.clone()), traceback.clone())
        }
        TaskStatus::Ended(TaskEnd::Cancelled { reason } | TaskEnd::Stopped { reason }) => {
            (Some(reason.clone()), String::new())
        }
        _ => (None, String::new()),
    };
    // A black box does not report the loss at its checkpoints. Losses of steps after the last
    // checkpoint don't count, since those steps were lost.
    let written = || last_loss.filter(|last| last.0 <= task.step).map(|last| last.1);
    TaskReport {
        name: state.name(id).to_owned(),
        status: state.stage(id),
        added_s: task.added_s,
        wishes: task.spec.wishes.clone(),
        final_loss: task.loss.or_else(written),
        step: task.step,
        steps: task.steps,
        technique: last.map(|attempt| attempt.strategy.technique.clone()),
        gpus: last.map(|attempt| attempt.strategy.gpus),
        knobs: last.map(|attempt| attempt.strategy.knobs.clone()).unwrap_or_default(),
        start_s: attempts.first().map(|attempt| attempt.launched_s),
        end_s: last.and_then(|attempt| attempt.ended.as_ref()).map(|ended| ended.at_s),
        planned_s: place.map(|place| place.end_s - place.start_s),
        train_s: train_s(history, id, state.now_s),
        blocked_s: task.blocked_s,
        estimate_error: estimate_error(state, history, id),
        attempts: attempts.len(),
        error,
        traceback,
        dir: task.spec.dir.clone(),
        parameters: task.spec.parameters.clone(),
        goal: task.spec.goal.clone(),
        is_rest: task.spec.is_rest,
        losses,
        // Scripts evaluate by themselves, and report metrics.
        evaluation: (task.spec.evaluation.is_some() || task.evaluation.is_some()).then(|| {
            EvaluationReport {
                last: task.evaluation.clone(),
                best: task.best.clone(),
                taken_s: task.evaluating_s,
                all: evaluations,
            }
        }),
    }
}

fn inspections(state: &State) -> Vec<InspectionReport> {
    let of_group = |group: &saturn_engine::Group| {
        let speaks_for: Vec<usize> = group.tasks.iter().map(|task| task.0).collect();
        let found = group.inspection.found.as_deref()?.clone();
        Some(InspectionReport { task: *speaks_for.first()?, speaks_for, found })
    };
    state.groups.iter().filter_map(of_group).collect()
}

fn trials(state: &State) -> Vec<TrialReport> {
    let of_group = |group: &saturn_engine::Group| {
        let speaks_for: Vec<usize> = group.tasks.iter().map(|task| task.0).collect();
        let Some(first) = speaks_for.first().copied() else { return Vec::new() };
        let trials = group.trials.iter().rev().map(|(key, trial)| TrialReport {
            task: first,
            speaks_for: speaks_for.clone(),
            technique: trial.strategy.technique.clone(),
            gpus: trial.strategy.gpus,
            gpu_type: key.gpu_type.clone(),
            knobs: trial.strategy.knobs.clone(),
            reused: trial.reused.is_some(),
            ruled_out: trial.reused.is_none() && group.is_ruled_out(key),
            result: trial.outcome.clone(),
        });
        trials.collect()
    };
    state.groups.iter().flat_map(of_group).collect()
}

fn attempt(state: &State, id: AttemptId, attempt: &PastAttempt) -> AttemptReport {
    let how = attempt.ended.as_ref().map(|ended| events::attempt_end(&ended.end));
    let error = attempt.ended.as_ref().and_then(|ended| match &ended.end {
        AttemptEnd::Failed { failure } => Some(failure.error.clone()),
        _ => None,
    });
    let from_step = attempt.started.map(|(step, _)| step);
    let live_step = state.attempts.get(&id).map(|live| live.step);
    AttemptReport {
        attempt: id.0,
        task: attempt.task.0,
        purpose: attempt.purpose,
        technique: attempt.strategy.technique.clone(),
        gpus: attempt.strategy.gpus,
        gang: attempt.gang.clone(),
        launched_s: attempt.launched_s,
        started_s: attempt.started.map(|(_, at_s)| at_s),
        ended_s: attempt.ended.as_ref().map(|ended| ended.at_s),
        how: how.map(str::to_owned),
        from_step,
        step: attempt.ended.as_ref().map_or(live_step.unwrap_or(0), |ended| ended.step),
        error,
    }
}
