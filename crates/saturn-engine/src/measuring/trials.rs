//! When each trial runs, and what its end means.
//!
//! Trials get free devices before anything else does, wide trials first, and trials of one width in
//! the order in which their groups came. Where people share the pool, the first trials of people who
//! hold nothing come before all others (`shares`). A narrow trial may overtake a wide trial that has
//! to wait, and no two ever share a device. If a trial only waits for other trials to end, the
//! devices that are already free for it are kept for it. If it waits for training to end, they are
//! not kept. A task may train on them under a measured strategy, and the trial runs when there is
//! room again. If a trial only waits for inspections, its devices are kept for it too
//! (`inspections`).
//!
//! If the functions of a trial's task raise, that task is to blame (`blame`). It ends if the same
//! would happen under every strategy. Otherwise the strategy is excluded for this task, and the
//! trial is repeated with another task, after all trials under which no functions have raised. If
//! the same functions then work in another trial, the strategy was to blame after all: it has
//! failed for the whole group.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;

use saturn_core::{Knobs, Strategy, StrategyKey, TrialOutcome};

use crate::facts::config::Mode;
use crate::facts::failure::{FailureKind, RankFailure};
use crate::facts::ids::{AttemptId, DeviceId, NodeId, TaskId, devices};
use crate::facts::record::{Purpose, Record};
use crate::following::host_memory::{
    HostMemoryQueue, TRIAL_S, has_host_memory_beside, keep_for_a_trial,
};
use crate::ledger::book::Ledger;
use crate::measuring::cooldowns::{Cooldowns, waits_for_space};
use crate::measuring::going_on::{has_trial_task, let_go_on, trial_task};
use crate::measuring::inspections::trials_keep_apart;
use crate::measuring::room::{make_room, make_room_for_share};
use crate::measuring::shares::Holdings;
use crate::state::attempt::Attempt;
use crate::state::blame::{end_of, is_early, is_everywhere, is_own_failure};
use crate::state::breadth::holds;
use crate::state::run::State;
use crate::state::trial::{TrialKey, TrialState};
use crate::state::vacancies::Vacancies;

/// How many failures that may be chance a trial may have before it counts as failed.
const MAX_TRIAL_FAILURES: u32 = 2;

/// Trials are looked at in three rounds. The trials of a round get devices before the trials of later
/// rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The first trials of people who hold nothing.
    Owed,
    /// All trials that belong to no other round.
    Others,
    /// Trials in which functions of their tasks have raised.
    HaveRaised,
}

impl Round {
    fn of(trial: &TrialState, is_owed: bool) -> Self {
        match (trial.own_failures > 0, is_owed) {
            (true, _) => Self::HaveRaised,
            (false, true) => Self::Owed,
            (false, false) => Self::Others,
        }
    }
}

/// The rounds, each with the widths of the open trials: wide trials first.
fn rounds(state: &State, is_shared: bool) -> Vec<(Round, String, u32)> {
    let widths = state.open_trials.keys();
    let of = |round: Round| widths.clone().map(move |(of, gpus)| (round, of.clone(), gpus.0));
    let owed = is_shared.then_some(Round::Owed).into_iter();
    owed.chain([Round::Others, Round::HaveRaised]).flat_map(of).collect()
}

