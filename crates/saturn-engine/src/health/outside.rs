//! Devices that programs other than Saturn use, such as a colleague's notebook.
//!
//! - Such a device is set aside, so that plans do without it, and taken back when the others have
//!   gone. Tasks that can run on no other device wait: nobody's memory is filled from two sides.
//! - An attempt keeps the devices that it holds, whoever comes to them.
//! - A person who takes such a device back shares it, until the others have gone.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::ids::DeviceId;
use crate::health::devices::{set_aside, take_back};
use crate::health::memory::Health;
use crate::ledger::book::Ledger;

/// Takes in which devices others use now, and who uses each.
pub(crate) fn used_outside(
    ledger: &mut Ledger,
    health: &mut Health,
    used: &BTreeMap<DeviceId, String>,
    now_s: f64,
) {
    let memory = &mut health.outside;
    memory.shared.retain(|id| used.contains_key(id));
    let (left, free): (BTreeSet<DeviceId>, BTreeSet<DeviceId>) =
        std::mem::take(&mut memory.left).into_iter().partition(|id| used.contains_key(id));
    memory.left = left;
    let free: Vec<DeviceId> = free.into_iter().collect();
    take_back(ledger, health, &free, "no other program uses it", now_s);
    for (id, user) in used {
        if ledger.state.is_free(*id) && !health.outside.shared.contains(id) {
            let reason = format!("outside Saturn, {user} uses it");
            set_aside(ledger, &[*id], &reason, Vec::new(), now_s);
            health.outside.left.insert(*id);
        }
    }
}
