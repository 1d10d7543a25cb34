//! The order in which tasks get host memory.
//!
//! Written from what the engine promises. On each node, memory is kept for the task that has waited
//! longest for it as the first of its queues. Nothing that would delay this task starts before it.
//! Whatever would not delay it, and has room, starts.
//!
//! The engine expects when an attempt ends. This rule works out an expectation of its own from
//! trials, so rules about times have slack.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, TrialOutcome};
use saturn_engine::{
    Attempt, AttemptId, DeviceId, Event, NodeId, Place, Purpose, Record, State, TaskId, TaskStatus,
    TrialKey, devices,
};

use crate::driving::seam::{Violation, broken};
use crate::watch::quotas::is_beyond;
use crate::workloads::host_bytes::Taker;

/// How long a trial is expected to hold host memory, seconds.
const TRIAL_S: f64 = 60.0;
/// The engine may expect a time up to `TIMES` times as long as this rule does, plus `MORE_S`
/// seconds.
const TIMES: f64 = 6.0;
const MORE_S: f64 = 70.0;
/// Used in place of `MORE_S` where enough memory is free already: nobody has to guess when memory
/// will be freed.
const MORE_IF_FREE_S: f64 = 30.0;

/// A task that is first in the queue of each of its devices. Only busy devices or host memory keep
/// the task from starting.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct First {
    pub(super) task: TaskId,
    pub(super) place: Place,
}

/// A task that waits for host memory.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    task: TaskId,
    /// The turn in which it may have begun to wait. A trial may have kept its devices, too.
    maybe_since: u64,
    /// The turn in which it waited for sure.
    surely_since: Option<u64>,
    /// The number of looks by then.
    looks_before: u64,
}

/// How much longer than this rule the engine may expect an attempt to take.
#[derive(Debug, Clone, Copy)]
struct Slack {
    times: f64,
    more_s: f64,
    more_if_free_s: f64,
}

impl Slack {
    /// `is_exact`: attempts take as long as their trials say.
    fn of(is_exact: bool) -> Self {
        if is_exact {
            return Self { times: 1.5, more_s: 15.0, more_if_free_s: 15.0 };
        }
        Self { times: TIMES, more_s: MORE_S, more_if_free_s: MORE_IF_FREE_S }
    }
}

/// Who waits for host memory, and what has been launched in this turn.
#[derive(Debug, Default)]
pub(super) struct HostMemory {
    turn: u64,
    waiters: Vec<Waiter>,
    /// The firsts at the end of the last turn.
    firsts: Vec<First>,
    launched: Vec<AttemptId>,
    /// Trials that have gone on as training in this turn.
    went_on: Vec<AttemptId>,
    is_inspected: bool,
    /// Events so far after which the engine has looked who waits for host memory.
    num_looks: u64,
}

impl HostMemory {
    pub(super) fn told(&mut self, event: &Event) {
        let looks = matches!(
            event,
            Event::Tick | Event::Solved { .. } | Event::RankExited { .. } | Event::SpaceFreed
        );
        self.num_looks += u64::from(looks);
    }

    pub(super) fn stored(&mut self, record: &Record) {
        match record {
            // A new driver does not know who waited.
            Record::Resumed { .. } => *self = Self::default(),
            Record::Launched { attempt, purpose, .. } if *purpose != Purpose::Inspection => {
                self.launched.push(*attempt);
            }
            Record::WentOn { attempt, .. } => self.went_on.push(*attempt),
            // What a strategy takes may be another figure now.
            Record::Inspected { .. } | Record::Tried { .. } => self.is_inspected = true,
            _ => {}
        }
    }

    /// A turn is over.
    pub(super) fn check(
        &mut self,
        state: &State,
        is_exact: bool,
        now_s: f64,
    ) -> Result<(), Violation> {
        let slack = Slack::of(is_exact);
        let launched = std::mem::take(&mut self.launched);
        let went_on = std::mem::take(&mut self.went_on);
        let is_inspected = std::mem::take(&mut self.is_inspected);
        if !is_host_memory_limited(state) {
            return Ok(());
        }
        self.turn += 1;
        if state.ended.is_some() || state.interrupted.is_some() {
            return Ok(());
        }
        let firsts = firsts(state, now_s);
        self.check_going_on(state, &went_on, &firsts)?;
        if !is_inspected {
            self.check_order(state, slack, now_s, &launched, &firsts)?;
            Self::check_starts(state, slack, now_s, &firsts)?;
        }
        self.waiters.retain(|one| state.task(one.task).status == TaskStatus::Waiting);
        let are_trials_open = state.num_open_trials() > 0;
        for first in &firsts {
            if !devices(&first.place.gang).all(|device| state.is_free(device)) {
                continue;
            }
            let index = self.waiters.iter().position(|one| one.task == first.task);
            let index = index.unwrap_or_else(|| {
                let (task, maybe_since) = (first.task, self.turn);
                let (surely_since, looks_before) = (None, self.num_looks);
                self.waiters.push(Waiter { task, maybe_since, surely_since, looks_before });
                self.waiters.len() - 1
            });
            let waiter = &mut self.waiters[index];
            if !are_trials_open && waiter.surely_since.is_none() {
                (waiter.surely_since, waiter.looks_before) = (Some(self.turn), self.num_looks);
            }
        }
        self.firsts = firsts;
        Ok(())
    }

