//! Which tasks start, by the order of the plan in force.
//!
//! A task starts in its place when that place is the first on all of its devices, nothing holds the
//! task, and its owner's quota leaves room for its devices. The plan's order binds and its times do
//! not, so that successors of a task that ends early start early. A task that trains goes on where
//! the plan in force leaves it first in its place. Any other task that trained was stopped at a
//! checkpoint when the plan was adopted (`taking_up`). The forecast counts on these rules.
//!
//! A task that is to be switched between strategies has several places in the plan. The task is in
//! the first place whose last step is not in its newest checkpoint. Nothing else is remembered of a
//! switch, so a crash before, during or after it leads back to the same place.

use std::collections::BTreeSet;

use saturn_core::{Gang, Strategy};

use crate::facts::ids::devices;
use crate::facts::record::Purpose;
use crate::following::host_memory::{HostMemoryQueue, may_take_host_memory};
use crate::ledger::book::Ledger;
use crate::state::task::TaskStatus;

/// Starts the tasks that may start on devices about which something has changed. Where host memory is
/// short, tasks that wait for it get it in the order in which they began to wait, and all other tasks in
/// the order of the plan. A forecast counts on this order.
pub(crate) fn follow_plan(ledger: &mut Ledger, host_memory: &mut HostMemoryQueue, now_s: f64) {
    loop {
        // When each task began to wait for host memory, and its place in the plan.
        let mut fronts: BTreeSet<(u64, usize)> = BTreeSet::new();
        while let Some(device) = ledger.queues.take_changed() {
            if let Some(index) = ledger.queues.front(&ledger.state, device) {
                ledger.idle.remove(device);
                let task = ledger.state.plan.as_ref().map(|plan| plan.places[index].task);
                let since = task.and_then(|task| ledger.state.memory_waiters.get(&task));
                fronts.insert((since.copied().unwrap_or(u64::MAX), index));
            } else if ledger.state.is_free(device) {
                ledger.idle.add(device);
            } else {
                ledger.idle.remove(device);
            }
        }
        if fronts.is_empty() {
            return;
        }
        for (_, index) in fronts {
            try_start(ledger, host_memory, index, now_s);
        }
    }
}

fn try_start(ledger: &mut Ledger, host_memory: &mut HostMemoryQueue, index: usize, now_s: f64) {
    let Some(plan) = ledger.state.plan.clone() else { return };
    let place = &plan.places[index];
    let task = place.task;
    if ledger.state.task(task).status != TaskStatus::Waiting
        || ledger.state.place_of(task) != Some(index)
        || !ledger.may_start(task, now_s)
    {
        return;
    }
    if ledger.are_at_hand(&place.gang) && ledger.queues.is_first(&ledger.state, index) {
        if !ledger.state.may_hold_gang(task, &place.gang) {
            ledger.agenda.short_of_quota.extend(devices(&place.gang));
            return;
        }
        let strategy = Strategy::clone(&place.strategy);
        if may_take_host_memory(ledger, host_memory, task, &strategy, &place.gang, now_s) {
            let gang = (Gang::clone(&place.gang), place.until_step);
            ledger.launch(task, Purpose::Train, strategy, gang, now_s);
        }
    }
}
