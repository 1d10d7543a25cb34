//! A report from a run's state.

use std::collections::BTreeSet;

use saturn_core::TrialOutcome;
use saturn_engine::{
    Attempt, AttemptEnd, AttemptId, Purpose, RunEnd, RunPlan, State, TaskEnd, TaskId, TaskStatus,
};

use super::{
    AttemptPurpose, AttemptReport, DeviceReport, LossPoint, PlanReport, PlannedReport, Report,
    RunStatus, TaskReport, TaskReportStatus, Totals, TrialReport, VERSION, thin,
};
use crate::outcome::{estimate_error, realised_makespan_s, task_counts, training_s};
use crate::words::gang_devices;

impl Report {
    /// Reports on the run called `name`. `losses` holds each task's loss by step, in the order of
    /// the tasks (see [`super::read_metrics`]); tasks beyond its end have none.
    pub fn build(state: &State, name: &str, losses: &[Vec<LossPoint>]) -> Self {
        let config = &state.config;
        Self {
            version: VERSION,
            name: name.to_owned(),
            mode: config.mode,
            status: match state.ended {
                Some(RunEnd::Complete) => RunStatus::Complete,
                Some(RunEnd::Interrupted) => RunStatus::Interrupted,
                None => RunStatus::Unfinished,
            },
            device_kind: config.device_kind,
            device_memory_bytes: config.device_memory_bytes,
            devices: devices(state),
            techniques: config.techniques.iter().map(|one| one.name.clone()).collect(),
            now_s: state.now_s,
            totals: totals(state),
            plans: state.plans.iter().map(plan).collect(),
            tasks: state
                .task_ids()
                .map(|id| task(state, id, losses.get(id.0).map_or(&[][..], Vec::as_slice)))
                .collect(),
            trials: trials(state),
            attempts: state.attempts.iter().map(|(id, one)| attempt(*id, one)).collect(),
        }
    }
}

/// The pool's devices and every device that an attempt or a plan held: a run resumed on a smaller
/// pool still shows where it was.
fn devices(state: &State) -> Vec<DeviceReport> {
    let nodes = &state.config.cluster.nodes;
    let present =
        nodes.iter().enumerate().flat_map(|(node, spec)| (0..spec.gpus).map(move |id| (node, id)));
    let held = state.attempts.values().flat_map(|attempt| gang_devices(&attempt.gang));
    let planned = state.plans.iter().flat_map(|plan| &plan.tasks);
    let planned = planned.flat_map(|planned| gang_devices(&planned.gang));
    let all: BTreeSet<(usize, u32)> = present.chain(held).chain(planned).collect();
    let report = |(node, device): (usize, u32)| DeviceReport {
        node,
        node_name: nodes.get(node).map_or_else(|| format!("n{node}"), |spec| spec.name.clone()),
        device,
    };
    all.into_iter().map(report).collect()
}

fn totals(state: &State) -> Totals {
    let counts = task_counts(state);
    let first = state.plans.first();
    let makespan_s = realised_makespan_s(state);
    let held_s: f64 = state
        .attempts
        .values()
        .filter(|attempt| attempt.purpose == Purpose::Train)
        .filter_map(|attempt| {
            let (_, end_s) = attempt.ended.as_ref()?;
            Some((end_s - attempt.launched_s) * f64::from(attempt.strategy.gpus))
        })
        .sum();
    let num_devices = f64::from(state.config.cluster.num_gpus());
    let known = || state.trials.iter().filter_map(|slot| slot.outcome.as_ref());
    Totals {
        tasks: counts.all,
        done: counts.done,
        failed: counts.failed,
        makespan_s,
        planned_makespan_s: first.map(|plan| plan.makespan_s),
        lower_bound_s: first.map(|plan| plan.lower_bound_s),
        current_practice_s: first.and_then(|plan| plan.current_practice_s),
        device_use: makespan_s
            .map(|makespan_s| held_s / (makespan_s * num_devices))
            .filter(|share| share.is_finite()),
        trials_s: first.map_or(state.now_s, |plan| plan.at_s),
        trials: known().count(),
        trials_measured: known()
            .filter(|outcome| matches!(outcome, TrialOutcome::Measured { .. }))
            .count(),
    }
}

