//! Gangs that the launcher holds back after the engine has launched them: they wait for the parent
//! that starts their ranks, or for the store where these meet.
//!
//! The engine sends each order once. What it orders meanwhile holds when the processes begin.

use rand::RngExt;
use saturn_engine::{AttemptId, Event, LaunchError, TaskId};

use crate::world::cluster::Happening;
use crate::world::cluster::World;
use crate::world::faults::Fault;
use crate::world::gang::Order;

/// The longest wait, seconds. It must stay under the silence after which a gang counts as hung.
const MAX_HOLD_S: f64 = 60.0;

/// A gang that waits, and whether it is to stop as soon as it can.
#[derive(Debug)]
pub(super) struct HeldGang {
    order: Order,
    stops: bool,
}

impl World {
    /// Takes the engine's order to launch a gang.
    pub(crate) fn take_order(&mut self, order: Order) -> Result<(), LaunchError> {
        self.check_nodes(&order)?;
        let parents_s = self.parents_back_s(&order.gang);
        if parents_s.is_none() && !self.is_hit(Fault::HeldBack) {
            return self.begin(order);
        }
        let attempt = order.attempt;
        let until_s =
            parents_s.unwrap_or_else(|| self.now_s + self.rng.random_range(0.5..MAX_HOLD_S));
        self.held.insert(attempt, HeldGang { order, stops: false });
        self.heap.add(until_s, Happening::Begins(attempt));
        Ok(())
    }

    /// What a gang waited for is there.
    pub(super) fn release(&mut self, attempt: AttemptId) {
        let Some(HeldGang { order, stops }) = self.held.remove(&attempt) else { return };
        match self.begin(order) {
            Ok(()) if stops => {
                self.hit(Fault::StoppedUnstarted);
                self.hear_stop(attempt);
            }
            Ok(()) => {}
            Err(LaunchError { kind, error }) => {
                self.tell(self.now_s, Event::LaunchFailed { attempt, kind, error });
            }
        }
    }

    /// The gangs that wait, each with its task.
    pub(super) fn held_tasks(&self) -> impl Iterator<Item = (AttemptId, TaskId)> + '_ {
        self.held.iter().map(|(id, held)| (*id, held.order.task))
    }

    /// Takes back a gang that waits, of which nothing is heard.
    pub(super) fn drop_held(&mut self, attempt: AttemptId) {
        self.held.remove(&attempt);
    }

    /// A gang that waits is to stop. Returns whether it waits.
    pub(super) fn stop_held(&mut self, attempt: AttemptId) -> bool {
        let held = self.held.get_mut(&attempt);
        held.map(|held| held.stops = true).is_some()
    }

    /// A gang that waits hears where to stop. Returns whether it waits.
    pub(super) fn set_until_held(&mut self, attempt: AttemptId, step: Option<u64>) -> bool {
        let held = self.held.get_mut(&attempt);
        held.map(|held| held.order.until_step = step).is_some()
    }

    /// Takes back a gang that waits. Its ranks count as ended, though they never began.
    pub(super) fn forget_held(&mut self, attempt: AttemptId, code: i32) {
        let Some(HeldGang { order, .. }) = self.held.remove(&attempt) else { return };
        self.hit(Fault::KilledUnstarted);
        for rank in 0..order.num_ranks {
            let last_words = String::new();
            self.tell(self.now_s, Event::RankExited { attempt, rank, code, last_words });
        }
    }

    /// A node is gone: gangs that wait and were to have ranks there never begin.
    pub(super) fn forget_held_on(&mut self, name: &str) {
        let is_on = |held: &HeldGang| {
            let mut nodes = held.order.gang.iter().map(|part| self.numbered.get(part.node));
            nodes.any(|node| node.is_some_and(|(numbered, _)| numbered == name))
        };
        let lost: Vec<AttemptId> =
            self.held.iter().filter(|(_, held)| is_on(held)).map(|(id, _)| *id).collect();
        for attempt in lost {
            self.forget_held(attempt, 1);
        }
    }
}
