//! What keeps a task from training.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::names::escape_terminal;
use saturn_engine::{Mode, NoSpace, Place, Purpose, State, TaskId, devices};

use crate::explain::code::Code;
use crate::explain::failures::{failure_of, last_attempt};
use crate::explain::reason::{Reason, names, until};
use crate::facts::expect::Expected;
use crate::facts::history::History;
use crate::facts::ways::next_places;
use crate::layout::units::{clock, count};
use crate::phrases::events::{self, WAITS_FOR_SPACE};
use crate::phrases::words::{self, first_line};

/// Everything that keeps a task from training, most decisive first.
pub(super) fn waiting(
    state: &State,
    history: &History,
    expected: &Expected,
    task: TaskId,
    now_s: f64,
) -> Vec<Reason> {
    let task_state = state.task(task);
    let name = state.name(task);
    let mut reasons = Vec::new();
    if task_state.is_paused {
        let since = history.task(task).and_then(|past| past.paused_s);
        let since = since.map(|at_s| format!(" since {}", clock(at_s))).unwrap_or_default();
        let at = at_step(task_state.step);
        let text = format!("{name} is paused{since}{at}, until it is unpaused.");
        reasons.push(Reason::new(Code::Paused, text));
    }
    if task_state.is_owner_away
        && let Some(owner) = &task_state.spec.owner
    {
        let text = format!(
            "{name} waits: the agent of {0}, which starts the processes of {0}'s tasks, is not \
             there. It starts when {0} calls saturn join, or saturn submit.",
            owner.name
        );
        reasons.push(Reason::new(Code::OwnerAway, text));
    }
    if let Some(why) = task_state.held() {
        let at = at_step(task_state.step);
        let why = first_line(why);
        let text = format!("{name} is held by the stopper{at}: {why}.");
        reasons.push(Reason::new(Code::Held, text));
    }
    if state.ended.is_some() || state.interrupted.is_some() {
        let at = at_step(task_state.step);
        let what = if history.has_died {
            "the run died; the task goes on when the run is resumed"
        } else if state.ended.is_some() {
            "the run was stopped; the task goes on when the run is resumed"
        } else {
            "the run is being stopped"
        };
        reasons.push(Reason::new(Code::WaitsStopped, format!("{name} waits{at}: {what}.")));
        return reasons;
    }
    reasons.extend(predecessors(state, expected, task));
    let wishes = &task_state.spec.wishes;
    if wishes.release_s > now_s {
        let at = clock(wishes.release_s);
        let text = format!("{name} is not to train before {at}.");
        reasons.push(Reason::new(Code::WaitsRelease, text).until(Some(wishes.release_s)));
    }
    if let Some(no_space) = state.no_space(task) {
        reasons.push(space(state, no_space, task));
        if !state.is_measured(task) {
            return reasons;
        }
    } else if task_state.not_before_s > now_s {
        reasons.push(retry(state, history, task));
    }
    if state.config.mode == Mode::Search && state.is_measured(task) {
        reasons.push(Reason::new(
            Code::OnlyMeasured,
            format!("{name} is measured: this run measures, and trains nothing."),
        ));
        return reasons;
    }
    if task_state.must_not_train() {
        return reasons;
    }
    if let Some(place) = next_places(state).get(&task).copied() {
        reasons.extend(at_place(state, expected, place, reasons.is_empty()));
    } else {
        reasons.extend(quota(state, expected, task, least_devices(state, task)));
        reasons.extend(without_place(state, history, task));
    }
    reasons
}

/// The reason of a task whose person may not hold so many more devices now.
fn quota(state: &State, expected: &Expected, task: TaskId, gpus: u32) -> Option<Reason> {
    let uid = state.task(task).uid();
    let (sharing, quota) = (state.config.policy.sharing.as_ref()?, state.quota(uid)?);
    if state.may_hold_more(task, gpus) {
        return None;
    }
    let own = || state.attempts.values().filter(|one| state.task(one.task).uid() == uid);
    let holders: BTreeSet<TaskId> =
        own().filter(|one| one.devices().next().is_some()).map(|one| one.task).collect();
    let holders: Vec<String> = holders.into_iter().map(|one| state.name(one).to_owned()).collect();
    let start_s = expected.times(task).map(|(start_s, _)| start_s);
    let text = format!(
        "{} waits: {}'s tasks may hold {} at once, and hold {}{}.",
        state.name(task),
        escape_terminal(state.login(sharing, uid)),
        count(quota as usize, "device"),
        state.held_by(uid),
        until(start_s),
    );
    Some(Reason::new(Code::WaitsQuota, text).about(holders).until(start_s))
}

/// The fewest devices that a task without a place may take: under a strategy that is known, or else in
/// a trial.
fn least_devices(state: &State, task: TaskId) -> u32 {
    let group = state.task(task).group;
    let open = state.open_trials().filter(|(of, _)| *of == group);
    let open = open.map(|(_, key)| key.strategy.gpus).min();
    let known = state.choices(task).map(|choice| choice.trial.strategy.gpus).min();
    known.or(open).unwrap_or(1)
}