    /// Nothing that was launched in this turn delays the task that has waited longest.
    fn check_order(
        &self,
        state: &State,
        slack: Slack,
        now_s: f64,
        launched: &[AttemptId],
        firsts: &[First],
    ) -> Result<(), Violation> {
        for (number, id) in launched.iter().enumerate() {
            let Some(new) = state.attempts.get(id) else { continue };
            for part in &new.gang {
                let node = part.node;
                let total = total_of(state, node);
                // The task was first on the node before this turn, and still is.
                let was = |first: &&First| self.firsts.contains(first);
                let kept = firsts.iter().filter(was).find(|first| {
                    first.task != new.task
                        && ranks_on(&first.place.gang, node) > 0
                        && self.is_oldest(first.task)
                });
                let Some(first) = kept else { continue };
                let later = &launched[number..];
                let before = || state.attempts.iter().filter(|(id, _)| !later.contains(id));
                let taken: u64 = before().map(|(_, one)| bytes_of(state, one, node)).sum();
                let needed = bytes_of(state, new, node);
                let kept = bytes_of_place(state, &first.place, node);
                if needed == 0 || taken + kept + needed <= total {
                    continue;
                }
                // It delays the other task unless it ends before that task could start.
                let end_s = expected_end_s(state, new, now_s);
                let (free_s, left) =
                    free_s(state, before().map(|(_, one)| one), (node, kept), now_s);
                // Both fit once the other task can start.
                if left.saturating_add(kept).saturating_add(needed) <= total {
                    continue;
                }
                let is_free = taken + kept <= total;
                let more_s = if is_free { slack.more_if_free_s } else { slack.more_s };
                if end_s - now_s > slack.times * (free_s - now_s) + more_s {
                    let what = format!(
                        "{id} takes {needed} of {total} bytes of host memory on node {node} until \
                         {end_s:.0} s; {:?} has waited longer, needs {kept}, and {taken} were taken \
                         until {free_s:.0} s",
                        first.task
                    );
                    return broken("nothing overtakes on host memory", what);
                }
            }
        }
        Ok(())
    }

    /// No trial goes on as training on a node where another task waits for host memory: it would keep
    /// the memory until its task is done.
    fn check_going_on(
        &self,
        state: &State,
        went_on: &[AttemptId],
        firsts: &[First],
    ) -> Result<(), Violation> {
        for attempt in went_on.iter().filter_map(|id| state.attempts.get(id)) {
            let has_waited = |first: &&First| {
                let waiter = self.waiters.iter().find(|one| one.task == first.task);
                // The engine has looked at it since it began to wait, and that was no last look.
                let is_sure = waiter.is_some_and(|one| {
                    one.surely_since.is_some() && one.looks_before + 1 < self.num_looks
                });
                is_sure && first.task != attempt.task && self.firsts.contains(first)
            };
            let waits_there = |first: &&First| {
                let mut nodes = attempt.gang.iter().map(|part| part.node);
                nodes.any(|node| bytes_of_place(state, &first.place, node) > 0)
            };
            if let Some(first) = firsts.iter().filter(has_waited).find(waits_there) {
                let what = format!("{:?} trains on, and {first:?} waits", attempt.task);
                return broken("no trial goes on where others wait for host memory", what);
            }
        }
        Ok(())
    }

    /// Whether a task has surely waited longer than every other task.
    fn is_oldest(&self, task: TaskId) -> bool {
        let own = self.waiters.iter().find(|one| one.task == task);
        let Some(since) = own.and_then(|one| one.surely_since) else { return false };
        self.waiters.iter().all(|other| other.task == task || other.maybe_since > since)
    }

