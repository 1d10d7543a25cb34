//! Why a task has its strategy: how long other strategies would take, and why some are impossible.
//!
//! A plan does not give each task its fastest strategy, but lets all tasks end soonest. So each
//! candidate is compared both by its time and by its device-seconds.

use saturn_core::{Finding, StrategyKey, TrialOutcome};
use saturn_engine::{State, TaskId, TaskState, TrialKey, TrialState};
use serde::{Deserialize, Serialize};

use crate::explain::code::Code;
use crate::facts::history::History;
use crate::facts::ways::{next_places, way_of};
use crate::layout::units::{duration, signed_percent, step_time};
use crate::phrases::words::first_line;

/// Times that differ by a smaller share than this count as equal.
const ALIKE: f64 = 0.001;

/// A strategy that a task has or could have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Type of device.
    pub gpu_type: String,
    /// Seconds a step: from the newest training, else from a trial, else estimated.
    #[serde(default)]
    pub step_s: Option<f64>,
    /// Whether `step_s` is an estimate.
    #[serde(default)]
    pub is_estimate: bool,
    /// The peak memory of a device in the trial, bytes; null if it was not measured.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
    /// The least memory that a device needs, bytes, according to the inspection of the model; null
    /// if unknown.
    #[serde(default)]
    pub least_memory_bytes: Option<u64>,
    /// Seconds for the rest of the task, including launch and load, and the stop of an attempt that
    /// trains under another strategy now. For an ended task, seconds for all of its steps.
    pub time_s: Option<f64>,
    /// How many seconds more than the chosen strategy.
    pub slower_s: Option<f64>,
    /// The same as a share of the chosen strategy's time.
    pub slower_share: Option<f64>,
    /// Device-seconds.
    pub device_s: Option<f64>,
    /// Why the task has this strategy, or does not have it.
    pub code: Code,
    /// The same in words, for people.
    pub sentence: String,
}

/// The candidates of a task: its present strategy, then possible strategies by time, then
/// impossible ones.
pub(crate) fn of(state: &State, history: &History, task: TaskId, now_s: f64) -> Vec<Candidate> {
    let next = next_places(state).get(&task).copied();
    let way = way_of(state, history, next, task);
    let chosen = way.map(|(strategy, gang)| TrialKey {
        strategy: strategy.key(),
        gpu_type: state.gang_type(gang).to_owned(),
    });
    let chosen_s = chosen.as_ref().and_then(|key| time_s(state, task, key, now_s));
    let chosen = chosen.as_ref().zip(chosen_s);
    let mut candidates: Vec<Candidate> = state
        .group_of(task)
        .trials
        .iter()
        .map(|(key, trial)| candidate(state, task, (key.as_ref(), trial), chosen, now_s))
        .collect();
    candidates.sort_by(|left, right| {
        let order = |one: &Candidate| (one.code != Code::Chosen, one.time_s.is_none());
        let time_s = |one: &Candidate| one.time_s.unwrap_or(f64::INFINITY);
        order(left).cmp(&order(right)).then(time_s(left).total_cmp(&time_s(right)))
    });
    candidates
}

/// Seconds that a strategy takes for the rest of a task. For an ended task, seconds for all of its
/// steps.
fn time_s(state: &State, task: TaskId, key: &TrialKey, now_s: f64) -> Option<f64> {
    let strategy = &state.group_of(task).trials.get(key)?.strategy;
    let TaskState { spec, steps, .. } = state.task(task);
    if state.has_ended(task) {
        let all = steps.as_ref()?.saturating_sub(spec.start_step);
        return state.training_s(task, strategy, &key.gpu_type, all);
    }
    let Some((_, attempt)) = state.attempt_of(task) else {
        return state.time_under_s(task, strategy, &key.gpu_type);
    };
    if attempt.strategy.is_of(&key.strategy) && state.gang_type(&attempt.gang) == key.gpu_type {
        return Some(state.time_left_s(attempt, None, now_s));
    }
    let stop_s = state.stop_of(attempt, now_s).1 - now_s;
    Some(stop_s + state.time_under_s(task, strategy, &key.gpu_type)?)
}

fn candidate(
    state: &State,
    task: TaskId,
    (key, trial): (&TrialKey, &TrialState),
    chosen: Option<(&TrialKey, f64)>,
    now_s: f64,
) -> Candidate {
    let gpus = key.strategy.gpus;
    let can_run = cannot_run(state, task, key, trial);
    let is_chosen = chosen.is_some_and(|(chosen, _)| chosen == key);
    let time_s = time_s(state, task, key, now_s).filter(|_| can_run.is_none() || is_chosen);
    let slower_s = time_s.zip(chosen).map(|(time_s, (_, chosen_s))| time_s - chosen_s);
    let slower_share = slower_s
        .zip(chosen)
        .filter(|(_, (_, chosen_s))| *chosen_s > 0.0)
        .map(|(slower_s, (_, chosen_s))| slower_s / chosen_s);
    let (code, sentence) = match (can_run, chosen, time_s) {
        _ if is_chosen => (Code::Chosen, chosen_words(state, task)),
        (Some(why), _, _) => why,
        (None, Some((chosen, chosen_s)), Some(time_s)) => {
            let is_other_type = chosen.gpu_type != key.gpu_type;
            compared((time_s, gpus), (chosen_s, chosen.strategy.gpus), is_other_type)
        }
        (None, ..) => (Code::NotTried, "not compared: the task has no strategy yet".to_owned()),
    };
    let measured = match &trial.outcome {
        Some(TrialOutcome::Measured { step_s, peak_memory_bytes, .. }) => {
            Some((*step_s, *peak_memory_bytes))
        }
        _ => None,
    };
    let clocked_s = trial.trained_step_s.or(measured.map(|(step_s, _)| step_s));
    let estimated_s = trial.estimate.map(|estimate| estimate.step_s);
    Candidate {
        technique: key.strategy.technique.clone(),
        gpus,
        gpu_type: key.gpu_type.clone(),
        step_s: clocked_s.or(estimated_s.filter(|_| trial.outcome.is_none())),
        is_estimate: clocked_s.is_none() && trial.outcome.is_none() && estimated_s.is_some(),
        peak_memory_bytes: measured.map(|(_, bytes)| bytes),
        least_memory_bytes: least_memory_bytes(state, task, key),
        time_s,
        slower_s,
        slower_share,
        device_s: time_s.map(|time_s| time_s * f64::from(gpus)),
        code,
        sentence,
    }
}

