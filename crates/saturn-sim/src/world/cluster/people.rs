//! People whose processes are started by agents of their own, which may die.

use std::collections::BTreeSet;

use saturn_engine::{AttemptId, Event, FailureKind, TaskId};

use crate::world::cluster::World;
use crate::world::faults::Fault;

impl World {
    /// The agent of a person dies, and with it all processes of these tasks. Its launcher knows that at
    /// once.
    pub(crate) fn agent_dies(&mut self, tasks: &BTreeSet<TaskId>) {
        self.hit(Fault::AgentDies);
        let live = self.gangs.iter().map(|(id, gang)| (*id, gang.order.task));
        let held = self.held_tasks();
        let dead = live.chain(held).filter(|(_, task)| tasks.contains(task));
        let dead: Vec<AttemptId> = dead.map(|(id, _)| id).collect();
        for attempt in dead {
            self.vanish(attempt);
            self.drop_held(attempt);
            let (kind, error) = (FailureKind::Saturn, "its agent died".to_owned());
            self.tell(self.now_s, Event::LaunchFailed { attempt, kind, error });
        }
    }
}
