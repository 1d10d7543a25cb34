//! What `saturn whatif` says of a run in progress beside its sizes: how it stands, what is left
//! out, and what cancelling tasks would gain.

use saturn_core::Objective;
use saturn_core::names::escape_terminal;
use saturn_engine::Stage;
use serde::Serialize;

use crate::facts::run_status::RunStatus;
use crate::layout::units::{count, duration};
use crate::phrases::words::listed;
use crate::report::whatif::Size;

/// The most tasks that a sentence lists.
const MAX_LISTED: usize = 6;

/// A run whose rest is planned. Seconds count from now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfRun {
    /// How it stands.
    pub status: RunStatus,
    /// Now, seconds on its clock.
    pub now_s: f64,
    /// The nodes that it has.
    pub nodes: usize,
    /// The usable GPUs of these nodes.
    pub gpus: u32,
    /// The objective, which plans minimise.
    pub objective: Objective,
    /// When it ends by its plan in force; null if it has none.
    pub expected_s: Option<f64>,
    /// Whether tasks' own deadlines were left out, since no plan was found that keeps them.
    pub leaves_out_deadlines: bool,
    /// Whether costs were left out, since nodes of several kinds have no one price.
    pub lacks_one_price: bool,
    /// Measured strategies that are in no plan, since the run's nodes can't hold them now.
    pub num_too_wide: usize,
    /// Tasks that count as cancelled.
    pub cancelled: Vec<String>,
    /// Tasks that have not ended and that no plan can contain now.
    pub unplanned: Vec<LeftOut>,
    /// The run with all of its tasks, on the nodes that it has. Of `sizes` it is the first, unless
    /// tasks count as cancelled.
    #[serde(rename = "as_it_is")]
    pub with_all_tasks: Option<Size>,
}

/// A task that no plan can contain now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub task: String,
    /// Where it stands.
    pub stage: Stage,
}

/// `one measured strategy`, `3 measured strategies`.
fn count_of(strategies: usize) -> String {
    match strategies {
        1 => "one measured strategy".to_owned(),
        number => format!("{number} measured strategies"),
    }
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = all.map(|name| format!("`{}`", escape_terminal(name))).collect();
    listed(&all, MAX_LISTED)
}

impl OfRun {
    /// `what is left of 10 tasks, on its 1 node of 2 GPUs in all, and on further nodes of 2 GPUs`.
    pub(crate) fn headline(&self, tasks: &str, gpus_of_further: u32) -> String {
        format!(
            "what is left of {tasks}, on its {} of {} in all, and on further nodes of {}",
            count(self.nodes, "node"),
            count(self.gpus as usize, "GPU"),
            count(gpus_of_further as usize, "GPU"),
        )
    }

    /// The word for the first size.
    pub(crate) fn mark(&self) -> &'static str {
        if self.cancelled.is_empty() { "as it is" } else { "tasks cancelled" }
    }

    /// Two lists of sentences: answers, and warnings. `first_s` is the makespan of the first size,
    /// seconds.
    pub(crate) fn answers(&self, first_s: Option<f64>) -> (Vec<String>, Vec<String>) {
        let (mut answers, mut warnings) = (Vec::new(), Vec::new());
        if let Some(expected_s) = self.expected_s {
            let ends = duration(expected_s);
            answers.push(format!(
                "by its plan in force the run ends in {ends}, as `saturn status` says"
            ));
        }
        let with_all_tasks_s =
            self.with_all_tasks.as_ref().and_then(|size| Some(size.planned?.makespan_s));
        if !self.cancelled.is_empty() {
            let cancelled = names(self.cancelled.iter().map(String::as_str));
            let gain = match (with_all_tasks_s, first_s) {
                (Some(all_s), Some(first_s)) => {
                    format!("the run ends in {} instead of {}", duration(first_s), duration(all_s))
                }
                (None, Some(first_s)) => format!("the run ends in {}", duration(first_s)),
                (_, None) => "no plan was found".to_owned(),
            };
            answers.push(format!("if you cancel {cancelled}: {gain}"));
        }
        if self.objective == Objective::Completion {
            warnings.push(
                "tasks have priorities: plans end the preferred tasks early, and the last task may \
                 end later with more nodes"
                    .to_owned(),
            );
        }
        if self.leaves_out_deadlines {
            warnings.push(
                "no plan was found that keeps the deadlines of all tasks: these plans leave them out"
                    .to_owned(),
            );
        }
        if self.lacks_one_price {
            warnings.push(
                "no costs: the run's and the further nodes differ in type, size or price"
                    .to_owned(),
            );
        }
        if self.num_too_wide > 0 {
            warnings.push(format!(
                "its nodes can't hold {} now: these plans leave them out, though further nodes may \
                 hold them",
                count_of(self.num_too_wide)
            ));
        }
        if !self.unplanned.is_empty() {
            warnings.push(format!("not in these plans: {}", left_out(&self.unplanned)));
        }
        if self.status != RunStatus::Unfinished {
            warnings.push(format!(
                "no process drives the run ({}): this is what is left if it is resumed",
                self.status.word()
            ));
        }
        (answers, warnings)
    }
}

/// Tasks with where they stand: `` `a` (paused), `b` (measuring) ``.
pub fn left_out(tasks: &[LeftOut]) -> String {
    let words =
        tasks.iter().map(|one| format!("`{}` ({})", escape_terminal(&one.task), one.stage.word()));
    listed(&words.collect::<Vec<_>>(), MAX_LISTED)
}