fn predecessors(state: &State, expected: &Expected, task: TaskId) -> Option<Reason> {
    let before: Vec<TaskId> = state.waits_for(task).collect();
    if before.is_empty() {
        return None;
    }
    let ends = before.iter().map(|one| Some(expected.times(*one)?.1));
    let until_s =
        ends.collect::<Option<Vec<f64>>>().map(|ends| ends.into_iter().fold(0.0, f64::max));
    let before: Vec<String> = before.iter().map(|one| state.name(*one).to_owned()).collect();
    let verb = if before.len() == 1 { "is" } else { "are" };
    let when = match until_s {
        Some(until_s) => format!("done at about {}", clock(until_s)),
        None => "not done".to_owned(),
    };
    let text = format!("{} comes after {}, which {verb} {when}.", state.name(task), names(&before));
    Some(Reason::new(Code::WaitsPredecessor, text).about(before).until(until_s))
}

/// The reason of a task that waits because the disk was full.
fn space(state: &State, no_space: &NoSpace, task: TaskId) -> Reason {
    let (name, error) = (state.name(task), first_line(&no_space.error));
    let other = Some(no_space.task).filter(|other| *other != task);
    let other = other.map(|other| state.name(other).to_owned());
    let whose = match &other {
        Some(other) => format!("the trial of {other}, which performs alike, met a full disk"),
        None if state.is_measured(task) => "the disk was full".to_owned(),
        None => "its trial met a full disk".to_owned(),
    };
    let again = clock(no_space.until_s());
    let text = format!(
        "{name} {WAITS_FOR_SPACE}: {whose}: {error}. It is tried again when there is more room, and at {again} at the \
         latest."
    );
    Reason::new(Code::WaitsSpace, text)
        .about(other.into_iter().collect())
        .until(Some(no_space.until_s()))
}

/// The reason of a task that failed and waits for its next attempt.
fn retry(state: &State, history: &History, task: TaskId) -> Reason {
    let task_state = state.task(task);
    let name = state.name(task);
    let last = last_attempt(history, task);
    let at = clock(task_state.not_before_s);
    let why = last.and_then(failure_of).map(|kind| format!(" ({})", words::failure_kind(kind)));
    let counted = match task_state.failures {
        0 => String::new(),
        _ => format!(", {}", events::failures(state, task)),
    };
    let why = why.unwrap_or_default();
    let text = format!("{name} failed{why} and is tried again from {at} on{counted}.");
    Reason::new(Code::WaitsRetry, text).until(Some(task_state.not_before_s))
}

/// The reasons of a task that has no place in the plan in force.
fn without_place(state: &State, history: &History, task: TaskId) -> Vec<Reason> {
    let name = state.name(task);
    let group = state.task(task).group;
    let inspection = &state.groups[group].inspection;
    if state.is_measured_later(task) {
        return Vec::new(); // The reason that names its predecessors is enough.
    }
    if inspection.attempt.is_some() || state.is_to_inspect(group) {
        let text = if inspection.attempt.is_some() {
            format!("{name}'s model is being inspected, to find out which strategies can run it.")
        } else {
            format!("{name}'s model waits for its inspection: other models come first.")
        };
        return vec![Reason::new(Code::WaitsInspection, text)];
    }
    let trials = &state.groups[group].trials;
    let num_running = trials.values().filter(|trial| trial.attempt.is_some()).count();
    let num_open = state.open_trials().filter(|(one, _)| *one == group).count();
    let num_known = trials.values().filter(|trial| trial.outcome.is_some()).count();
    let num_all = num_known + num_open + num_running;
    let known = format!("{num_known} of {} known", count(num_all, "trial"));
    if num_running > 0 {
        let speaker = state.attempts.values().find(|attempt| {
            attempt.purpose == Purpose::Trial && state.task(attempt.task).group == group
        });
        let speaker = speaker.map(|attempt| attempt.task).filter(|speaker| *speaker != task);
        let (through, tasks) = match speaker {
            Some(other) => {
                let other = state.name(other).to_owned();
                (format!(", on the task {other}, which performs alike"), vec![other])
            }
            None => (String::new(), Vec::new()),
        };
        let left_s = history.mean_trial_s().map(|mean_s| state.now_s + mean_s);
        let text = format!("{name}'s strategies are being measured{through}: {known}.");
        return vec![Reason::new(Code::WaitsTrials, text).about(tasks).until(left_s)];
    }
    if !state.is_measured(task) && num_open > 0 {
        let holders: BTreeSet<TaskId> = state.attempts.values().map(|one| one.task).collect();
        let holders: Vec<String> =
            holders.into_iter().map(|one| state.name(one).to_owned()).collect();
        let text = if holders.is_empty() {
            format!(
                "{name}'s strategies are to be measured, as soon as there are devices: {known}."
            )
        } else {
            let leave = if holders.len() == 1 { "leaves" } else { "leave" };
            format!(
                "{name}'s strategies are to be measured when {} {leave} devices: {known}.",
                names(&holders)
            )
        };
        return vec![Reason::new(Code::WaitsTrialDevices, text).about(holders)];
    }
    if let Some(why) = state.out_of_range(&state.task(task).spec) {
        let text = format!("{name} waits for devices that the pool does not have: {why}.");
        return vec![Reason::new(Code::WaitsRoom, text)];
    }
    if !state.fits_pool(task) {
        let needs = match state.needed_devices(task) {
            Some(needs) => format!("its strategies need {needs} on one node"),
            None => "none of its strategies is known to run on the pool's devices".to_owned(),
        };
        let text = format!("{name} waits for devices that the pool does not have: {needs}.");
        return vec![Reason::new(Code::WaitsRoom, text)];
    }
    vec![Reason::new(Code::WaitsPlan, format!("{name} is measured, and waits for the next plan."))]
}