fn plan(plan: &RunPlan) -> PlanReport {
    let tasks = plan.tasks.iter().map(|planned| PlannedReport {
        task: planned.task.0,
        technique: planned.strategy.technique.clone(),
        gpus: planned.strategy.gpus,
        gang: planned.gang.clone(),
        share: planned.share,
        until_step: planned.until_step,
        start_s: planned.start_s,
        end_s: planned.end_s,
    });
    PlanReport {
        at_s: plan.at_s,
        status: plan.status,
        makespan_s: plan.makespan_s,
        lower_bound_s: plan.lower_bound_s,
        gap: plan.gap(),
        solve_s: plan.solve_s,
        current_practice_s: plan.current_practice_s,
        tasks: tasks.collect(),
    }
}

fn task(state: &State, id: TaskId, losses: &[LossPoint]) -> TaskReport {
    let task = state.task(id);
    let attempts: Vec<&Attempt> = state.training_attempts(id).map(|(_, one)| one).collect();
    let last = attempts.last();
    let planned_s = state.plans.first().and_then(|plan| {
        let lengths = plan.places_of(id).map(|planned| planned.end_s - planned.start_s);
        lengths.reduce(|sum, length| sum + length)
    });
    let (status, error, traceback) = match &task.status {
        TaskStatus::Waiting => (TaskReportStatus::Waiting, None, ""),
        TaskStatus::Running(_) => (TaskReportStatus::Running, None, ""),
        TaskStatus::Ended(TaskEnd::Done { .. }) => (TaskReportStatus::Done, None, ""),
        TaskStatus::Ended(TaskEnd::Failed { error, traceback }) => {
            (TaskReportStatus::Failed, Some(error.clone()), traceback.as_str())
        }
    };
    TaskReport {
        name: state.name(id).to_owned(),
        status,
        final_loss: task.loss.or_else(|| losses.last().map(|point| point.1)),
        step: task.step,
        steps: task.steps,
        technique: last.map(|attempt| attempt.strategy.technique.clone()),
        gpus: last.map(|attempt| attempt.strategy.gpus),
        knobs: last.map(|attempt| attempt.strategy.knobs.clone()).unwrap_or_default(),
        start_s: attempts.first().map(|attempt| attempt.launched_s),
        end_s: last.and_then(|attempt| attempt.ended.as_ref()).map(|(_, end_s)| *end_s),
        planned_s,
        realised_s: last.map(|_| training_s(state, id)),
        blocked_s: task.blocked_s,
        estimate_error: estimate_error(state, id),
        attempts: attempts.len(),
        error,
        traceback: traceback.to_owned(),
        dir: state.config.tasks[id.0].dir.clone(),
        losses: thin(losses),
    }
}

fn trials(state: &State) -> Vec<TrialReport> {
    let trials = state.trials.iter().map(|slot| TrialReport {
        task: slot.task.0,
        speaks_for: state.tasks_like(slot.task).map(|task| task.0).collect(),
        technique: slot.strategy.technique.clone(),
        gpus: slot.strategy.gpus,
        knobs: slot.strategy.knobs.clone(),
        reused: slot.reused,
        result: slot.outcome.clone(),
    });
    trials.collect()
}

fn attempt(id: AttemptId, attempt: &Attempt) -> AttemptReport {
    let how = attempt.ended.as_ref().map(|(end, _)| match end {
        AttemptEnd::Finished => "finished",
        AttemptEnd::Stopped => "stopped",
        AttemptEnd::Killed => "killed",
        AttemptEnd::Lost => "lost",
        AttemptEnd::Failed { .. } => "failed",
    });
    let error = attempt.ended.as_ref().and_then(|(end, _)| match end {
        AttemptEnd::Failed { failure } => Some(failure.error.clone()),
        _ => None,
    });
    AttemptReport {
        attempt: id.0,
        task: attempt.task.0,
        purpose: match attempt.purpose {
            Purpose::Trial(_) => AttemptPurpose::Trial,
            Purpose::Train => AttemptPurpose::Train,
        },
        technique: attempt.strategy.technique.clone(),
        gpus: attempt.strategy.gpus,
        gang: attempt.gang.clone(),
        launched_s: attempt.launched_s,
        started_s: attempt.started.map(|(_, at_s)| at_s),
        ended_s: attempt.ended.as_ref().map(|(_, at_s)| *at_s),
        how: how.map(str::to_owned),
        from_step: attempt.started.map(|(step, _)| step),
        step: attempt.step,
        error,
    }
}
