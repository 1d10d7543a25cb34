//! Checkpoints that turn out to be damaged when they are loaded: the one before is taken.

use std::collections::BTreeMap;

use saturn_engine::TaskId;

use crate::world::cluster::World;
use crate::world::faults::Fault;
use crate::world::history::Fact;

/// What a damaged checkpoint leads back to.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Steps of each task's checkpoints before the newest, the oldest first.
    older: BTreeMap<TaskId, Vec<u64>>,
    /// Steps of the furthest checkpoint of each task that was damaged.
    furthest: BTreeMap<TaskId, u64>,
}

impl Damage {
    /// A checkpoint of `step` finished steps is the newest, after one of `before`.
    pub(super) fn note_saved(&mut self, task: TaskId, step: u64, before: Option<u64>) {
        let older = self.older.entry(task).or_default();
        older.extend(before.filter(|before| *before < step));
    }
}

impl World {
    /// Finished steps in the checkpoint that a gang loads: the newest, unless that is damaged.
    pub(super) fn load_newest(&mut self, task: TaskId) -> u64 {
        let newest = self.saved_step(task);
        let has_older = self.damage.older.get(&task).is_some_and(|older| !older.is_empty());
        if !has_older || !self.is_hit(Fault::DamagedCheckpoint) {
            return newest;
        }
        let Some(step) = self.damage.older.get_mut(&task).and_then(Vec::pop) else { return newest };
        self.disk.insert(task, step);
        let furthest = self.damage.furthest.entry(task).or_default();
        *furthest = newest.max(*furthest);
        self.history.add(self.now_s, || Fact::Damaged { task, step });
        step
    }

    /// Steps up to which a task's checkpoints may have been damaged; 0 if none was.
    pub(crate) fn damaged_up_to(&self, task: TaskId) -> u64 {
        self.damage.furthest.get(&task).copied().unwrap_or(0)
    }
}
