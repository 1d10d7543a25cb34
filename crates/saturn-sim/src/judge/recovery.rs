//! Rules on failures: which tasks are tried again and when, which strategies are excluded, and which
//! devices are set aside.
//!
//! The rules are written from the engine's promises, with constants of their own.

use std::collections::BTreeSet;

use saturn_core::StrategyKey;
use saturn_engine::{
    AttemptEnd, AttemptId, DeviceId, FailureKind, NodeId, Purpose, Record, TaskId, devices,
};

use super::books::Books;
use super::duties::Duty;

/// Seconds that a task waits for a full disk if nobody says that there is room again.
const FULL_DISK_WAIT_S: f64 = 60.0;
/// How often the wait before a retry doubles at most: after a task's own failures, and after
/// Saturn's failures.
const MAX_DOUBLINGS: u32 = 10;
const MAX_SATURN_DOUBLINGS: u32 = 6;
/// Failures in a row after which a device is set aside.
const MAX_SUSPECTS: usize = 2;

/// How a task's attempts at training have failed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The last end, if that was a failure, and its strategy.
    last: Option<(FailureKind, StrategyKey)>,
    /// Whether that attempt had come to train.
    has_begun: bool,
    /// The strategy of the attempt before the last, if that attempt was killed from outside.
    killed_before: Option<StrategyKey>,
    /// Retries that count, since the last new checkpoint.
    retries: u32,
    /// Failures of Saturn's own in a row, and the checkpoint at that time.
    of_saturn: (u64, u32),
    /// A device has just been set aside for it.
    is_absolved: bool,
}

impl Failures {
    /// A new checkpoint, or a new driver: failures count anew.
    pub(super) fn forgiven(&mut self) {
        self.retries = 0;
    }

    /// A new driver remembers no failures, except that the last attempt was killed.
    pub(super) fn forgotten(&mut self) {
        (self.retries, self.of_saturn) = (0, (0, 0));
        self.killed_before = None;
        self.last = self.last.take().filter(|(kind, _)| is_kill(*kind));
    }

    /// A device is set aside for the task's apparent failures.
    pub(super) fn absolved(&mut self) {
        (self.retries, self.is_absolved) = (0, true);
    }
}

fn is_machines(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Died | FailureKind::Machine | FailureKind::Stalled)
}

fn is_kill(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Killed | FailureKind::HostMemory)
}