    /// A task that is first, whose devices are free, and for which there is host memory beside what
    /// is kept for all others, has started.
    ///
    /// The same holds where the task will have ended long before the memory that is kept is free.
    fn check_starts(
        state: &State,
        slack: Slack,
        now_s: f64,
        firsts: &[First],
    ) -> Result<(), Violation> {
        if state.num_open_trials() > 0 {
            return Ok(());
        }
        for first in firsts {
            let gang = &first.place.gang;
            if !devices(gang).all(|device| state.is_free(device)) {
                continue;
            }
            let fits = gang.iter().all(|part| {
                let node = part.node;
                let total = total_of(state, node);
                let taken: u64 =
                    state.attempts.values().map(|one| bytes_of(state, one, node)).sum();
                let others = firsts.iter().filter(|other| other.task != first.task);
                let kept = others.map(|other| bytes_of_place(state, &other.place, node)).max();
                let needed = bytes_of_place(state, &first.place, node);
                let is_alone = taken == 0 && kept.unwrap_or(0) == 0;
                let has_room = taken > 0 && taken.saturating_add(needed) <= total;
                let ends_before = || {
                    let others = firsts.iter().filter(|other| other.task != first.task);
                    let kept = others.map(|other| bytes_of_place(state, &other.place, node));
                    let mut frees_s = kept
                        .filter(|kept| *kept > 0)
                        .map(|kept| free_s(state, state.attempts.values(), (node, kept), now_s).0);
                    let takes_s = slack.times * time_of_place_s(state, &first.place) + slack.more_s;
                    frees_s.all(|free_s| {
                        // Others may end sooner than this rule expects.
                        now_s + takes_s < now_s + (free_s - now_s) / slack.times - slack.more_s
                    })
                };
                is_alone
                    || has_room && ends_before()
                    || taken.saturating_add(kept.unwrap_or(0)).saturating_add(needed) <= total
            });
            if fits {
                let what = format!("{:?} is first, and fits its nodes", first.place);
                return broken("what has host memory starts", what);
            }
        }
        Ok(())
    }
}

/// Whether host memory is limited on any node.
pub(super) fn is_host_memory_limited(state: &State) -> bool {
    let policy = &state.config.policy;
    policy.host_memory_bytes.is_some() || !policy.host_memory_by_node.is_empty()
}

/// How much host memory attempts may take on a node, bytes.
pub(super) fn total_of(state: &State, node: usize) -> u64 {
    let policy = &state.config.policy;
    let own = policy.host_memory_by_node.get(&state.cluster.nodes[node].name);
    policy.host_memory_bytes.or(own.map(|own| own.available_bytes)).unwrap_or(u64::MAX)
}

/// The tasks that are the first of all of their devices, and that nothing else holds up.
pub(super) fn firsts(state: &State, now_s: f64) -> Vec<First> {
    let mut taken: BTreeSet<DeviceId> = BTreeSet::new();
    let mut place_of: BTreeMap<TaskId, usize> = BTreeMap::new();
    let mut firsts = Vec::new();
    for (index, place) in state.open_places() {
        let is_own = *place_of.entry(place.task).or_insert(index) == index;
        let is_first = devices(&place.gang).all(|device| !taken.contains(&device));
        taken.extend(devices(&place.gang));
        let task = state.task(place.task);
        let may = task.status == TaskStatus::Waiting
            && !task.must_not_train()
            && task.not_before_s.max(task.spec.wishes.release_s) < now_s
            && state.waits_for(place.task).next().is_none()
            && !is_beyond(state, place.task, devices(&place.gang).count());
        if is_own && is_first && may {
            firsts.push(First { task: place.task, place: place.clone() });
        }
    }
    firsts
}

fn ranks_on(gang: &Gang, node: usize) -> u64 {
    let parts = gang.iter().filter(|part| part.node == node).map(|part| part.devices.len());
    u64::try_from(parts.sum::<usize>()).unwrap_or(u64::MAX)
}

/// Bytes that an attempt is expected to take of a node's host memory.
pub(super) fn bytes_of(state: &State, attempt: &Attempt, node: usize) -> u64 {
    if attempt.purpose == Purpose::Inspection {
        return 0;
    }
    bytes(state, attempt.task, &attempt.strategy, &attempt.gang, node)
}

/// Bytes that a task will take in its place.
pub(super) fn bytes_of_place(state: &State, place: &Place, node: usize) -> u64 {
    bytes(state, place.task, &place.strategy, &place.gang, node)
}

