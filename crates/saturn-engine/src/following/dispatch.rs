//! Following the plan: what starts, what goes on, what stops.
//!
//! A task starts in its place when that is the first on all of its devices and nothing holds them:
//! the plan's order binds, its times do not, so that what ends early lets its successors start
//! early. A task that trains goes on where the plan in force leaves it first in its place; otherwise
//! it is stopped at a checkpoint when that plan is adopted (`forecast` counts on just these rules).
//!
//! A task that is to be switched has several places in the plan. Its checkpoint says which one it is
//! in: the first whose last step it has not saved. So nothing else need be remembered of a switch,
//! and a crash before, in or after one leads back to the same place.

use saturn_core::Strategy;

use crate::facts::record::Purpose;
use crate::following::host_memory::{HostMemoryQueue, may_take_host_memory};
use crate::ledger::book::Ledger;
use crate::state::task::TaskStatus;

/// Starts what may start on the devices where something has changed.
pub(crate) fn follow_plan(ledger: &mut Ledger, host_memory: &mut HostMemoryQueue, now_s: f64) {
    while let Some(device) = ledger.queues.take_changed() {
        if let Some(index) = ledger.queues.front(&ledger.state, device) {
            ledger.idle.remove(device);
            try_start(ledger, host_memory, index, now_s);
        } else if ledger.state.is_free(device) {
            ledger.idle.add(device);
        } else {
            ledger.idle.remove(device);
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
        let strategy = Strategy::clone(&place.strategy);
        if may_take_host_memory(ledger, host_memory, task, &strategy, &place.gang, now_s) {
            let gang = (place.gang.clone(), place.until_step);
            ledger.launch(task, Purpose::Train, strategy, gang, now_s);
        }
    }
}
