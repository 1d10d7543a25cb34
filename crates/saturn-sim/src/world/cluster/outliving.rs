//! What dies with a driver, and what outlives it.
//!
//! Ranks may belong to an agent, which lives on. Then they train on, and what they say waits for the
//! next driver.

use saturn_engine::{AttemptId, Event, devices};

use crate::world::cluster::{Happening, World};
use crate::world::faults::Fault;
use crate::world::gang::Phase;
use crate::world::history::Fact;

impl World {
    /// Those of these attempts that have all of their ranks, or are about to, on nodes that the run
    /// can reach.
    pub(crate) fn living(&self, attempts: Vec<AttemptId>) -> Vec<AttemptId> {
        let is_well = |node: usize| {
            let name = self.numbered.get(node).map(|(name, _)| name);
            name.is_some_and(|name| {
                self.nodes.contains_key(name)
                    && !self.silent.contains(name)
                    && !self.leaving.contains_key(name)
            })
        };
        let lives = |attempt: &AttemptId| {
            self.gangs.get(attempt).is_some_and(|gang| {
                gang.lost.is_empty()
                    && !gang.is_killed
                    && devices(&gang.order.gang).all(|device| is_well(device.node.0))
            })
        };
        attempts.into_iter().filter(lives).collect()
    }

    /// The driver is dead. The ranks of these attempts live on, and what they say waits. All others
    /// die with the driver, and their reports are lost. Immortal processes go too, since no new
    /// driver begins beside ranks of the last driver. Returns what was to be told at this moment of
    /// those that live on.
    pub fn driver_died(&mut self, living: &[AttemptId]) -> Vec<Event> {
        self.history.add(self.now_s, || Fact::DriverDied(living.to_vec()));
        let dying = self.gangs.keys().copied().filter(|attempt| !living.contains(attempt));
        let dying: Vec<AttemptId> = dying.collect();
        let found = self.recorded.as_mut().map(|costs| costs.next_driver()).unwrap_or_default();
        for attempt in dying {
            let now_s = self.now_s;
            let Some(gang) = self.gangs.get_mut(&attempt) else { continue };
            gang.look_up(now_s);
            let (task, step) = (gang.order.task, gang.step);
            if let Some(found) = found.get(&task).filter(|_| step > self.saved_step(task)) {
                self.save(attempt, task, step.min(*found));
            }
            let gang = &self.gangs[&attempt];
            if matches!(gang.phase, Phase::Saving { .. }) && self.is_hit(Fault::SavedAfterDeath) {
                self.save(attempt, task, step);
            }
            self.vanish(attempt);
        }
        self.held.clear();
        self.leaving.clear();
        if living.is_empty() {
            // Otherwise what is on its way still comes before what is said later.
            self.forget_letters();
        }
        self.heap.retain(|one| one.attempt().is_some_and(|of| living.contains(&of)));
        let (mut waiting, mut others) = (Vec::new(), Vec::new());
        while self.heap.next_s().is_some_and(|at_s| at_s <= self.now_s) {
            match self.heap.take() {
                Some((_, Happening::Tell(event))) => waiting.push(event),
                other => others.extend(other),
            }
        }
        for (at_s, other) in others {
            self.heap.add(at_s, other);
        }
        waiting
    }
}

impl Happening {
    /// The attempt that it is about, if it is about one.
    fn attempt(&self) -> Option<AttemptId> {
        match self {
            Self::Tell(event) => attempt_of(event),
            Self::Begins(attempt)
            | Self::Turn { attempt, .. }
            | Self::Fate { attempt, .. }
            | Self::Slow { attempt, .. }
            | Self::Stop(attempt)
            | Self::Ends { attempt, .. } => Some(*attempt),
        }
    }
}

/// The attempt whose ranks, or whose launcher, say so.
pub(crate) fn attempt_of(event: &Event) -> Option<AttemptId> {
    match event {
        Event::Reported { attempt, .. }
        | Event::RankExited { attempt, .. }
        | Event::LaunchFailed { attempt, .. } => Some(*attempt),
        _ => None,
    }
}
