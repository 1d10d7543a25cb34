//! What dies with a driver, and what outlives it.
//!
//! Ranks may belong to an agent, which lives on. Then they train on, and what they say waits for the
//! next driver. Processes that were killed and have not ended may live on, too: the next driver is
//! told of them.

use saturn_engine::{AttemptId, Event, Purpose, Undead, devices};

use crate::world::cluster::{Happening, World};
use crate::world::faults::Fault;
use crate::world::gang::{LiveGang, Phase};
use crate::world::history::Fact;

impl World {
    /// Those of these attempts that have all of their ranks, or are about to, on nodes that the run
    /// can reach.
    pub(crate) fn living(&self, attempts: Vec<AttemptId>) -> Vec<AttemptId> {
        let lives = |attempt: &AttemptId| {
            self.gangs.get(attempt).is_some_and(|gang| !gang.is_killed && self.is_in_reach(gang))
        };
        attempts.into_iter().filter(lives).collect()
    }

    /// The attempts on devices that were killed, and have processes that outlive their driver.
    pub(crate) fn undead(&self) -> Vec<Undead> {
        let gangs = self.gangs.iter().filter(|(_, gang)| {
            let has_devices = gang.order.purpose != Purpose::Inspection;
            self.has_undead && has_devices && gang.is_killed && self.is_in_reach(gang)
        });
        let undead = gangs.map(|(attempt, gang)| Undead {
            attempt: *attempt,
            task: gang.order.task,
            devices: devices(&gang.order.gang).collect(),
            num_ranks: u32::try_from(gang.live.len()).unwrap_or(u32::MAX),
        });
        undead.collect()
    }

    /// Whether the run can reach all nodes of a gang.
    fn is_in_reach(&self, gang: &LiveGang) -> bool {
        let is_well = |node: usize| {
            let name = self.numbered.get(node).map(|(name, _)| name);
            name.is_some_and(|name| {
                self.nodes.contains_key(name)
                    && !self.silent.contains(name)
                    && !self.leaving.contains_key(name)
            })
        };
        gang.lost.is_empty() && devices(&gang.order.gang).all(|device| is_well(device.node.0))
    }

    /// The driver is dead. The ranks of `living` attempts live on, and their reports wait for the next
    /// driver. The processes of `undead` attempts, which were killed, live on until they end. The
    /// processes of all other attempts die with the driver, immortal processes too, and their reports
    /// are lost. Returns the events of living attempts that the driver had still to be told at this
    /// moment.
    pub fn driver_died(&mut self, living: &[AttemptId], undead: &[Undead]) -> Vec<Event> {
        let undead: Vec<AttemptId> = undead.iter().map(|one| one.attempt).collect();
        if !undead.is_empty() {
            self.hit(Fault::Undead);
            self.history.add(self.now_s, || Fact::Outlive(undead.clone()));
        }
        self.history.add(self.now_s, || Fact::DriverDied(living.to_vec()));
        let dying = self.gangs.keys().copied();
        let dying = dying.filter(|one| !living.contains(one) && !undead.contains(one));
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
        self.heap.retain(|one| {
            let is_of = |all: &[AttemptId]| one.attempt().is_some_and(|of| all.contains(&of));
            is_of(living) || matches!(one, Happening::Ends { .. }) && is_of(&undead)
        });
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
