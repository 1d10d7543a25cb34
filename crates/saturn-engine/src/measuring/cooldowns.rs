//! Cooldowns: groups whose inspections and trials wait for a while, after failures of Saturn's own
//! processes, and while a disk is full.

use std::collections::BTreeMap;

use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;

/// Cooldowns of groups, while this process drives the run.
#[derive(Debug, Default)]
pub(crate) struct Cooldowns {
    /// Until when groups are neither inspected nor tried, seconds.
    until_s: BTreeMap<usize, f64>,
    /// When a disk that had been full last had more room, seconds.
    pub(crate) space_freed_s: Option<f64>,
}

impl Cooldowns {
    /// Starts the cooldown of a group, which ends at `until_s`.
    pub(crate) fn start(&mut self, group: usize, until_s: f64) {
        self.until_s.insert(group, until_s);
    }

    /// Whether a group is in a cooldown.
    pub(crate) fn is_cooling_down(&self, group: usize, now_s: f64) -> bool {
        self.until_s.get(&group).is_some_and(|until_s| now_s < *until_s)
    }
}

/// Whether a group's trials wait for space on a disk. Sets a timer if they do.
pub(crate) fn waits_for_space(
    ledger: &mut Ledger,
    cooldowns: &Cooldowns,
    group: usize,
    now_s: f64,
) -> bool {
    let no_space = ledger.state.groups[group].no_space.as_ref();
    let Some(no_space) = no_space.filter(|one| {
        one.until_s() > now_s && cooldowns.space_freed_s.is_none_or(|freed_s| freed_s < one.since_s)
    }) else {
        return false;
    };
    ledger.timers.set(no_space.until_s(), Timer::Trials);
    true
}
