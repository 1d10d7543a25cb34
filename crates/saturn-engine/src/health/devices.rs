//! Devices that break, and processes that won't die.
//!
//! - A device is set aside after two failures, of one task or of two, without a task that does well
//!   in between. Only failures count that look like a machine's fault (`FailureKind::Died`,
//!   `Machine`, `Stalled`). They are then the device's failures, not the task's. The last devices
//!   that a task can use are never set aside, and devices that become the last are taken back: a
//!   task on doubtful devices is better than a task that can't run.
//! - If a task fails on other devices too, the fault was the task's. The devices that its failures
//!   accused are taken back, and the task is not believed again.
//! - Processes that live on after their kill cost their devices, not the run. Their attempt is
//!   abandoned, and its devices are set aside until the processes are gone.

use std::collections::BTreeSet;

use crate::facts::event::Undead;
use crate::facts::ids::{AttemptId, DeviceId, NodeId, TaskId};
use crate::facts::record::{AttemptEnd, Purpose, Record};
use crate::health::cramped::trial_gone;
use crate::health::memory::Health;
use crate::health::retries::recover;
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::measuring::inspections::inspection_failed;
use crate::state::attempt::Attempt;
use crate::state::breadth::holds;

/// Failures in a row after which a device is set aside.
const MAX_SUSPECTS: usize = 2;

/// Decides whether the devices or the task of an attempt are to blame, after a failure that looks
/// like a machine's fault was recorded. Returns whether the task is absolved.
pub(crate) fn blame_device_or_task(
    ledger: &mut Ledger,
    health: &mut Health,
    attempt: &Attempt,
    now_s: f64,
) -> bool {
    let task = attempt.task;
    let held: Vec<DeviceId> = attempt.devices().collect();
    // The task fails elsewhere too: devices that it has accused before are acquitted.
    let (acquitted, others): (Vec<_>, Vec<_>) =
        std::mem::take(&mut health.blame.accused).into_iter().partition(|(accusers, accused)| {
            accusers.contains(&task) && !accused.iter().any(|device| held.contains(device))
        });
    health.blame.accused = others;
    for (accusers, devices) in acquitted {
        health.blame.disbelieved.extend(accusers);
        let reason = format!("`{}` fails on other devices too", ledger.state.name(task));
        take_back(ledger, health, &devices, &reason, now_s);
    }
    let believed = |device: &DeviceId| -> Vec<TaskId> {
        let suspects = ledger.state.device(*device).map_or(&[][..], |one| &one.suspects);
        let believed = |task: &&TaskId| !health.blame.disbelieved.contains(*task);
        suspects.iter().filter(believed).copied().collect()
    };
    let accused: Vec<DeviceId> =
        held.iter().copied().filter(|device| believed(device).len() >= MAX_SUSPECTS).collect();
    if accused.is_empty() || !can_do_without(ledger, &accused) {
        return false;
    }
    let accusers: BTreeSet<TaskId> = accused.iter().flat_map(believed).collect();
    let names: Vec<String> =
        accusers.iter().map(|task| format!("`{}`", ledger.state.name(*task))).collect();
    let error = attempt.failure.as_ref().map_or("", |failure| failure.error.as_str());
    let reason = format!("{} failed here in a row: {error}", names.join(" and "));
    let absolved: Vec<TaskId> = accusers.iter().copied().collect();
    let is_absolved = absolved.contains(&task);
    health.blame.accused.push((accusers, accused.clone()));
    set_aside(ledger, &accused, &reason, absolved, now_s);
    is_absolved
}

/// Whether every task that waits or trains could still run without these devices.
fn can_do_without(ledger: &Ledger, devices: &[DeviceId]) -> bool {
    // If other nodes of the same types are as large, every strategy fits there: there is no need to
    // look at tasks.
    let nodes: BTreeSet<NodeId> = devices.iter().map(|device| device.node).collect();
    let is_matched = |node: &NodeId| {
        let room = ledger.state.usable_devices(*node).count();
        ledger.state.present_nodes().any(|other| {
            !nodes.contains(&other)
                && ledger.state.gpu_type(other) == ledger.state.gpu_type(*node)
                && ledger.state.usable_devices(other).count() >= room
        })
    };
    if nodes.iter().all(is_matched) {
        return true;
    }
    let left = |node: NodeId| {
        ledger
            .state
            .usable_devices(node)
            .filter(|device| !devices.contains(&DeviceId { node, device: *device }))
            .count()
    };
    let breadths = ledger.state.breadths(|node| u32::try_from(left(node)).unwrap_or(u32::MAX));
    !breadths.is_empty()
        && ledger.state.task_ids().filter(|task| !ledger.state.has_ended(*task)).all(|task| {
            !ledger.state.is_confined_to(task, |gpu_type, gpus| !holds(&breadths, gpu_type, gpus))
        })
}

/// Takes back devices that failures have had set aside, if a task can run on no others. The tasks
/// that accused these devices are not believed again: otherwise the devices would come and go for
/// ever.
pub(crate) fn take_back_for(ledger: &mut Ledger, health: &mut Health, task: TaskId, now_s: f64) {
    if health.blame.accused.is_empty()
        || !ledger
            .state
            .is_confined_to(task, |gpu_type, gpus| !ledger.state.has_nodes_for(gpu_type, gpus))
    {
        return;
    }
    let reason = format!("`{}` can run on no others", ledger.state.name(task));
    for (accusers, devices) in std::mem::take(&mut health.blame.accused) {
        health.blame.disbelieved.extend(accusers);
        take_back(ledger, health, &devices, &reason, now_s);
    }
    // Trials that wait for these devices were looked at before in this turn.
    ledger.timers.set(now_s, Timer::Trials);
}

