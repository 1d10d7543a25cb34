//! Rules on devices that come back into use, and on nodes that are there when a driver takes over.
//!
//! Written from the engine's promises. A device that was set aside is used again if a person asks
//! for that, if the processes that lived on it are gone, if a task that accused it fails elsewhere
//! too, if other programs have left it, or if a task can run on no others. In all cases but the last
//! it must be.

use std::collections::BTreeSet;

use saturn_core::Cluster;
use saturn_engine::{AttemptEnd, AttemptId, DeviceId, NodeId, TaskId, devices};

use crate::judge::books::Books;
use crate::judge::duty::Duty;

impl Books {
    /// An attempt has ended: notes whether processes of it are left, as far as the engine knows.
    pub(super) fn note_left(&mut self, id: AttemptId, end: &AttemptEnd) {
        let Some(one) = self.attempts.get_mut(&id) else { return };
        let is_unheard = one.num_exits < one.num_ranks && one.has_begun && !one.launch_failed;
        one.is_left = is_unheard && !matches!(end, AttemptEnd::Lost);
    }

    /// Whether the engine believes that processes live on a device which nobody waits for.
    fn is_left_on(&self, device: DeviceId) -> bool {
        let on = |gang| devices(gang).any(|held| held == device);
        self.attempts
            .values()
            .any(|one| one.is_left && one.num_exits < one.num_ranks && on(&one.gang))
    }

    /// The last of the processes that an attempt had left are gone.
    pub(super) fn left_are_gone(&mut self, id: AttemptId) {
        let Some(one) = self.attempts.get(&id) else { return };
        let held: Vec<DeviceId> = devices(&one.gang).collect();
        self.must_return(&held);
    }

    /// A person asks for devices of a node; for all of them if none is named.
    pub(super) fn note_asked_back(&mut self, name: &str, asked: &[u32]) {
        let Some(node) = self.nodes.iter().position(|(one, _, _)| one == name) else { return };
        let all: Vec<u32> = (0..self.node_gpus[node]).collect();
        let asked = if asked.is_empty() { &all } else { asked };
        let id = |device: &u32| DeviceId { node: NodeId(node), device: *device };
        let asked: Vec<DeviceId> = asked.iter().map(id).collect();
        self.must_return(&asked);
    }

    /// Tasks have had devices of a node set aside. Where a gang is on several nodes, the tasks are
    /// named with the first.
    pub(super) fn note_accused(&mut self, node: NodeId, asided: &[u32], accusers: &[TaskId]) {
        let asided = asided.iter().map(|device| DeviceId { node, device: *device });
        if !accusers.is_empty() {
            self.accused.push((accusers.iter().copied().collect(), asided.collect()));
            self.accuses = true;
        } else if let Some((_, accused)) = self.accused.last_mut().filter(|_| self.accuses) {
            accused.extend(asided);
        }
    }

    /// A task has failed as on a broken machine: devices that it has accused before are acquitted,
    /// unless it failed on one of them again.
    pub(super) fn acquit(&mut self, id: AttemptId, task: TaskId, held: &[DeviceId]) {
        let is_left = self.attempts.get(&id).is_some_and(|one| one.is_left);
        if is_left {
            return;
        }
        let is_elsewhere = |(accusers, accused): &(BTreeSet<TaskId>, BTreeSet<DeviceId>)| {
            accusers.contains(&task) && !held.iter().any(|device| accused.contains(device))
        };
        let (acquitted, others) =
            std::mem::take(&mut self.accused).into_iter().partition(is_elsewhere);
        self.accused = others;
        let acquitted: Vec<(BTreeSet<TaskId>, BTreeSet<DeviceId>)> = acquitted;
        let back: Vec<DeviceId> = acquitted.into_iter().flat_map(|(_, accused)| accused).collect();
        self.must_return(&back);
    }

    /// These devices must be used again in this decision, as far as they are there, were set aside,
    /// and nothing is left on them.
    pub(super) fn must_return(&mut self, back: &[DeviceId]) {
        self.may_return.extend(back);
        let is_due = |device: &&DeviceId| {
            let is_there = self.nodes.get(device.node.0).is_some_and(|(_, _, gpus)| *gpus > 0);
            is_there && self.set_aside.contains(*device) && !self.is_left_on(**device)
        };
        let due: Vec<Duty> = back.iter().filter(is_due).map(|one| Duty::TakeBack(*one)).collect();
        self.duties.extend(due);
    }

    /// Devices are taken back: for a cause, or because a task can run on no others.
    pub(super) fn check_taken_back(&mut self, node: NodeId, back: &[u32]) {
        let id = |device: &u32| DeviceId { node, device: *device };
        self.forget_accused(|one| one.node == node && back.contains(&one.device));
        let is_asked = back.iter().map(id).all(|device| self.may_return.contains(&device));
        if is_asked || self.returns_for_want {
            return;
        }
        let open = (0..self.tasks.len()).filter(|task| self.tasks[*task].end.is_none());
        let mut open = open.map(|task| self.can_run_without(TaskId(task), &BTreeSet::new()));
        if open.all(|can_run| can_run == Some(true)) {
            let what = format!("{back:?} of {node:?}, though every task can run without them");
            return self.wrong("devices are taken back for a cause", what);
        }
        // All devices that tasks accused are taken back then.
        self.returns_for_want = true;
        self.accused.clear();
    }

    /// Devices are used again, or their node has left: what accused them before counts no more.
    pub(super) fn forget_accused(&mut self, is_over: impl Fn(&DeviceId) -> bool) {
        self.accused.retain_mut(|(_, accused)| {
            accused.retain(|one| !is_over(one));
            !accused.is_empty()
        });
    }

    /// A driver takes over: nodes that are not there any more, or are other nodes now, have left,
    /// and those that are there are known.
    pub(super) fn note_pool(&mut self, cluster: &Cluster) {
        let known = |name: &str, gpu_type: &str| {
            let mut nodes = self.nodes.iter();
            nodes.find(|(one, of, gpus)| one == name && of == gpu_type && *gpus > 0)
        };
        let mut due = Vec::new();
        for (name, gpu_type, gpus) in self.nodes.iter().filter(|(_, _, gpus)| *gpus > 0) {
            let is_it = |one: &&saturn_core::Node| one.name == *name && one.gpu_type == *gpu_type;
            if cluster.nodes.iter().find(is_it).is_none_or(|one| one.gpus != *gpus) {
                due.push(Duty::NodeLeft(name.clone()));
            }
        }
        for one in &cluster.nodes {
            if known(&one.name, &one.gpu_type).is_none_or(|(_, _, gpus)| *gpus != one.gpus) {
                let (name, gpu_type) = (one.name.clone(), one.gpu_type.clone());
                due.push(Duty::NodeIsThere(name, gpu_type, one.gpus));
            }
        }
        self.duties.extend(due);
    }
}
