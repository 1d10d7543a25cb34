//! What the engine remembers of failures while this process drives the run.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::ids::{AttemptId, DeviceId, NodeId, TaskId};
use crate::state::attempt::Attempt;

/// The memory of failures; all of it may be lost.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Why devices were set aside.
    pub(crate) blame: Blame,
    /// How often Saturn's own processes have failed under tasks.
    pub(crate) saturn_failures: SaturnFailures,
    /// Devices that programs other than Saturn use.
    pub(crate) outside: Outside,
}

/// Devices that programs other than Saturn use, while this process drives the run.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// Devices that others use by the last look, each with who does. Attempts may hold them.
    pub(crate) used: BTreeMap<DeviceId, String>,
    /// Devices that were set aside for it.
    pub(crate) left: BTreeSet<DeviceId>,
    /// Devices that a person has taken back all the same.
    pub(crate) shared: BTreeSet<DeviceId>,
}

/// Other programs on devices of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Who uses one of the devices.
    pub(crate) user: String,
    /// A person has said that all of these devices are to be shared with the others.
    pub(crate) is_shared: bool,
}

impl Outside {
    /// The other programs on an attempt's devices; `None` if there are none.
    pub(crate) fn beside(&self, attempt: &Attempt) -> Option<Beside> {
        let held: Vec<DeviceId> =
            attempt.devices().filter(|id| self.used.contains_key(id)).collect();
        let user = self.used.get(held.first()?)?.clone();
        Some(Beside { user, is_shared: held.iter().all(|id| self.shared.contains(id)) })
    }

    /// A device is used again. If others still use it, a person has said so.
    pub(crate) fn taken_back(&mut self, id: DeviceId) {
        if self.left.remove(&id) {
            self.shared.insert(id);
        }
    }

    /// Forgets the devices of a node that has left: they count as new ones when it comes again.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.used.retain(|id, _| id.node != node);
        self.left.retain(|id| id.node != node);
        self.shared.retain(|id| id.node != node);
    }
}

/// Why devices were set aside, while this process drives the run.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    /// Devices that were set aside, and the tasks whose failures accused them.
    pub(crate) accused: Vec<(BTreeSet<TaskId>, Vec<DeviceId>)>,
    /// Tasks that accused devices and then failed on others too: they are not believed again.
    pub(crate) disbelieved: BTreeSet<TaskId>,
    /// Abandoned attempts, with their devices and the number of their ranks that live.
    pub(crate) abandoned: Vec<(AttemptId, Vec<DeviceId>, u32)>,
}

impl Blame {
    /// Devices are used again, or their node has left: whoever accused them before has no say in
    /// what is done with them from now on.
    pub(crate) fn forget(&mut self, is_over: impl Fn(&DeviceId) -> bool) {
        self.accused.retain_mut(|(_, devices)| {
            devices.retain(|device| !is_over(device));
            !devices.is_empty()
        });
    }
}

/// How often in a row Saturn's own processes have failed under each task, while this process drives
/// the run. Beside the number stands the step of the task's checkpoint at that time.
#[derive(Debug, Default)]
pub(crate) struct SaturnFailures {
    pub(crate) tasks: BTreeMap<TaskId, (u64, u32)>,
}

impl SaturnFailures {
    /// Counts one more failure; returns how many there are in a row.
    pub(crate) fn add(&mut self, task: TaskId, saved_step: u64) -> u32 {
        let (step, number) = self.tasks.entry(task).or_insert((saved_step, 0));
        if *step != saved_step {
            (*step, *number) = (saved_step, 0);
        }
        *number += 1;
        *number
    }
}
