//! Lines for trials.

use saturn_core::names::escape_terminal;
use saturn_core::{Strategy, TrialOutcome};
use saturn_engine::{ChosenTrial, State, TaskId, TaskStatus};

use crate::facts::counts::TrialCounts;
use crate::layout::text::{pad, width};
use crate::layout::units::{count, duration, step_time};
use crate::phrases::words;
use crate::phrases::words::listed;
use crate::transcript::writer::{MAX_LISTED, Transcript};

/// The relative change of a strategy's seconds a step in training from which a new line appears.
const NEWS: f64 = 0.1;

impl Transcript {
    pub(super) fn tried(
        &mut self,
        state: &State,
        (group, gpu_type): (&str, &str),
        strategy: &Strategy,
        outcome: &TrialOutcome,
        now_s: f64,
    ) -> Vec<String> {
        let Some(group) = state.groups.iter().find(|one| one.key == group) else {
            return Vec::new();
        };
        let Some(task) = group.tasks.first().copied() else { return Vec::new() };
        let (num_known, num_all) = TrialCounts::of(state).progress();
        let words = words::outcome(outcome);
        let words = match outcome {
            TrialOutcome::Measured { .. } => words,
            TrialOutcome::NotApplicable { .. } | TrialOutcome::OutOfMemory { .. } => {
                self.paint.warn(&words)
            }
            TrialOutcome::Failed { .. } => self.paint.bad(&words),
        };
        let digits = num_all.to_string().len();
        let device = words::on_type(state, gpu_type);
        let speaks_for = match group.tasks.len() {
            0 | 1 => String::new(),
            number => self.paint.dim(&format!("  (holds for {number} tasks)")),
        };
        let text = format!(
            "{num_known:>digits$} of {num_all}  {}  {}{device}  {words}{speaks_for}",
            self.name(state, task),
            pad(&words::strategy(strategy), Self::strategy_width(state)),
        );
        let mut lines = vec![self.line(now_s, "trial", &text)];
        if let TrialOutcome::Failed { traceback, .. } = outcome {
            lines.extend(self.traceback(state, task, traceback));
        }
        lines
    }

    /// A line for chosen trials and the reason for them.
    pub(super) fn trials_chosen(
        &self,
        state: &State,
        trials: &[ChosenTrial],
        (saves_s, cost_s): (f64, f64),
        now_s: f64,
    ) -> String {
        let names: Vec<String> = trials
            .iter()
            .map(|trial| {
                let group = state.groups.iter().find(|group| group.key == trial.group);
                let task = group.and_then(|group| group.tasks.first().copied());
                let name = task.map_or("", |task| state.name(task));
                let strategy = words::technique_on(&trial.strategy.technique, trial.strategy.gpus);
                let device = words::on_type(state, &trial.gpu_type);
                format!("{strategy}{device} of {}", escape_terminal(name))
            })
            .collect();
        let text = format!(
            "{} worth running, {}: may save up to {}, for {} of devices' time",
            count(trials.len(), "more trial"),
            listed(&names, MAX_LISTED),
            duration(saves_s),
            duration(cost_s),
        );
        self.line(now_s, "measure", &text)
    }

    /// Lines for a strategy's seconds a step in training, if they have changed enough. Small
    /// changes occur all the time.
    pub(super) fn observed(
        &mut self,
        state: &State,
        (group, gpu_type): (&str, &str),
        strategy: &Strategy,
        step_s: f64,
        now_s: f64,
    ) -> Vec<String> {
        let group = state.groups.iter().find(|one| one.key == group);
        let mut of_group = group.iter().flat_map(|group| group.tasks.iter().copied());
        let is_rest = of_group.clone().any(|task| state.task(task).spec.is_rest);
        // The time that the rest of a script took matters only to tasks that wait.
        let is_told = |task: &TaskId| !is_rest || state.task(*task).status == TaskStatus::Waiting;
        let Some(task) = of_group.find(is_told) else { return Vec::new() };
        let shown = words::strategy(strategy);
        let of =
            (group.map_or_else(String::new, |one| one.key.clone()), shown, gpu_type.to_owned());
        if self.told_paces.get(&of).is_some_and(|told_s| (step_s / told_s - 1.0).abs() < NEWS) {
            return Vec::new();
        }
        self.told_paces.insert(of, step_s);
        let found = if is_rest {
            format!("{}, as long as the ended rests took", duration(step_s))
        } else {
            format!("{}, measured in training", step_time(step_s))
        };
        let text = format!(
            "{}  {}{}  {found}",
            self.name(state, task),
            pad(&words::strategy(strategy), Self::strategy_width(state)),
            words::on_type(state, gpu_type),
        );
        vec![self.line(now_s, "measure", &text)]
    }

    /// The columns of the widest strategy that the run may have.
    pub(super) fn strategy_width(state: &State) -> usize {
        let gpus = state.cluster.nodes.iter().map(|node| node.gpus).max().unwrap_or(1);
        let techniques = state.config.techniques.iter();
        let widths = techniques.map(|one| width(&words::technique_on(&one.name, gpus)));
        widths.max().unwrap_or(0)
    }
}