/// Launches the trials that fit, and keeps devices for trials that will soon fit.
pub(crate) fn launch_trials(
    ledger: &mut Ledger,
    cooldowns: &Cooldowns,
    host_memory: &mut HostMemoryQueue,
    now_s: f64,
) {
    if !std::mem::take(&mut ledger.agenda.trials_changed) {
        return;
    }
    if ledger.state.open_trials.is_empty()
        && ledger.agenda.kept_for_trials.is_empty()
        && host_memory.waiting_trial().is_none()
    {
        return;
    }
    let mut lacking = Vec::new();
    let keep_apart = trials_keep_apart(ledger, cooldowns, now_s);
    let mut kept = BTreeSet::new();
    // They are worked out once a trial may have room: in a full pool hardly any has.
    let mut vacancies: Option<Vacancies> = None;
    let holdings = Holdings::of(&ledger.state);
    for (round, gpu_type, gpus) in rounds(&ledger.state, holdings.is_some()) {
        let mut most = vacancies.as_ref().map(|vacancies| vacancies.most(&gpu_type, gpus));
        let mut before = None;
        while most != Some(0) {
            let next = next_open(&ledger.state, (&gpu_type, gpus), before.as_ref(), round);
            let Some((group, technique)) = next else { break };
            before = Some((group, technique.clone()));
            let key = trial_key(&technique, gpus, &gpu_type);
            let is_owed = |all: &Holdings| all.are_owed(&ledger.state, group, &key, now_s);
            let is_owed = holdings.as_ref().is_some_and(is_owed);
            if round != Round::of(&ledger.state.groups[group].trials[&key], is_owed)
                || waits_for_space(ledger, cooldowns, group, now_s)
                || cooldowns.is_cooling_down(group, now_s)
            {
                continue;
            }
            // A group whose tasks have all ended, or are too early, is not tried now. It takes no room
            // from others.
            let is_for_gain = ledger.state.is_chosen(group, &technique, gpus, &gpu_type);
            let may_stop = is_for_gain || is_owed;
            if vacancies.is_none() && !may_stop && !ledger.state.may_have_room(&gpu_type, gpus) {
                if has_trial_task(&ledger.state, group, &key.strategy, now_s) {
                    break; // it is looked at again when something ends
                }
                continue;
            }
            // Which task it is costs a look at all tasks of the group, and in a full pool hardly any
            // trial is launched.
            if !has_trial_task(&ledger.state, group, &key.strategy, now_s) {
                continue;
            }
            let vacancies = vacancies.get_or_insert_with(|| Vacancies::of(&ledger.state));
            most = Some(most.unwrap_or_else(|| vacancies.most(&gpu_type, gpus)) - 1);
            let fits = fits_host(ledger, host_memory, group, &key, now_s);
            if vacancies.has_free(&gpu_type, gpus) {
                // If no free devices fit, the trial is looked at again when an attempt ends.
                let Some(gang) = vacancies.take(&gpu_type, gpus, fits) else {
                    lacking.extend(lacking_memory(ledger, vacancies, group, &key, now_s));
                    continue;
                };
                if keep_apart {
                    kept.extend(devices(&gang));
                    ledger.agenda.trials_changed = true;
                    continue;
                }
                let Some(task) = trial_task(&ledger.state, group, &key.strategy, now_s) else {
                    continue;
                };
                let strategy = &ledger.state.groups[group].trials[&key].strategy;
                let strategy = Strategy::clone(strategy);
                ledger.launch(task, Purpose::Trial, strategy, (gang, None), now_s);
                continue;
            }
            let soon = vacancies.keep(&gpu_type, gpus);
            // To ask every node is the dearest question, so it comes last.
            if soon.is_empty() && !may_stop {
                continue; // it is looked at again when something ends
            }
            if !vacancies.can_hold(&gpu_type, gpus, fits) {
                lacking.extend(lacking_memory(ledger, vacancies, group, &key, now_s));
                continue;
            }
            if soon.is_empty() {
                let make = if is_for_gain { make_room } else { make_room_for_share };
                make(ledger, vacancies, (&gpu_type, gpus), now_s);
                kept.extend(vacancies.keep(&gpu_type, gpus));
            } else {
                kept.extend(soon);
            }
        }
    }
    keep_for_a_trial(ledger, host_memory, &lacking);
    let before = std::mem::replace(&mut ledger.agenda.kept_for_trials, kept);
    for device in before.difference(&ledger.agenda.kept_for_trials) {
        ledger.queues.touch(*device);
    }
}

/// The open trial of a width that comes after another, if the trials are gone through in the order of
/// their groups. In the last round only groups are gone through in whose trials functions have raised.
fn next_open(
    state: &State,
    (gpu_type, gpus): (&str, u32),
    before: Option<&(usize, String)>,
    round: Round,
) -> Option<(usize, String)> {
    let open = state.open_trials.get(&(gpu_type.to_owned(), Reverse(gpus)))?;
    let after = before.map_or(Bound::Unbounded, Bound::Excluded);
    if round != Round::HaveRaised {
        return open.range((after, Bound::Unbounded)).next().cloned();
    }
    let from = before.map_or(0, |(group, _)| *group);
    state.have_raised.range(from..).find_map(|group| {
        let first = (*group, String::new());
        let from = if from == *group { after } else { Bound::Included(&first) };
        open.range((from, Bound::Excluded(&(*group + 1, String::new())))).next().cloned()
    })
}