fn is(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

impl Books {
    /// An attempt has ended: notes its failure, and whether its devices are to blame.
    pub(super) fn note_failure(&mut self, id: AttemptId, end: &AttemptEnd) {
        let Some(one) = self.attempts.get(&id) else { return };
        let (task, purpose, key) = (one.task, one.purpose, one.strategy.key());
        let has_begun = one.began_at().is_some();
        let held: Vec<DeviceId> = devices(&one.gang).collect();
        let kind = if let AttemptEnd::Failed { failure } = end { Some(failure.kind) } else { None };
        let book = &mut self.tasks[task.0];
        let on_disk = book.checkpoint;
        let failures = &mut book.failed;
        failures.is_absolved = false;
        if kind == Some(FailureKind::Saturn) {
            let (step, number) = failures.of_saturn;
            failures.of_saturn = (on_disk, if step == on_disk { number + 1 } else { 1 });
        }
        if purpose == Purpose::Train {
            let before = failures.last.take();
            failures.killed_before = before.filter(|(kind, _)| is_kill(*kind)).map(|(_, key)| key);
            failures.last = kind.map(|kind| (kind, key));
            failures.has_begun = has_begun;
        }
        match end {
            AttemptEnd::Failed { failure } if is_machines(failure.kind) => {
                for device in &held {
                    self.suspects.entry(*device).or_default().push(task);
                }
                self.blame(id, &held);
            }
            AttemptEnd::Finished | AttemptEnd::Stopped => {
                self.suspects.retain(|device, _| !held.contains(device));
            }
            _ => {}
        }
    }

    /// Devices on which tasks have failed in a row are set aside, if another node can replace them.
    ///
    /// This holds only if no involved task has accused devices before: such a task may not be
    /// believed.
    fn blame(&mut self, id: AttemptId, held: &[DeviceId]) {
        let suspects = |device: &DeviceId| self.suspects.get(device).map_or(&[][..], Vec::as_slice);
        let are_new = held.iter().flat_map(suspects).all(|task| !self.accusers.contains(task));
        let accused: Vec<&DeviceId> =
            held.iter().filter(|one| suspects(one).len() >= MAX_SUSPECTS).collect();
        let nodes: BTreeSet<usize> = accused.iter().map(|device| device.node.0).collect();
        let can_do = nodes.iter().all(|node| {
            let (_, of_type, _) = &self.nodes[*node];
            (0..self.nodes.len()).any(|other| {
                !nodes.contains(&other)
                    && self.nodes[other].1 == *of_type
                    && self.num_usable(other) > 0
                    && self.num_usable(other) >= self.num_usable(*node)
            })
        });
        if are_new && !accused.is_empty() && can_do {
            self.duties.push(Duty::SetAside(id));
        }
    }

    /// The devices of a node that may be used.
    fn num_usable(&self, node: usize) -> usize {
        let id = |device| DeviceId { node: NodeId(node), device };
        (0..self.nodes[node].2).filter(|device| !self.set_aside.contains(&id(*device))).count()
    }

    /// Devices are set aside because processes live on them, or because tasks failed there in a
    /// row.
    pub(super) fn set_aside_for_a_cause(&mut self, node: NodeId, asided: &[u32], for_: &[TaskId]) {
        for device in asided {
            let id = DeviceId { node, device: *device };
            let failed = self.suspects.remove(&id).map_or(0, |suspects| suspects.len());
            let lives = self.attempts.values().any(|one| {
                let is_left = one.end.is_some() && !one.live.is_empty();
                is_left && devices(&one.gang).any(|held| held == id)
            });
            if !lives && failed < MAX_SUSPECTS {
                let what = format!("{id:?} is set aside after {failed} failures");
                self.wrong("devices are set aside for a cause", what);
            }
        }
        self.accusers.extend(for_);
        for task in for_ {
            self.tasks[task.0].failed.absolved();
        }
    }

    /// A task is tried again. Checks that it may be, and that its wait has passed.
    pub(super) fn retried(&mut self, record: &Record) {
        let Record::Retrying { task: id, not_before_s, counts } = record else { return };
        let Some(task) = self.tasks.get_mut(id.0) else { return };
        task.not_before_s = *not_before_s;
        let (backoff_s, most) = (self.config.policy.backoff_s, self.config.policy.max_failures);
        let failed = &mut task.failed;
        let Some((kind, _)) = failed.last else {
            return self.wrong("what failed is tried again", format!("{id:?} has not failed"));
        };
        let doubled_s = |failures: u32, most: u32| {
            backoff_s * f64::from(1_u32 << failures.saturating_sub(1).min(most))
        };
        failed.retries += u32::from(*counts);
        let (retries, wait_s) = (failed.retries, not_before_s - self.now_s);
        let has_begun = failed.has_begun;
        let is_right = match kind {
            FailureKind::OutOfMemory | FailureKind::NotApplicable | FailureKind::Certain => false,
            // What its functions raise before the first step they would raise again.
            FailureKind::Task if !has_begun => false,
            FailureKind::NoSpace if self.has_space => !counts && is(wait_s, 0.0),
            FailureKind::NoSpace => !counts && is(wait_s, FULL_DISK_WAIT_S),
            // If the engine has not heard of a checkpoint, it does not end the engine's row of
            // failures. A lost checkpoint that the engine heard of does.
            FailureKind::Saturn => {
                let mut allowed =
                    (0..=failed.of_saturn.1).map(|n| doubled_s(n, MAX_SATURN_DOUBLINGS));
                !counts && allowed.any(|one_s| is(wait_s, one_s))
            }
            _ => {
                *counts != failed.is_absolved
                    && (failed.is_absolved || retries < most)
                    && is(wait_s, doubled_s(retries, MAX_DOUBLINGS))
            }
        };
        if !is_right {
            let what = format!(
                "{id:?} is tried again in {wait_s} s after {kind:?}, with {retries} retries before; \
                 counts: {counts}"
            );
            self.wrong("failures are tried again by the rules", what);
        }
    }

    /// A strategy is excluded for failures under it.
    pub(super) fn excluded(&mut self, id: TaskId, key: &StrategyKey) {
        let Some(task) = self.tasks.get_mut(id.0) else { return };
        task.excluded.insert(key.clone());
        let failed = &task.failed;
        let is_right = failed.last.as_ref().is_some_and(|(kind, of)| {
            of == key
                && match kind {
                    FailureKind::OutOfMemory | FailureKind::NotApplicable => true,
                    kind => is_kill(*kind) && failed.killed_before.as_ref() == Some(key),
                }
        });
        if !is_right {
            let what = format!("{id:?} without {key:?} after {failed:?}");
            self.wrong("strategies are excluded for a cause", what);
        }
    }

    /// The disk has room again: tasks that wait for room wait no more.
    pub(super) fn note_space(&mut self) {
        self.has_space = true;
        let waits = (0..self.tasks.len()).filter(|index| {
            let task = &self.tasks[*index];
            let is_full = matches!(task.failed.last, Some((FailureKind::NoSpace, _)));
            let trains = self.attempts.values().any(|one| {
                one.task.0 == *index && one.purpose == Purpose::Train && one.end.is_none()
            });
            is_full && !trains && task.end.is_none() && task.not_before_s > self.now_s
        });
        let waits: Vec<Duty> = waits.map(|index| Duty::Recover(TaskId(index))).collect();
        self.duties.extend(waits);
    }
}
