//! Host memory: which tasks wait for it, and for which waiting task a node keeps it free.
//!
//! The host memory that a strategy takes is an expectation (`state/host_memory`), so a gang that is
//! alone on its nodes always starts. The limit is the user's, or each node's own: a gang on several
//! nodes must fit each of them with its part.
//!
//! No task waits for ever. Each node keeps memory for the task that has waited longest among those
//! that are first in all their queues. Another task or trial may backfill: it starts before that
//! task only if it does not delay that task. Either the backfilled attempt is expected to end before
//! the oldest task could start, or both fit by then. The first trial of a group counts as such a task:
//! until it has run, no task of its group can start, so that small tasks could pass it by for ever.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, Strategy};

use crate::facts::ids::{DeviceId, NodeId, TaskId, devices};
use crate::facts::record::Purpose;
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::state::attempt::Attempt;
use crate::state::host_memory::num_devices;
use crate::state::run::State;
use crate::state::task::TaskStatus;
use crate::state::trial::TrialKey;

/// How long a trial is expected to hold host memory, seconds.
pub(crate) const TRIAL_S: f64 = 60.0;

/// Whether ranks may take `needed` bytes of a node's host memory until `end_s`. They may if `kept`
/// bytes become free as early as they would without these ranks. A task that needs more than the
/// node has may start when nothing else takes any.
fn leaves_host_memory(
    state: &State,
    node: NodeId,
    kept: u64,
    (needed, end_s): (u64, f64),
    now_s: f64,
) -> bool {
    let Some(total) = state.host_memory_of(node) else { return true };
    let live = state.attempts_on(node).into_iter().filter_map(|id| state.attempts.get(&id));
    let live = live.map(|attempt| {
        (host_memory_free_s(state, attempt, now_s), state.host_bytes_of(attempt, node))
    });
    let mut live: Vec<(f64, u64)> = live.filter(|(_, bytes)| *bytes > 0).collect();
    live.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut taken: u64 = live.iter().map(|(_, bytes)| bytes).sum();
    let mut free_s = now_s;
    for (end_s, bytes) in live {
        if taken.saturating_add(kept) <= total {
            break;
        }
        taken -= bytes;
        free_s = end_s;
    }
    end_s <= free_s || taken.saturating_add(kept).saturating_add(needed) <= total
}

/// When an attempt is expected to give back its host memory.
fn host_memory_free_s(state: &State, attempt: &Attempt, now_s: f64) -> f64 {
    match attempt.purpose {
        _ if attempt.is_dying() => now_s,
        Purpose::Inspection | Purpose::Trial => now_s.max(attempt.launched_s + TRIAL_S),
        Purpose::Train => match attempt.stopping {
            Some((_, asked_s)) => now_s.max(state.stop_of(attempt, asked_s).1),
            None => now_s + state.time_left_s(attempt, attempt.until_step, now_s),
        },
    }
}

/// Tasks that wait for host memory.
///
/// They are numbered in the order in which they came (`State::memory_waiters`). A look goes over the
/// devices about which something has changed, and not over all that wait.
#[derive(Debug, Default)]
pub(crate) struct HostMemoryQueue {
    last_number: u64,
    /// The tasks among them that are first in all of their queues, by their numbers.
    first: BTreeMap<u64, HostMemoryWaiter>,
    /// The same tasks' numbers, by the nodes on which they would start.
    on_node: BTreeMap<usize, BTreeSet<u64>>,
    /// The first trial of a group that waits.
    trial: Option<WaitingTrial>,
    /// Nodes about which this has changed since it was asked last.
    changed: BTreeSet<NodeId>,
}

/// The first trial of a group that waits for host memory, with the node that keeps it for the trial.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WaitingTrial {
    pub(crate) group: usize,
    pub(crate) key: TrialKey,
    pub(crate) node: NodeId,
    /// When it came among the tasks that wait.
    pub(crate) number: u64,
}

impl HostMemoryQueue {
    /// Whether a task that could start on one of a gang's nodes waits for host memory there.
    pub(crate) fn is_kept_on(&self, gang: &Gang) -> bool {
        let is_for_trial = |node| self.trial.as_ref().is_some_and(|trial| trial.node.0 == node);
        gang.iter().any(|part| self.on_node.contains_key(&part.node) || is_for_trial(part.node))
    }

    /// The group's first trial that waits.
    pub(crate) fn waiting_trial(&self) -> Option<&WaitingTrial> {
        self.trial.as_ref()
    }