fn bytes(
    state: &State,
    task: TaskId,
    strategy: &saturn_core::Strategy,
    gang: &Gang,
    node: usize,
) -> u64 {
    let ranks = ranks_on(gang, node);
    let group = &state.groups[state.task(task).group];
    // Not asked of the engine, so that a fault there is seen.
    let found = group.inspection.found.as_deref().or(group.inspection.outdated.as_deref());
    let Some(found) = found.filter(|_| ranks > 0) else { return 0 };
    let gpu_type = state.gpu_type(NodeId(gang[0].node));
    let key = TrialKey { strategy: strategy.key(), gpu_type: gpu_type.to_owned() };
    let outcome = group.trials.get(&key).and_then(|trial| trial.outcome.as_ref());
    let is_measured = matches!(outcome, Some(TrialOutcome::Measured { .. }));
    let kind = state.config.device_kind;
    Taker { found, kind, strategy, gpu_type, is_measured }.bytes(ranks)
}

/// When a node has `kept` bytes of host memory free, if these attempts end as expected, and the bytes
/// that are still taken then.
fn free_s<'a>(
    state: &State,
    attempts: impl Iterator<Item = &'a Attempt>,
    (node, kept): (usize, u64),
    now_s: f64,
) -> (f64, u64) {
    let total = total_of(state, node);
    let mut others: Vec<(f64, u64)> = attempts
        .map(|one| {
            let end_s = expected_end_s(state, one, now_s) + save_s(state, one);
            (end_s, bytes_of(state, one, node))
        })
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left: u64 = others.iter().map(|(_, bytes)| bytes).sum();
    let mut free_s = now_s;
    for (at_s, bytes) in others {
        if left.saturating_add(kept) <= total {
            break;
        }
        (left, free_s) = (left - bytes, at_s);
    }
    (free_s, left)
}

/// Seconds that a task will take in its place, by its trial's figures.
fn time_of_place_s(state: &State, place: &Place) -> f64 {
    let task = state.task(place.task);
    let gpu_type = state.gpu_type(NodeId(place.gang.first().map_or(0, |part| part.node)));
    let trial = state.groups[task.group].trial(&place.strategy, gpu_type);
    let Some(TrialOutcome::Measured { step_s, setup_s, checkpoint_s, .. }) =
        trial.and_then(|trial| trial.outcome.as_ref())
    else {
        return f64::INFINITY;
    };
    let trained_s = trial.and_then(|trial| trial.trained_step_s).unwrap_or(*step_s);
    let Some(all) = place.until_step.or(task.steps) else { return f64::INFINITY };
    #[expect(clippy::cast_precision_loss, reason = "few steps")]
    let train_s = all.saturating_sub(task.checkpoint_step) as f64 * trained_s.max(*step_s);
    setup_s + train_s + checkpoint_s.unwrap_or(0.0)
}

/// Seconds that the last checkpoint of an attempt may take.
fn save_s(state: &State, attempt: &Attempt) -> f64 {
    let group = &state.groups[state.task(attempt.task).group];
    let of_tasks = group.tasks.iter().filter_map(|task| state.task(*task).save_s);
    of_tasks.fold(0.0, f64::max)
}

/// When an attempt is about to end, by its trial's figures.
fn expected_end_s(state: &State, attempt: &Attempt, now_s: f64) -> f64 {
    if attempt.is_dying() {
        return now_s;
    }
    if attempt.purpose != Purpose::Train {
        return now_s.max(attempt.launched_s + TRIAL_S);
    }
    let task = state.task(attempt.task);
    let group = &state.groups[task.group];
    let gpu_type = state.gpu_type(NodeId(attempt.gang.first().map_or(0, |part| part.node)));
    let trial = group.trial(&attempt.strategy, gpu_type);
    let (mut step_s, mut setup_s) = (0.0, 0.0);
    if let Some(trial) = trial {
        if let Some(TrialOutcome::Measured { step_s: one, setup_s: load_s, .. }) = &trial.outcome {
            (step_s, setup_s) = (*one, *load_s);
        }
        step_s = trial.trained_step_s.unwrap_or(step_s);
    }
    step_s = attempt.step_s.unwrap_or(step_s);
    let left = match attempt.stopping {
        Some(_) => 1,
        None => attempt.until_step.or(task.steps).unwrap_or(0).saturating_sub(attempt.step),
    };
    #[expect(clippy::cast_precision_loss, reason = "few steps")]
    let train_s = left as f64 * step_s;
    let load_s = if attempt.started.is_some() { 0.0 } else { setup_s };
    now_s + load_s + train_s
}