pub(crate) fn set_aside(
    ledger: &mut Ledger,
    devices: &[DeviceId],
    reason: &str,
    absolved: Vec<TaskId>,
    now_s: f64,
) {
    let mut absolved = Some(absolved);
    for (node, devices) in by_node(devices) {
        let reason = reason.to_owned();
        let absolved = absolved.take().unwrap_or_default();
        ledger.commit(Record::SetAside { node, devices, reason, absolved }, now_s);
    }
}

/// Uses devices again, as far as their nodes are present. Devices of a node that has left count as
/// new ones when it comes again.
pub(crate) fn take_back(
    ledger: &mut Ledger,
    health: &mut Health,
    devices: &[DeviceId],
    reason: &str,
    now_s: f64,
) {
    for (node, mut devices) in by_node(devices) {
        devices.retain(|device| {
            let id = DeviceId { node, device: *device };
            let is_abandoned =
                health.blame.abandoned.iter().any(|(_, abandoned, _)| abandoned.contains(&id));
            let state = ledger.state.device(id);
            ledger.state.nodes[node.0].is_there
                && !is_abandoned
                && state.is_some_and(|one| one.set_aside.is_some())
        });
        for device in &devices {
            let id = DeviceId { node, device: *device };
            health.outside.taken_back(id);
            health.blame.forget(|one| *one == id);
        }
        if !devices.is_empty() {
            ledger.commit(Record::TakenBack { node, devices, reason: reason.to_owned() }, now_s);
        }
    }
}

/// Gives up an attempt whose processes outlive their kill.
pub(crate) fn abandon(ledger: &mut Ledger, health: &mut Health, id: AttemptId, now_s: f64) {
    let Some(attempt) = ledger.state.attempts.get(&id).cloned() else { return };
    let held: Vec<DeviceId> = attempt.devices().collect();
    let step = ledger.state.task(attempt.task).checkpoint_step;
    let end = match &attempt.failure {
        Some(failure) => AttemptEnd::Failed { failure: failure.clone() },
        None => AttemptEnd::Abandoned,
    };
    ledger.commit(Record::Ended { attempt: id, end, step, step_s: None }, now_s);
    let reason = undead_reason(ledger, id, attempt.task, attempt.live_ranks);
    health.blame.abandoned.push((id, held.clone(), attempt.live_ranks));
    set_aside(ledger, &held, &reason, Vec::new(), now_s);
    if ledger.state.has_ended(attempt.task) {
        return;
    }
    if let Some(failure) = attempt.failure.clone() {
        match attempt.purpose {
            Purpose::Inspection => inspection_failed(ledger, &attempt, &failure, now_s),
            Purpose::Trial => trial_gone(ledger, health, &attempt, failure, now_s),
            Purpose::Train => recover(ledger, health, &attempt, &failure, true, now_s),
        }
    }
}

fn undead_reason(ledger: &Ledger, id: AttemptId, task: TaskId, num_ranks: u32) -> String {
    let name = ledger.state.name(task);
    format!(
        "processes of attempt {id} of `{name}` were killed and have not ended ({num_ranks} of them)"
    )
}

/// Sets the devices of attempts aside whose processes have outlived their kill and the driver that
/// killed them, until these processes are gone.
pub(crate) fn keep_from(
    ledger: &mut Ledger,
    health: &mut Health,
    attempts: Vec<Undead>,
    now_s: f64,
) {
    for Undead { attempt, task, devices, num_ranks } in attempts {
        let reason = undead_reason(ledger, attempt, task, num_ranks);
        set_aside(ledger, &devices, &reason, Vec::new(), now_s);
        health.blame.abandoned.push((attempt, devices, num_ranks));
    }
}

/// Forgets the abandoned devices of a node that has left. When the node comes again its devices
/// count as new ones, since whoever brings them back has ended the processes there. An attempt that
/// is on other nodes too stays abandoned until its ranks' ends are told.
pub(crate) fn forget_abandoned_on(health: &mut Health, node: NodeId) {
    health.blame.abandoned.retain_mut(|(_, devices, _)| {
        devices.retain(|device| device.node != node);
        !devices.is_empty()
    });
}

/// A rank of an attempt that is no longer live has ended after all. If the attempt was abandoned,
/// and this was its last rank, its devices are used again.
pub(crate) fn abandoned_rank_gone(
    ledger: &mut Ledger,
    health: &mut Health,
    id: AttemptId,
    now_s: f64,
) {
    let abandoned = &mut health.blame.abandoned;
    let Some(index) = abandoned.iter().position(|(other, _, _)| *other == id) else { return };
    abandoned[index].2 = abandoned[index].2.saturating_sub(1);
    if abandoned[index].2 == 0 {
        abandoned_gone(ledger, health, id, now_s);
    }
}

/// All ranks of an attempt that is no longer live have ended. If it was abandoned, its devices are
/// used again.
pub(crate) fn abandoned_gone(ledger: &mut Ledger, health: &mut Health, id: AttemptId, now_s: f64) {
    let abandoned = &mut health.blame.abandoned;
    let Some(index) = abandoned.iter().position(|(other, _, _)| *other == id) else { return };
    let (_, devices, _) = abandoned.swap_remove(index);
    take_back(ledger, health, &devices, "its processes are gone", now_s);
}

/// Devices node by node.
fn by_node(devices: &[DeviceId]) -> Vec<(NodeId, Vec<u32>)> {
    let mut nodes: Vec<(NodeId, Vec<u32>)> = Vec::new();
    for DeviceId { node, device } in devices {
        match nodes.iter_mut().find(|(other, _)| other == node) {
            Some((_, devices)) => devices.push(*device),
            None => nodes.push((*node, vec![*device])),
        }
    }
    nodes
}
