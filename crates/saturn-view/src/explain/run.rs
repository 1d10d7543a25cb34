//! Where the run as a whole stands: what is going on, why this plan, what the last new plan
//! promised, and which devices are not used.

use saturn_engine::{DeviceId, Mode, NodeId, PlanSource, Purpose, RunEnd, RunPlan, State};

use crate::explain::code::Code;
use crate::explain::devices;
use crate::explain::moves::promised;
use crate::explain::reason::Reason;
use crate::explain::wrong;
use crate::facts::counts::{TaskCounts, TrialCounts};
use crate::facts::expect::Expected;
use crate::facts::history::History;
use crate::facts::outcome::{did_all_that_was_planned, trained_until_s};
use crate::facts::past::PoolEvent;
use crate::facts::run_status::RunStatus;
use crate::layout::units::{clock, count, duration, percent};
use crate::phrases::events;
use crate::phrases::tasks::task_words;
use crate::phrases::words::{self, first_line};

pub(super) fn reasons(
    state: &State,
    history: &History,
    expected: &Expected,
    now_s: f64,
) -> Vec<Reason> {
    let mut reasons = vec![stands(state, history, expected)];
    if state.config.mode == Mode::Orchestrate {
        reasons.extend(plan(state, history));
        reasons.extend(replans(state, history, now_s));
        reasons.extend(wrong::of_run(state, history));
        reasons.extend(devices::of_run(state, history));
    }
    reasons.extend(pool(state, history));
    reasons
}

fn stands(state: &State, history: &History, expected: &Expected) -> Reason {
    let counts = TaskCounts::of(state);
    let tasks = task_words(&counts, RunStatus::of(state, history).lacks_tasks(state.is_closed));
    match state.ended {
        Some(RunEnd::Complete) => {
            return Reason::new(Code::RunComplete, format!("The run has ended: {tasks}."));
        }
        Some(RunEnd::Interrupted) if history.has_died => {
            let text = format!("The run died: its driver is gone. It can be resumed: {tasks}.");
            return Reason::new(Code::RunDied, text);
        }
        Some(RunEnd::Interrupted) if state.interrupted.is_none() => {
            let text = format!(
                "The run has ended: the remaining tasks need more devices than the pool had. \
                 Resume it on a larger pool: {tasks}."
            );
            return Reason::new(Code::RunInterrupted, text);
        }
        Some(RunEnd::Interrupted) => {
            let text = format!("The run was stopped and can be resumed: {tasks}.");
            return Reason::new(Code::RunInterrupted, text);
        }
        None => {}
    }
    if let Some(at_once) = state.interrupted {
        let how = if at_once { "at once" } else { "at checkpoints" };
        return Reason::new(Code::RunStops, format!("The run is stopping {how}: {tasks}."));
    }
    let until_s = expected.end_s();
    let is_training = state.attempts.values().any(|one| one.purpose == Purpose::Train);
    let trials = TrialCounts::of(state);
    if is_training {
        let text = format!("The run goes on: {tasks}; planned tasks end{}.", until_end(until_s));
        return Reason::new(Code::RunGoesOn, text).until(until_s);
    }
    if trials.running > 0 {
        let (num_known, num_all) = trials.progress();
        let text =
            format!("The run measures: {num_known} of {}; {tasks}.", count(num_all, "trial"));
        return Reason::new(Code::RunMeasures, text);
    }
    if counts.inspecting > 0 {
        let text = format!("The run inspects models, to see which strategies can run: {tasks}.");
        return Reason::new(Code::RunMeasures, text);
    }
    if counts.open() == 0 {
        let text = format!("Every task has ended, and more may come: {tasks}.");
        return Reason::new(Code::RunIdle, text);
    }
    if counts.open() == counts.paused {
        return Reason::new(
            Code::RunAllPaused,
            format!("Every task that is left is paused: {tasks}."),
        );
    }
    if counts.open() == counts.paused + counts.held {
        let text = format!("Every task that is left is held by the stopper, or paused: {tasks}.");
        return Reason::new(Code::RunAllHeld, text);
    }
    let open = || state.task_ids().filter(|task| !state.has_ended(*task));
    let can_run = |task| state.fits_pool(task) || state.task(task).must_not_train();
    let to_measure = trials.open + state.num_to_inspect();
    if to_measure == 0 && !open().any(can_run) || state.num_devices() == 0 {
        let text =
            format!("No task can run on the {} that there are: {tasks}.", words::pool_of(state));
        return Reason::new(Code::RunNoRoom, text);
    }
    let text = format!("Nothing runs: {tasks}; tasks wait for a plan or for their time.");
    Reason::new(Code::RunPlans, text).until(until_s)
}

fn until_end(until_s: Option<f64>) -> String {
    until_s.map_or_else(
        || " at a time not known yet".to_owned(),
        |at_s| format!(" at about {}", clock(at_s)),
    )
}

