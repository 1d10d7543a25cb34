//! Where a task stands, and what keeps it from going on.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{
    Attempt, AttemptEnd, FailureKind, Mode, NoSpace, Place, Purpose, Stage, State, StopReason,
    TaskEnd, TaskId, TaskStatus, devices,
};

use super::{Code, Reason, names, until};
use crate::expect::Expected;
use crate::history::{History, PastAttempt};
use crate::outcome::train_s;
use crate::status::next_places;
use crate::units::{clock, count, duration, number};
use crate::words::{self, first_line};

/// Where a task stands and why. The first reason is the decisive one; the others hold too.
pub(super) fn reasons(
    state: &State,
    history: &History,
    expected: &Expected,
    task: TaskId,
    now_s: f64,
) -> Vec<Reason> {
    if let TaskStatus::Ended(end) = &state.task(task).status {
        return vec![ended(state, history, task, end)];
    }
    if let Some((_, attempt)) = state.attempt_of(task) {
        return vec![running(state, expected, attempt, now_s)];
    }
    waiting(state, history, expected, task, now_s)
}

fn ended(state: &State, history: &History, task: TaskId, end: &TaskEnd) -> Reason {
    let name = state.name(task);
    let at_s = history.task(task).and_then(|past| past.ended_s).unwrap_or(state.now_s);
    let at = clock(at_s);
    match end {
        TaskEnd::Done { loss } => {
            let loss = loss.map(|loss| format!(", loss {}", number(loss))).unwrap_or_default();
            let done = state.task(task).step;
            let steps = match state.task(task).steps {
                Some(all) if done < all => {
                    format!("its own code ended it after {done} of {}", steps(all))
                }
                _ => steps(done),
            };
            let took = duration(train_s(history, task, state.now_s).unwrap_or(0.0));
            if state.task(task).has_diverged() {
                let why = "its last loss is no finite number";
                let text = format!(
                    "{name} diverged: {why}. It ended at {at}: {steps} in {took} of training{loss}."
                );
                return Reason::new(Code::Diverged, text);
            }
            Reason::new(
                Code::Done,
                format!("{name} was done at {at}: {steps} in {took} of training{loss}."),
            )
        }
        TaskEnd::Failed { error, .. } => {
            let error = first_line(error);
            let failure = match last_attempt(history, task) {
                None if has_raised(state, history, task) => Some(FailureKind::Task),
                last => last.and_then(failure_of),
            };
            let (code, why) = match failure {
                // Either its last strategy was excluded, or no strategy could ever run it.
                None
                | Some(
                    FailureKind::OutOfMemory
                    | FailureKind::NotApplicable
                    | FailureKind::Killed
                    | FailureKind::HostMemory,
                ) => (Code::FailedNoStrategy, String::new()),
                Some(FailureKind::Task | FailureKind::Certain) => {
                    (Code::FailedOwnCode, " in its own code".to_owned())
                }
                Some(kind) => {
                    let most = state.config.policy.max_failures;
                    let kind = words::failure_kind(kind);
                    (Code::FailedTooOften, format!(" after {most} failures in a row ({kind})"))
                }
            };
            Reason::new(code, format!("{name} failed at {at}{why}: {error}"))
        }
        TaskEnd::Stopped { reason } => {
            let reason = first_line(reason);
            let steps = at_step(state.task(task).step);
            Reason::new(Code::Stopped, format!("{name} was stopped at {at}{steps}: {reason}."))
        }
        TaskEnd::Cancelled { reason } => {
            let lost: Vec<String> = state
                .waits_for(task)
                .filter(|before| {
                    matches!(
                        state.stage(*before),
                        Stage::Failed | Stage::Cancelled | Stage::Stopped
                    )
                })
                .map(|before| state.name(before).to_owned())
                .collect();
            let code = if lost.is_empty() { Code::Cancelled } else { Code::CancelledPredecessor };
            let reason = first_line(reason);
            Reason::new(code, format!("{name} was cancelled at {at}: {reason}.")).about(lost)
        }
    }
}

