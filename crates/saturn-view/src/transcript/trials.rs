//! What is said while strategies are measured.

use saturn_core::{Strategy, TrialOutcome};
use saturn_engine::{State, TaskStatus, TrialSlot};

use super::{Transcript, more};
use crate::units::count;
use crate::words;

impl Transcript {
    pub(super) fn began(&self, state: &State, now_s: f64) -> Vec<String> {
        let config = &state.config;
        let techniques: Vec<String> = config
            .techniques
            .iter()
            .map(|technique| saturn_core::names::escape_terminal(&technique.name))
            .collect();
        let num_devices = config.cluster.num_gpus();
        let workload = format!(
            "{} on {}; {}: {}",
            count(state.tasks.len(), "task"),
            words::pool(config.device_kind, num_devices, config.device_memory_bytes),
            if techniques.len() == 1 { "technique" } else { "techniques" },
            techniques.join(", "),
        );
        let mut lines = vec![self.line(now_s, &self.paint.bold("begin"), &workload)];
        lines.push(more(&to_measure(state)));
        lines
    }

    pub(super) fn resumed(&mut self, state: &State, now_s: f64) -> Vec<String> {
        self.show_plan = true;
        let num_ended =
            state.tasks.iter().filter(|task| matches!(task.status, TaskStatus::Ended(_))).count();
        let num_begun = state
            .tasks
            .iter()
            .filter(|task| task.checkpoint_step > 0 && !matches!(task.status, TaskStatus::Ended(_)))
            .count();
        let text = format!(
            "{num_ended} of {} ended; {num_begun} from a checkpoint, {} from the start",
            count(state.tasks.len(), "task"),
            state.tasks.len() - num_ended - num_begun,
        );
        let mut lines = vec![self.line(now_s, &self.paint.bold("resume"), &text)];
        if state.trials.iter().any(|trial| state.is_open(trial)) {
            lines.push(more(&to_measure(state)));
        }
        lines
    }

    pub(super) fn tried(
        &mut self,
        state: &State,
        trial: usize,
        strategy: &Strategy,
        outcome: &TrialOutcome,
        now_s: f64,
    ) -> Vec<String> {
        let Some(slot) = state.trials.get(trial) else { return Vec::new() };
        let (num_known, num_all) = progress(state);
        let words = words::outcome(outcome);
        let words = match outcome {
            TrialOutcome::Measured { .. } => words,
            TrialOutcome::NotApplicable { .. } | TrialOutcome::OutOfMemory { .. } => {
                self.paint.warn(&words)
            }
            TrialOutcome::Failed { .. } => self.paint.bad(&words),
        };
        let digits = num_all.to_string().len();
        let text = format!(
            "{num_known:>digits$} of {num_all}  {}  {}  {words}{}",
            self.name(state, slot.task),
            crate::text::pad(&words::strategy(strategy), Self::strategy_width(state)),
            self.speaks_for(state, slot),
        );
        let mut lines = vec![self.line(now_s, "trial", &text)];
        if let TrialOutcome::Failed { traceback, .. } = outcome {
            lines.extend(self.traceback(state, slot.task, traceback));
        }
        lines
    }

    fn speaks_for(&self, state: &State, slot: &TrialSlot) -> String {
        let num_tasks = state.tasks_like(slot.task).count();
        if num_tasks < 2 {
            return String::new();
        }
        self.paint.dim(&format!("  (speaks for {num_tasks} tasks)"))
    }

    /// Columns of the widest strategy of the run.
    pub(super) fn strategy_width(state: &State) -> usize {
        let widths =
            state.trials.iter().map(|slot| crate::text::width(&words::strategy(&slot.strategy)));
        widths.max().unwrap_or(0)
    }
}

/// Trials of this run that have an outcome, and all of them; those of an earlier search apart.
pub(crate) fn progress(state: &State) -> (usize, usize) {
    let trials = || state.trials.iter().filter(|trial| !trial.reused);
    (trials().filter(|trial| trial.outcome.is_some()).count(), trials().count())
}

/// `28 trials to run: 4 tasks are measured and speak for 12; 3 known from an earlier search`.
fn to_measure(state: &State) -> String {
    let (num_known, num_all) = progress(state);
    let num_reused = state.trials.len() - num_all;
    let num_groups = state.task_ids().filter(|task| state.group_of(*task) == *task).count();
    let alike = if num_all > num_known && num_groups < state.tasks.len() {
        format!(
            ": {} measured {} for all {}, the others perform alike by construction",
            count(num_groups, "task"),
            if num_groups == 1 { "speaks" } else { "speak" },
            state.tasks.len(),
        )
    } else {
        String::new()
    };
    let reused = if num_reused > 0 {
        format!("; {num_reused} known from an earlier search")
    } else {
        String::new()
    };
    format!("{} to run{alike}{reused}", count(num_all - num_known, "trial"))
}
