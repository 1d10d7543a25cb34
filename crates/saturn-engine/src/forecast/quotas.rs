//! Waiting until a person holds fewer devices, by the rule by which tasks start (`state/quotas`).
//!
//! Where nobody has a quota, none of this is looked at.

use std::collections::BTreeMap;

use saturn_core::Gang;

use crate::facts::plan::Place;
use crate::facts::sharing::Uid;
use crate::state::attempt::Attempt;
use crate::state::quotas::width;
use crate::state::run::State;

/// What the people with quotas hold.
pub(super) struct Quotas<'a> {
    state: &'a State,
    /// Ends of gangs that have started, and their devices.
    held: BTreeMap<Uid, Vec<(f64, u32)>>,
}

impl<'a> Quotas<'a> {
    /// `None` if nobody has a quota. The attempts that hold devices are given with their ends.
    pub(super) fn of(state: &'a State, live: &[(&Attempt, f64)]) -> Option<Self> {
        if !state.has_quotas() {
            return None;
        }
        let mut quotas = Self { state, held: BTreeMap::new() };
        for (attempt, end_s) in live {
            quotas.take(state.task(attempt.task).uid(), &attempt.gang, *end_s);
        }
        Some(quotas)
    }

    fn take(&mut self, uid: Uid, gang: &Gang, end_s: f64) {
        if self.state.quota(uid).is_some() {
            self.held.entry(uid).or_default().push((end_s, width(gang)));
        }
    }

    /// Whether a place can start at `at_s`; otherwise when to look again. A gang that is wider than its
    /// owner's quota is taken to start once the owner holds nothing.
    pub(super) fn ready_or_later(&self, place: &Place, at_s: f64) -> Result<(), f64> {
        let uid = self.state.task(place.task).uid();
        let Some(quota) = self.state.quota(uid) else { return Ok(()) };
        let there = || self.held.get(&uid).into_iter().flatten().filter(|held| held.0 > at_s);
        let held: u32 = there().map(|(_, gpus)| gpus).sum();
        if held.saturating_add(width(&place.gang)) <= quota {
            return Ok(());
        }
        let next_s = there().map(|(end_s, _)| *end_s).min_by(f64::total_cmp);
        next_s.map_or(Ok(()), Err)
    }

    /// A place has started, and ends at `end_s`.
    pub(super) fn hold(&mut self, place: &Place, end_s: f64) {
        self.take(self.state.task(place.task).uid(), &place.gang, end_s);
    }
}
