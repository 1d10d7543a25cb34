//! Rules on tasks whose functions raise before the tasks that they come after are done: this says
//! nothing of the task or its group. The functions may need what those tasks make.

use saturn_engine::{AttemptEnd, AttemptId, Purpose, TaskEnd, TaskId};

use crate::judge::books::Books;
use crate::judge::tasks::is_raised;

impl Books {
    /// Whether tasks that a task comes after are not done.
    pub(super) fn waits_for_others(&self, id: TaskId) -> bool {
        let is_done =
            |before: &TaskId| matches!(self.tasks[before.0].end, Some(TaskEnd::Done { .. }));
        !self.tasks[id.0].after.iter().all(is_done)
    }

    /// An attempt has ended: notes whether its task's functions were called too early.
    pub(super) fn note_whether_early(&mut self, id: AttemptId, end: &AttemptEnd) {
        let Some(one) = self.attempts.get(&id) else { return };
        let (task, purpose) = (one.task, one.purpose);
        let AttemptEnd::Failed { failure } = end else { return };
        // A search waits for no task, and so calls all functions at once.
        let is_early = purpose != Purpose::Train
            && !self.is_search()
            && is_raised(failure.kind)
            && !self.tasks[task.0].has_worked
            && self.waits_for_others(task);
        if is_early {
            self.tasks[task.0].raised_early = true;
            if let Some(one) = self.attempts.get_mut(&id) {
                one.was_early = true;
            }
        }
    }

    /// Why a task's functions may not be called now.
    pub(super) fn why_not_called(&self, id: TaskId) -> Option<String> {
        let is_early = self.tasks[id.0].raised_early && self.waits_for_others(id);
        is_early.then(|| "its functions raise until the tasks before it are done".to_owned())
    }
}
