//! What comes between a node and the driver for a while: its agent's letters don't arrive, or its
//! parents can't start a rank.
//!
//! Letters that wait arrive together and in their order once the way is clear. A real agent's letters
//! arrive in the same way. The node's ranks go on meanwhile. Orders for the node arrive.

use std::collections::BTreeMap;

use saturn_core::Gang;
use saturn_engine::Event;

use crate::world::cluster::World;
use crate::world::faults::Fault;

impl World {
    /// A node's letters wait for so many seconds from now on.
    pub(crate) fn hold_letters(&mut self, name: &str, for_s: f64) {
        self.hit(Fault::Backlog);
        self.letters.insert(name.to_owned(), self.now_s + for_s);
    }

    /// A node starts no rank for so many seconds from now on.
    pub(crate) fn lose_parents(&mut self, name: &str, for_s: f64) {
        self.hit(Fault::NoParents);
        self.parents.insert(name.to_owned(), self.now_s + for_s);
    }

    /// When an event reaches the driver that was sent to arrive at `at_s`.
    pub(super) fn arrives_s(&mut self, event: &Event, at_s: f64) -> f64 {
        if self.letters.is_empty() {
            return at_s;
        }
        let (Event::Reported { attempt, .. } | Event::RankExited { attempt, .. }) = event else {
            return at_s;
        };
        let gang = self.gangs.get(attempt).map(|gang| &gang.order.gang);
        let waits_s = gang.map_or(0.0, |gang| Self::until_s(&self.letters, &self.numbered, gang));
        // Later words of the same gang don't overtake, also once the gang itself is gone.
        let last_s = self.arrived.get(attempt).copied().unwrap_or(0.0);
        let arrives_s = at_s.max(last_s).max(if waits_s > self.now_s { waits_s } else { 0.0 });
        self.arrived.insert(*attempt, arrives_s);
        arrives_s
    }

    /// Until when a gang waits for a parent on one of its nodes; `None` if it need not.
    pub(super) fn parents_back_s(&self, gang: &Gang) -> Option<f64> {
        let until_s = Self::until_s(&self.parents, &self.numbered, gang);
        (until_s > self.now_s).then_some(until_s)
    }

    /// The last of the times that these nodes' names have.
    fn until_s(times: &BTreeMap<String, f64>, numbered: &[(String, String)], gang: &Gang) -> f64 {
        let names = gang.iter().filter_map(|part| numbered.get(part.node));
        names.filter_map(|(name, _)| times.get(name)).copied().fold(0.0, f64::max)
    }

    /// The driver is dead, and all that was on its way is lost.
    pub(super) fn forget_letters(&mut self) {
        self.letters.clear();
        self.arrived.clear();
    }
}