/// What keeps a task from starting at its place. `is_only` says that nothing else keeps it.
fn at_place(state: &State, expected: &Expected, place: &Place, is_only: bool) -> Option<Reason> {
    let task = place.task;
    let name = state.name(task);
    let strategy = words::strategy(&place.strategy);
    let on = words::on_devices(&state.cluster, &place.gang);
    let holders: BTreeSet<_> =
        devices(&place.gang).filter_map(|device| state.device(device)?.held_by).collect();
    let mut leaving: Vec<Option<f64>> = Vec::new();
    let mut others: BTreeMap<TaskId, &str> = BTreeMap::new();
    for attempt in holders.iter().filter_map(|id| state.attempts.get(id)) {
        let (what, end_s) = match attempt.purpose {
            // An inspection holds no device.
            Purpose::Inspection => continue,
            Purpose::Trial => ("is measured", None),
            Purpose::Train if attempt.stopping.is_some() => ("stops", None),
            Purpose::Train => ("trains", expected.times(attempt.task).map(|(_, end_s)| end_s)),
        };
        others.insert(attempt.task, what);
        leaving.push(end_s);
    }
    if !others.is_empty() {
        let last = last_before(state, expected, place);
        let known_s = leaving.into_iter().collect::<Option<Vec<f64>>>();
        let known_s = known_s.map(|ends| ends.into_iter().fold(0.0, f64::max));
        let until_s = last.map(|(_, end_s)| end_s).or(known_s);
        let when = match last.filter(|(other, _)| !others.contains_key(other)) {
            Some((other, end_s)) => {
                format!(", and then {} until about {}", state.name(other), clock(end_s))
            }
            None => until(until_s),
        };
        let who: Vec<String> =
            others.iter().map(|(other, what)| format!("{} {what}", state.name(*other))).collect();
        let text =
            format!("{name} waits to train under {strategy} on {on}, where {}{when}.", names(&who));
        let all = others.keys().copied().chain(last.map(|(other, _)| other));
        let tasks: BTreeSet<TaskId> = all.collect();
        let tasks = tasks.into_iter().map(|other| state.name(other).to_owned()).collect();
        return Some(Reason::new(Code::WaitsDevices, text).about(tasks).until(until_s));
    }
    if let Some(first) = before_it(state, place) {
        let other = state.name(first.task).to_owned();
        let start_s = expected.times(first.task).map(|(start_s, _)| start_s);
        let when = start_s.map(|at_s| format!(", which starts at about {}", clock(at_s)));
        let text = format!(
            "{name} waits to train under {strategy} on {on}, kept for {other} ({} on {}){}.",
            words::strategy(&first.strategy),
            words::devices(&state.cluster, &first.gang),
            when.unwrap_or_default()
        );
        return Some(Reason::new(Code::WaitsTurn, text).about(vec![other]));
    }
    let gpus = u32::try_from(devices(&place.gang).count()).unwrap_or(u32::MAX);
    if let Some(reason) = quota(state, expected, task, gpus) {
        return Some(reason);
    }
    is_only
        .then(|| Reason::new(Code::Ready, format!("{name} starts now under {strategy} on {on}.")))
}

/// The task that trains last before a place on the place's devices, and until when.
fn last_before(state: &State, expected: &Expected, place: &Place) -> Option<(TaskId, f64)> {
    let times = &expected.forecast.places;
    let ends = before(state, place)
        .filter_map(|(index, one)| Some((one.task, times.get(index).copied().flatten()?.1)));
    ends.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The first open place of another task before this place, on one of its devices.
fn before_it<'a>(state: &'a State, place: &Place) -> Option<&'a Place> {
    before(state, place).next().map(|(_, first)| first)
}

/// The open places of other tasks before this place, on one of its devices, with their indices.
fn before<'a>(state: &'a State, place: &Place) -> impl Iterator<Item = (usize, &'a Place)> {
    let held: BTreeSet<_> = devices(&place.gang).collect();
    state
        .open_places()
        .take_while(move |(_, one)| *one != place)
        .filter(move |(_, one)| one.task != place.task)
        .filter(move |(_, one)| devices(&one.gang).any(|device| held.contains(&device)))
}

/// ` at step 120`; empty at the start.
pub(super) fn at_step(step: u64) -> String {
    if step > 0 { format!(" at step {step}") } else { String::new() }
}