    /// The strategy, and the number of its ranks, for which a node keeps host memory: that of the task
    /// or trial that has waited longest among those that could start there. `None` if that is `task`,
    /// or without a task the trial of this strategy.
    fn kept_on(
        &self,
        node: NodeId,
        (task, group, key): (Option<TaskId>, usize, &TrialKey),
    ) -> Option<(usize, &TrialKey, u32)> {
        let number = self.on_node.get(&node.0).and_then(BTreeSet::first);
        let oldest = number.and_then(|number| Some((*number, self.first.get(number)?)));
        let trial = self.trial.as_ref().filter(|trial| trial.node == node);
        match (oldest, trial) {
            (oldest, Some(trial)) if oldest.is_none_or(|(number, _)| number > trial.number) => {
                let is_own = task.is_none() && trial.group == group && trial.key == *key;
                (!is_own).then_some((trial.group, &trial.key, trial.key.strategy.gpus))
            }
            (Some((_, one)), _) if Some(one.task) != task => {
                Some((one.group, &one.key, one.ranks_on(node)))
            }
            _ => None,
        }
    }

    /// The tasks that could start on a device.
    fn first_on(&self, device: DeviceId) -> impl Iterator<Item = TaskId> + '_ {
        let numbers = self.on_node.get(&device.node.0).into_iter().flatten();
        let first = numbers.filter_map(|number| self.first.get(number));
        let is_on = move |one: &&HostMemoryWaiter| devices(&one.gang).any(|held| held == device);
        first.filter(is_on).map(|one| one.task)
    }

    /// Where a task could start now, or that it can't.
    fn set_first(&mut self, number: u64, waiter: Option<HostMemoryWaiter>) {
        if self.first.get(&number) == waiter.as_ref() {
            return;
        }
        for part in self.first.remove(&number).iter().flat_map(|one| &one.gang) {
            self.changed.insert(NodeId(part.node));
            if let Some(numbers) = self.on_node.get_mut(&part.node) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.on_node.remove(&part.node);
                }
            }
        }
        if let Some(waiter) = waiter {
            for part in &waiter.gang {
                self.changed.insert(NodeId(part.node));
                self.on_node.entry(part.node).or_default().insert(number);
            }
            self.first.insert(number, waiter);
        }
    }

    /// A task waits no longer.
    fn remove(&mut self, state: &mut State, task: TaskId) {
        if let Some(number) = state.memory_waiters.remove(&task) {
            self.set_first(number, None);
        }
    }

    /// Whether only waiting tasks are in the queue, and whoever waited on a node knows for whom memory
    /// is kept there now. Tasks that no longer wait leave the queue at the next look. For tests.
    pub(crate) fn is_kept_up(&self, ledger: &Ledger) -> bool {
        self.changed.is_empty()
            && ledger.state.memory_waiters.keys().all(|task| {
                ledger.state.task(*task).status == TaskStatus::Waiting
                    || ledger.agenda.not_waiting.contains(task)
            })
    }

    /// Takes out the nodes where memory is kept for other tasks than before, or for none.
    fn take_changed(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.changed)
    }
}

/// A task that could start now, were there host memory for it.
#[derive(Debug, PartialEq)]
struct HostMemoryWaiter {
    task: TaskId,
    group: usize,
    key: TrialKey,
    gang: Gang,
}

impl HostMemoryWaiter {
    /// Its ranks on a node.
    fn ranks_on(&self, node: NodeId) -> u32 {
        self.gang.iter().filter(|part| part.node == node.0).map(num_devices).sum()
    }
}

/// Whether there is host memory for a task to train under a strategy on a gang. If not, its devices
/// are looked at again when an attempt ends on one of the gang's nodes.
pub(crate) fn may_take_host_memory(
    ledger: &mut Ledger,
    host_memory: &mut HostMemoryQueue,
    task: TaskId,
    strategy: &Strategy,
    gang: &Gang,
    now_s: f64,
) -> bool {
    look_at_host_memory_queue(ledger, host_memory, now_s);
    let gpu_type = ledger.state.gang_type(gang).to_owned();
    let time_s = ledger.state.time_under_s(task, strategy, &gpu_type).unwrap_or(f64::INFINITY);
    let key = TrialKey { strategy: strategy.key(), gpu_type };
    let group = ledger.state.task(task).group;
    let from_to_s = (now_s, now_s + time_s);
    let may = gang.iter().all(|part| {
        let (node, ranks) = (NodeId(part.node), num_devices(part));
        let needed = ledger.state.host_bytes(group, &key, ranks);
        let asks = (Some(task), group, &key);
        has_host_memory_beside(ledger, host_memory, node, asks, needed, from_to_s)
    });
    if !may {
        ledger.agenda.short_of_host_memory.extend(devices(gang));
        if let Entry::Vacant(number) = ledger.state.memory_waiters.entry(task) {
            host_memory.last_number += 1;
            number.insert(host_memory.last_number);
            ledger.queues.note_waiter(gang);
        }
    } else if ledger.state.memory_waiters.contains_key(&task) {
        host_memory.remove(&mut ledger.state, task);
        let nodes = gang.iter().map(|part| NodeId(part.node));
        ledger.note_host_memory_on(host_memory.take_changed().into_iter().chain(nodes));
        // Trials that waited for this task to start are looked at once the task has started.
        ledger.timers.set(now_s, Timer::Trials);
    }
    may
}