/// Why this plan is in force, and what is proven of it.
fn plan(state: &State, history: &History) -> Option<Reason> {
    let Some(plan) = history.plans.last() else {
        let text = "No plan has been made: nothing can be planned yet.";
        return state.ended.is_none().then(|| Reason::new(Code::PlanNone, text));
    };
    let at = clock(plan.at_s);
    Some(match &plan.source {
        PlanSource::Solver => {
            let text =
                format!("The plan made at {at} is the solver's: {}.", proven(state, history, plan));
            Reason::new(Code::PlanSolved, text)
        }
        PlanSource::Extended { reason } => {
            let reason = reason.as_ref().map(|reason| {
                format!(" The solver's own plan can't be used: {}.", first_line(reason))
            });
            let text = format!(
                "The plan made at {at} is an earlier plan with new tasks put behind it, one by \
                 one: {}.{}",
                proven(state, history, plan),
                reason.unwrap_or_default()
            );
            Reason::new(Code::PlanExtended, text)
        }
    })
}

fn proven(state: &State, history: &History, plan: &RunPlan) -> String {
    let promised = format!("it promised {} for {}", duration(plan.makespan_s), tasks(plan));
    if plan.lower_bound_s > 0.0 {
        let bound = duration(plan.lower_bound_s);
        let above = percent(plan.gap());
        let is_over =
            state.ended == Some(RunEnd::Complete) && did_all_that_was_planned(state, history);
        let took_s = trained_until_s(history).filter(|_| is_over).map(|end_s| end_s - plan.at_s);
        let too_long = took_s
            .filter(|took_s| *took_s < plan.lower_bound_s)
            .map(|took_s| format!("; it took {}: the estimates were too long", duration(took_s)));
        format!(
            "{promised}, {above} above the lower bound of {bound} that is proven by these \
             estimates{}",
            too_long.unwrap_or_default()
        )
    } else {
        format!("{promised}, without a proven lower bound")
    }
}

fn tasks(plan: &RunPlan) -> String {
    count(plan.num_tasks(), "task")
}

/// What the last new plan promised to gain, and what introspection and solver have found since.
fn replans(state: &State, history: &History, now_s: f64) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let last_s = history.plans.last().map_or(0.0, |plan| plan.at_s);
    let gained = history.plans.iter().rev().find_map(|plan| Some((plan, promised(plan)?)));
    if let Some((plan, promised)) = gained {
        // Only for the last plan can the outcome be compared with the promise: a later plan changes
        // what an earlier one promised.
        let is_last = plan.at_s >= last_s && state.ended == Some(RunEnd::Complete);
        let ended_s =
            trained_until_s(history).filter(|_| is_last).map(|ended_s| ended_s - plan.at_s);
        let realised = ended_s.map(|took_s| format!("; they ended after {}", duration(took_s)));
        let text = format!(
            "The last new plan for the same tasks, at {}, {promised}{}.",
            clock(plan.at_s),
            realised.unwrap_or_default()
        );
        reasons.push(Reason::new(Code::ReplanGain, text));
    }
    if let Some((at_s, time_left_s, best_s)) = history.kept.filter(|(at_s, ..)| *at_s >= last_s) {
        let text = format!(
            "At {} the plan was kept, with {}.",
            clock(at_s),
            events::kept(time_left_s, best_s)
        );
        reasons.push(Reason::new(Code::ReplanKept, text));
    }
    if let Some((at_s, why)) = history.not_solved.as_ref().filter(|(at_s, _)| *at_s >= last_s) {
        let ago = duration(now_s - at_s);
        let text = format!("The solver gave no plan {ago} ago: {}.", first_line(why));
        reasons.push(Reason::new(Code::SolverFailed, text));
    }
    reasons
}

/// Devices and nodes that are not used.
fn pool(state: &State, history: &History) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let name = |node: NodeId| state.cluster.nodes[node.0].name.clone();
    for node in state.present_nodes() {
        for device in (0u32..).take(state.nodes[node.0].devices.len()) {
            let one = state.device(DeviceId { node, device });
            if let Some(why) = one.and_then(|one| one.set_aside.as_ref()) {
                let text =
                    format!("Device {device} of {} is set aside: {}.", name(node), first_line(why));
                reasons.push(Reason::new(Code::DeviceSetAside, text));
            }
        }
    }
    let gone = (0..state.nodes.len()).map(NodeId).filter(|node| !state.nodes[node.0].is_there);
    for node in gone {
        let last = history.pool.iter().rev().find(|change| change.node == node);
        let Some(PoolEvent::Left(why)) = last.map(|change| &change.what) else { continue };
        let at = last.map(|change| format!(" at {}", clock(change.at_s))).unwrap_or_default();
        let text = format!("Node {} left{at}: {}.", name(node), first_line(why));
        reasons.push(Reason::new(Code::NodeGone, text));
    }
    reasons
}