/// A trial that lacks host memory, with the node that has most of it, if memory is to be kept there for
/// the trial: no task of its group can train before some trial of the group has run.
fn lacking_memory(
    ledger: &Ledger,
    vacancies: &Vacancies,
    group: usize,
    key: &TrialKey,
    now_s: f64,
) -> Option<(usize, TrialKey, NodeId)> {
    let (state, gpus) = (&ledger.state, key.strategy.gpus);
    let is_first = state.groups[group].trials.values().all(|trial| !trial.is_known());
    if !is_first
        || state.config.mode != Mode::Orchestrate
        || vacancies.is_wide(&key.gpu_type, gpus)
        || !has_trial_task(state, group, &key.strategy, now_s)
    {
        return None;
    }
    let nodes = state.present_nodes().filter(|node| {
        state.nodes[node.0].occupancy.usable >= gpus && state.gpu_type(*node) == key.gpu_type
    });
    let node = nodes
        .max_by_key(|node| (state.host_memory_of(*node).unwrap_or(u64::MAX), Reverse(*node)))?;
    Some((group, key.clone(), node))
}

/// Whether so many ranks of a group's strategy may start on a node, as far as host memory goes.
fn fits_host<'a>(
    ledger: &'a Ledger,
    host_memory: &'a HostMemoryQueue,
    group: usize,
    key: &'a TrialKey,
    now_s: f64,
) -> impl Fn(NodeId, u32) -> bool + Copy + 'a {
    let times_s = (now_s, now_s + TRIAL_S);
    let all = key.strategy.gpus;
    let bytes_of_all = ledger.state.host_bytes(group, key, all);
    move |node, ranks| {
        let is_all = ranks == all;
        let needed = if is_all { bytes_of_all } else { ledger.state.host_bytes(group, key, ranks) };
        has_host_memory_beside(ledger, host_memory, node, (None, group, key), needed, times_s)
    }
}

/// Whether nothing is left to do in a search. Called while no attempt lives. A search does not wait
/// for trials that need more devices than can be used. People are told of such trials, once. `left`:
/// devices that programs outside Saturn use for now. It waits for trials that fit with these.
pub(crate) fn is_search_over(ledger: &mut Ledger, left: &BTreeSet<DeviceId>, now_s: f64) -> bool {
    if ledger.state.num_to_inspect() > 0 {
        return false;
    }
    let vacancies = Vacancies::of(&ledger.state);
    if ledger.state.open_trials.keys().any(|(gpu_type, gpus)| vacancies.has_free(gpu_type, gpus.0))
    {
        return false;
    }
    let state = &ledger.state;
    let with_left = |node: NodeId| {
        let left = left.iter().filter(|id| id.node == node).count();
        u32::try_from(state.usable_devices(node).count() + left).unwrap_or(u32::MAX)
    };
    if !left.is_empty() {
        let breadths = state.breadths(with_left);
        if state.open_trials().any(|(_, key)| holds(&breadths, &key.gpu_type, key.strategy.gpus)) {
            return false;
        }
    }
    let left: BTreeSet<String> = ledger
        .state
        .open_trials()
        .map(|(_, TrialKey { strategy, .. })| format!("{}×{}", strategy.technique, strategy.gpus))
        .collect();
    if !left.is_empty() {
        let left = Vec::from_iter(left).join(", ");
        let text = format!("not tried, since too few devices can be used: {left}");
        ledger.commit(Record::Noted { task: None, text }, now_s);
    }
    true
}

pub(crate) fn trial_reported(
    ledger: &mut Ledger,
    host_memory: &HostMemoryQueue,
    attempt: AttemptId,
    knobs: Knobs,
    outcome: TrialOutcome,
    step: Option<u64>,
    now_s: f64,
) {
    let Some(state) = ledger.state.attempts.get_mut(&attempt) else { return };
    if state.purpose != Purpose::Trial || state.completed {
        return;
    }
    state.completed = true;
    let state = state.clone();
    tried(ledger, &state, knobs, outcome, now_s);
    if let Some(step) = step {
        let_go_on(ledger, host_memory, attempt, step, now_s);
    }
}

