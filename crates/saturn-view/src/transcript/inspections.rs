//! Lines for inspections of models.

use saturn_core::Inspection;
use saturn_engine::{FailureKind, RankFailure, State, TaskId};

use crate::phrases::inspected::{ruled_out, size};
use crate::phrases::words;
use crate::transcript::writer::{Transcript, more};

impl Transcript {
    /// Lines for a group's inspection: the model's size, and on a line of its own what can't run
    /// it.
    pub(super) fn inspected(
        &self,
        state: &State,
        group: &str,
        inspection: &Inspection,
        now_s: f64,
    ) -> Vec<String> {
        let Some(group) = state.groups.iter().find(|one| one.key == group) else {
            return Vec::new();
        };
        let Some(task) = group.tasks.first().copied() else { return Vec::new() };
        let alike = match group.tasks.len() - 1 {
            0 => String::new(),
            number => self.paint.dim(&format!("  (and {number} like it)")),
        };
        let text = format!("{}  {}{alike}", self.name(state, task), size(inspection));
        let mut lines = vec![self.line(now_s, "inspect", &text)];
        lines.extend(ruled_out(inspection).map(|text| more(&self.paint.dim(&text))));
        lines
    }

    /// Lines for a failed inspection. Empty if the task's own functions raised, since the task then
    /// ends and its end has a line.
    pub(super) fn inspection_failed(
        &self,
        state: &State,
        task: TaskId,
        failure: &RankFailure,
        now_s: f64,
    ) -> Vec<String> {
        let is_again = state.is_to_inspect(state.task(task).group);
        if failure.kind == FailureKind::Task && is_again {
            return Vec::new();
        }
        let next =
            if is_again { "inspected again" } else { "trials will show which strategies run" };
        let text = format!(
            "{}  its model could not be inspected: {}: {}; {next}",
            self.name(state, task),
            words::failure_kind(failure.kind),
            words::first_line(&failure.error),
        );
        vec![self.line(now_s, &self.paint.warn("inspect"), &text)]
    }
}
