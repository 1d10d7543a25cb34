//! Devices that programs other than Saturn use, such as a colleague's notebook.
//!
//! - Such a device is set aside, so that plans do without it, and taken back when the others have
//!   gone. Tasks that can run on no other device wait: nobody's memory is filled from two sides.
//! - An attempt keeps the devices that it holds, whoever comes to them. When it ends, they are set
//!   aside before anything else is launched.
//! - A person who takes such a device back shares it, until the others have gone.
//! - What an attempt that runs out of memory beside others is worth: `cramped`.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::ids::DeviceId;
use crate::health::devices::{set_aside, take_back};
use crate::health::memory::Health;
use crate::ledger::book::Ledger;

/// Takes in which devices others use now, and who uses each. Devices that others have left are used
/// again; `leave_to_others` sets the others aside.
pub(crate) fn used_outside(
    ledger: &mut Ledger,
    health: &mut Health,
    used: BTreeMap<DeviceId, String>,
    now_s: f64,
) {
    let memory = &mut health.outside;
    memory.shared.retain(|id| used.contains_key(id));
    let (left, free): (BTreeSet<DeviceId>, BTreeSet<DeviceId>) =
        std::mem::take(&mut memory.left).into_iter().partition(|id| used.contains_key(id));
    (memory.left, memory.used) = (left, used);
    let free: Vec<DeviceId> = free.into_iter().collect();
    take_back(ledger, health, &free, "no other program uses it", now_s);
}

/// Sets free devices aside that others use. They may have come while an attempt held the device, or
/// while it was set aside for another reason.
pub(crate) fn leave_to_others(ledger: &mut Ledger, health: &mut Health, now_s: f64) {
    let outside = &mut health.outside;
    for (id, user) in &outside.used {
        if ledger.state.is_free(*id) && !outside.shared.contains(id) {
            let reason = format!("outside Saturn, {user} uses it");
            set_aside(ledger, &[*id], &reason, Vec::new(), now_s);
            outside.left.insert(*id);
        }
    }
}