fn tried(ledger: &mut Ledger, attempt: &Attempt, knobs: Knobs, outcome: TrialOutcome, now_s: f64) {
    let gpu_type = ledger.state.gang_type(&attempt.gang).to_owned();
    let group = ledger.state.group_of(attempt.task);
    let known = group.trial(&attempt.strategy, &gpu_type);
    if known.is_some_and(|trial| trial.outcome.is_some()) {
        return;
    }
    let mut strategy = Strategy::clone(&attempt.strategy);
    strategy.knobs = knobs;
    let group = group.key.clone();
    let is_measured = matches!(outcome, TrialOutcome::Measured { .. });
    ledger.commit(Record::Tried { group, gpu_type, strategy, outcome }, now_s);
    if is_measured {
        blame_strategies(ledger, attempt.task, now_s);
    }
}

/// A task's functions have worked: the strategies under which they had raised have failed for the
/// whole group. If another task is being tried under such a strategy, that trial decides.
fn blame_strategies(ledger: &mut Ledger, task: TaskId, now_s: f64) {
    let excluded = ledger.state.task(task).excluded.clone();
    for (key, error) in excluded {
        let group = ledger.state.group_of(task);
        let blamed = group.trials.iter().filter(|(of, trial)| {
            let is_open = trial.outcome.is_none() && trial.attempt.is_none();
            of.strategy == key && trial.own_failures > 0 && is_open
        });
        let blamed: Vec<(String, Strategy)> = blamed
            .map(|(of, trial)| (of.gpu_type.clone(), Strategy::clone(&trial.strategy)))
            .collect();
        for (gpu_type, strategy) in blamed {
            let group = ledger.state.group_of(task).key.clone();
            let outcome = TrialOutcome::Failed { error: error.clone(), traceback: String::new() };
            ledger.commit(Record::Tried { group, gpu_type, strategy, outcome }, now_s);
        }
    }
}

/// A trial whose gang is gone without an outcome failed. If chance may be the cause, the trial is
/// repeated before the failure counts.
pub(crate) fn trial_failed(
    ledger: &mut Ledger,
    attempt: &Attempt,
    failure: RankFailure,
    now_s: f64,
) {
    let gpu_type = ledger.state.gang_type(&attempt.gang).to_owned();
    let group = ledger.state.group_of(attempt.task);
    let num_failed = group.trial(&attempt.strategy, &gpu_type).map_or(0, |trial| trial.failures);
    let may_be_chance = matches!(
        failure.kind,
        FailureKind::Killed
            | FailureKind::HostMemory
            | FailureKind::Machine
            | FailureKind::Saturn
            | FailureKind::PeerLost
            | FailureKind::Stalled
    );
    if failure.kind == FailureKind::NoSpace || may_be_chance && num_failed < MAX_TRIAL_FAILURES {
        return;
    }
    if is_early(&ledger.state, attempt, failure.kind) {
        return;
    }
    if is_own_failure(&ledger.state, attempt, failure.kind) {
        return own_failure(ledger, attempt, failure, now_s);
    }
    let outcome = match failure.kind {
        FailureKind::OutOfMemory => TrialOutcome::OutOfMemory { detail: failure.error },
        FailureKind::NotApplicable => TrialOutcome::NotApplicable { reason: failure.error },
        _ => TrialOutcome::Failed { error: failure.error, traceback: failure.traceback },
    };
    tried(ledger, attempt, attempt.strategy.knobs.clone(), outcome, now_s);
}

/// The functions of a trial's task are to blame: no other task of the group pays for it. The task
/// ends if another strategy would meet the same; otherwise it may still train under others.
fn own_failure(ledger: &mut Ledger, attempt: &Attempt, failure: RankFailure, now_s: f64) {
    let task = attempt.task;
    if is_everywhere(&attempt.strategy, failure.kind) {
        let end = end_of(&ledger.state, task, &failure);
        ledger.end_task(task, end, now_s);
    } else if !ledger.state.has_ended(task) {
        let key = attempt.strategy.key();
        ledger.commit(Record::Excluded { task, key, reason: failure.error }, now_s);
    }
}

fn trial_key(technique: &str, gpus: u32, gpu_type: &str) -> TrialKey {
    let strategy = StrategyKey { technique: technique.to_owned(), gpus };
    TrialKey { strategy, gpu_type: gpu_type.to_owned() }
}