fn running(state: &State, expected: &Expected, attempt: &Attempt, now_s: f64) -> Reason {
    let task = attempt.task;
    let name = state.name(task);
    let end_s = expected.times(task).map(|(_, end_s)| end_s);
    let place = format!(
        "under {} on {}",
        words::strategy(&attempt.strategy),
        words::on_devices(&state.cluster, &attempt.gang)
    );
    if attempt.is_dying() {
        return Reason::new(Code::IsKilled, format!("{name}'s processes are being killed."));
    }
    if let Some((why, at_s)) = attempt.stopping {
        let why = match why {
            StopReason::Replan => "the new plan gives it another strategy or other devices",
            StopReason::Interrupt => "the run is being stopped",
            StopReason::Switch => "the plan switches it now",
            StopReason::Pause => "it was paused",
            StopReason::Judged => "the stopper holds it, or ends it",
            StopReason::Trial => "a trial that may save more time needs its devices",
            StopReason::SetAside => "its devices are to be used no more",
        };
        let text = format!("{name} was asked at {} to stop at a checkpoint: {why}.", clock(at_s));
        return Reason::new(Code::Stops, text);
    }
    if attempt.started.is_none() {
        let since = duration(now_s - attempt.launched_s);
        let text = format!("{name} was launched {since} ago {place}, and loads.");
        return Reason::new(Code::Starts, text).until(end_s);
    }
    let of = state.task(task).steps.map(|steps| format!(" of {steps}")).unwrap_or_default();
    let switch =
        attempt.until_step.map(|step| format!("; at step {step} it is switched as planned"));
    let stays = if state.is_to_stay(attempt) {
        "; it can't go on from where it is stopped, so no plan moves it"
    } else {
        ""
    };
    let text = format!(
        "{name} trains {place}, at step {}{of}{}{stays}.",
        attempt.step,
        switch.unwrap_or_default()
    );
    Reason::new(Code::Trains, text).until(end_s)
}

/// Everything that keeps a task from training, most decisive first.
fn waiting(
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
    if task_state.is_to_rest() {
        return reasons;
    }
    match next_places(state).get(&task).copied() {
        Some(place) => reasons.extend(at_place(state, expected, place, reasons.is_empty())),
        None => reasons.extend(without_place(state, history, task)),
    }
    reasons
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
        "{name} waits for space on the disk: {whose}: {error}. It is tried again when there is more \
         room, and at {again} at the latest."
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
        number => {
            let most = state.config.policy.max_failures;
            format!(", failure {number} of at most {most} in a row")
        }
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
    if inspection.attempt.is_some() || state.is_to_inspect(group) {
        let text = if inspection.attempt.is_some() {
            format!("{name}'s model is looked at, to see what can run it.")
        } else {
            format!("{name}'s model is to be looked at, after those of other tasks.")
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
            format!(
                "{name}'s strategies are to be measured when {} leave devices: {known}.",
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
        let mut needs: Vec<String> = state
            .choices(task)
            .map(|choice| format!("{} of type {}", choice.trial.strategy.gpus, choice.gpu_type))
            .collect();
        needs.sort();
        needs.dedup();
        let needs = if needs.is_empty() {
            "none of its strategies is known to run on the pool's devices".to_owned()
        } else {
            format!("its strategies need {} on one node", needs.join(", or "))
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

fn last_attempt(history: &History, task: TaskId) -> Option<&PastAttempt> {
    history.training(task).next_back().map(|(_, last)| last)
}

/// Whether user functions of a task of this group raised in an inspection or a trial.
fn has_raised(state: &State, history: &History, task: TaskId) -> bool {
    let group = state.task(task).group;
    history.attempts.values().any(|one| {
        let own = match one.purpose {
            Purpose::Inspection => Some(FailureKind::Task),
            Purpose::Trial => Some(FailureKind::Certain),
            Purpose::Train => None,
        };
        own.is_some() && state.task(one.task).group == group && failure_of(one) == own
    })
}

fn failure_of(attempt: &PastAttempt) -> Option<FailureKind> {
    match &attempt.ended.as_ref()?.end {
        AttemptEnd::Failed { failure } => Some(failure.kind),
        _ => None,
    }
}

/// ` at step 120`; empty at the start.
fn at_step(step: u64) -> String {
    if step > 0 { format!(" at step {step}") } else { String::new() }
}

fn steps(steps: u64) -> String {
    count(usize::try_from(steps).unwrap_or(usize::MAX), "step")
}