fn least_memory_bytes(state: &State, task: TaskId, key: &TrialKey) -> Option<u64> {
    let found = state.group_of(task).inspection.found.as_ref()?;
    found.verdicts.iter().find_map(|verdict| match verdict.finding {
        Finding::CanRun { least_memory_bytes, .. }
            if verdict.technique == key.strategy.technique
                && verdict.gpus == key.strategy.gpus
                && verdict.gpu_type == key.gpu_type =>
        {
            least_memory_bytes
        }
        _ => None,
    })
}

fn chosen_words(state: &State, task: TaskId) -> String {
    if state.has_ended(task) {
        "the task's last strategy".to_owned()
    } else if state.attempt_of(task).is_some() {
        "in use now".to_owned()
    } else {
        "chosen by the plan".to_owned()
    }
}

/// Compares a candidate with the chosen strategy, by time and by device-seconds.
fn compared(
    (time_s, gpus): (f64, u32),
    (chosen_s, chosen_gpus): (f64, u32),
    is_other_type: bool,
) -> (Code, String) {
    let (area, chosen_area) = (time_s * f64::from(gpus), chosen_s * f64::from(chosen_gpus));
    let is_slower = time_s >= chosen_s * (1.0 - ALIKE);
    let is_dearer = area >= chosen_area * (1.0 - ALIKE);
    let code = match (is_slower, is_dearer) {
        (true, true) => Code::Worse,
        (true, false) => Code::Longer,
        (false, true) => Code::MoreDeviceTime,
        (false, false) if is_other_type => Code::OtherType,
        (false, false) => Code::BetterNow,
    };
    let by = |value: f64, of: f64| signed_percent(value / of.max(1e-9) - 1.0);
    let seconds = time_s - chosen_s;
    let seconds = format!("{}{}", if seconds < 0.0 { "" } else { "+" }, duration(seconds));
    let time = format!("{seconds} ({})", by(time_s, chosen_s));
    let area = format!("{} of the devices' time", by(area, chosen_area));
    let sentence = match code {
        Code::BetterNow => format!("{time}, {area}; the next plan may choose this"),
        Code::OtherType => format!("{time}, but on devices of another type"),
        _ => format!("{time}, {area}"),
    };
    (code, sentence)
}

/// Why a task can't have a strategy; `None` if it can.
fn cannot_run(
    state: &State,
    task: TaskId,
    key: &TrialKey,
    trial: &TrialState,
) -> Option<(Code, String)> {
    let may_hold = state.may_hold(task, key.strategy.gpus);
    let task = state.task(task);
    let TrialKey { strategy: StrategyKey { gpus, .. }, gpu_type } = key;
    if let Some((_, why)) = task.excluded.iter().find(|(excluded, _)| *excluded == key.strategy) {
        return Some((Code::Excluded, format!("excluded: {}", first_line(why))));
    }
    if task.spec.gpu_range.as_ref().is_some_and(|range| !range.contains(gpus)) {
        return Some((Code::NotAllowed, "the task's gpu_range does not allow it".to_owned()));
    }
    if !task.spec.allows_key(&key.strategy) {
        return Some((Code::NotAllowed, "the task's techniques do not allow it".to_owned()));
    }
    if !may_hold {
        let text = "its person may not hold so many devices at once".to_owned();
        return Some((Code::NotAllowed, text));
    }
    if trial.outcome.is_some() && !task.spec.allows(&trial.strategy) {
        return Some((Code::NotAllowed, "the task's knobs do not allow it".to_owned()));
    }
    match &trial.outcome {
        Some(TrialOutcome::NotApplicable { reason }) => {
            return Some((Code::NotApplicable, format!("not applicable: {}", first_line(reason))));
        }
        Some(TrialOutcome::OutOfMemory { detail }) => {
            return Some((Code::OutOfMemory, format!("out of memory: {}", first_line(detail))));
        }
        Some(TrialOutcome::Failed { error, .. }) => {
            return Some((Code::TrialFailed, format!("its trial failed: {}", first_line(error))));
        }
        Some(TrialOutcome::Measured { .. }) | None => {}
    }
    if !state.has_nodes_for(gpu_type, *gpus) {
        let text = "the pool has too few devices of this type now".to_owned();
        return Some((Code::NoDevices, text));
    }
    if trial.is_known() {
        return None;
    }
    let is_ruled_out = state.is_ruled_out(task.group, key);
    let how = if trial.attempt.is_some() {
        "being measured".to_owned()
    } else if is_ruled_out {
        "not measured: trials that need no more memory ran out of memory".to_owned()
    } else if state.is_open_trial(task.group, key) {
        "to be measured: a plan with this strategy might be better".to_owned()
    } else if let Some(estimate) = trial.estimate {
        format!(
            "not measured: {} to {} expected, too slow to improve the plan enough",
            step_time(estimate.step_s_at(-1.0)),
            step_time(estimate.step_s_at(1.0)),
        )
    } else {
        "not measured".to_owned()
    };
    Some((Code::NotTried, how))
}