/// Whether a node's host memory allows ranks that take `needed` bytes of it from now until their
/// expected end. `task` is the task that they train; `None` for a trial.
pub(crate) fn has_host_memory_beside(
    ledger: &Ledger,
    host_memory: &HostMemoryQueue,
    node: NodeId,
    (task, group, key): (Option<TaskId>, usize, &TrialKey),
    needed: u64,
    (now_s, end_s): (f64, f64),
) -> bool {
    if !ledger.state.has_host_memory_on(node, needed) {
        return false;
    }
    let kept = host_memory.kept_on(node, (task, group, key));
    let Some((of_group, of_key, of_ranks)) = kept else { return true };
    let kept = ledger.state.host_bytes(of_group, of_key, of_ranks);
    needed == 0 || leaves_host_memory(&ledger.state, node, kept, (needed, end_s), now_s)
}

/// Keeps host memory for one of these trials, each with the node where it would run: for the trial for
/// which it is kept already, if that is among them. All are the first of their groups and narrower than
/// a node, and lack nothing else.
pub(crate) fn keep_for_a_trial(
    ledger: &mut Ledger,
    host_memory: &mut HostMemoryQueue,
    lacking: &[(usize, TrialKey, NodeId)],
) {
    let before = host_memory.trial.take();
    let is_before = |(group, key, _): &(usize, TrialKey, NodeId)| {
        before.as_ref().is_some_and(|before| before.group == *group && before.key == *key)
    };
    let kept = lacking.iter().find(|one| is_before(one)).or_else(|| lacking.first()).cloned();
    host_memory.trial = kept.map(|(group, key, node)| {
        let known = before.as_ref().filter(|before| before.group == group && before.key == key);
        let number = known.map_or_else(
            || {
                host_memory.last_number += 1;
                host_memory.last_number
            },
            |known| known.number,
        );
        WaitingTrial { group, key, node, number }
    });
    if let Some(before) = before.filter(|before| host_memory.trial.as_ref() != Some(before)) {
        ledger.note_host_memory_on([before.node]);
    }
}

/// Brings up to date for which tasks host memory is kept. If these are other tasks than before, the
/// tasks that waited behind them are looked at again.
pub(crate) fn look_at_host_memory_queue(
    ledger: &mut Ledger,
    host_memory: &mut HostMemoryQueue,
    now_s: f64,
) {
    let not_waiting = std::mem::take(&mut ledger.agenda.not_waiting);
    let changed = ledger.queues.take_changed_for_waiters();
    if ledger.state.memory_waiters.is_empty() {
        return;
    }
    for task in not_waiting {
        if ledger.state.task(task).status != TaskStatus::Waiting {
            host_memory.remove(&mut ledger.state, task);
        }
    }
    let mut tasks: BTreeSet<TaskId> = BTreeSet::new();
    if ledger.state.has_quotas() {
        // A start anywhere may leave a task's owner no room.
        tasks.extend(ledger.state.memory_waiters.keys());
    }
    for device in changed {
        tasks.extend(host_memory.first_on(device));
        if let Some(index) = ledger.queues.front(&ledger.state, device)
            && let Some(plan) = &ledger.state.plan
        {
            tasks.insert(plan.places[index].task);
        }
    }
    for task in tasks {
        let Some(number) = ledger.state.memory_waiters.get(&task).copied() else { continue };
        let waiter = host_memory_waiter(ledger, task, now_s);
        host_memory.set_first(number, waiter);
    }
    let others = host_memory.take_changed();
    if !others.is_empty() {
        ledger.agenda.trials_changed = true;
        ledger.note_host_memory_on(others);
    }
}

fn host_memory_waiter(ledger: &mut Ledger, task: TaskId, now_s: f64) -> Option<HostMemoryWaiter> {
    let index = ledger.state.place_of(task)?;
    if !ledger.may_start(task, now_s) || !ledger.queues.is_first(&ledger.state, index) {
        return None;
    }
    let place = &ledger.state.plan.as_ref()?.places[index];
    if !ledger.state.may_hold_gang(task, &place.gang) {
        return None;
    }
    let gpu_type = ledger.state.gang_type(&place.gang).to_owned();
    let key = TrialKey { strategy: place.strategy.key(), gpu_type };
    let (group, gang) = (ledger.state.task(task).group, Gang::clone(&place.gang));
    Some(HostMemoryWaiter { task, group, key, gang })
}
