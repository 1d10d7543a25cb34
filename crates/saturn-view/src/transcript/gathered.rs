//! Arrivals and departures that a transcript gathers before it reports them.

use saturn_core::Node;
use saturn_engine::{NodeId, Stage, State, TaskId};

/// A burst is over once nothing has come for so long, seconds.
const PAUSE_S: f64 = 0.2;
/// How long the lines of a beginning wait for its first task, seconds.
const WAIT_S: f64 = 1.0;

/// Arrivals and departures that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// When the first and the last of them came, seconds.
    pub(super) at_s: (f64, f64),
    pub(super) began: bool,
    /// If the run was resumed: where its tasks stood then. Tasks that trained on may end while
    /// lines are gathered.
    pub(super) resumed: Option<Standing>,
    pub(super) closed: bool,
    pub(super) tasks: Vec<TaskId>,
    /// Nodes that joined, each with its earlier specification if it had been there before.
    pub(super) joined: Vec<(NodeId, Option<Node>)>,
    pub(super) left: Vec<(NodeId, String)>,
}

/// How many tasks of a resumed run stand where.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) ended: usize,
    /// Tasks that trained on without a driver, and go on.
    pub(super) adopted: usize,
    pub(super) from_checkpoint: usize,
    pub(super) from_start: usize,
    pub(super) paused: usize,
}

impl Standing {
    pub(super) fn of(state: &State, adopted: usize) -> Self {
        let waiting = || {
            let open = state.task_ids().filter(|task| !state.has_ended(*task));
            open.filter(|task| state.attempt_of(*task).is_none())
        };
        let has_saved = |task: &TaskId| state.task(*task).checkpoint_step > 0;
        Self {
            ended: state.task_ids().filter(|task| state.has_ended(*task)).count(),
            adopted,
            from_checkpoint: waiting().filter(has_saved).count(),
            from_start: waiting().filter(|task| !has_saved(task)).count(),
            paused: waiting().filter(|task| state.stage(*task) == Stage::Paused).count(),
        }
    }
}

impl Arrivals {
    /// Whether the burst may go on.
    pub(super) fn may_wait(&self, now_s: f64) -> bool {
        let (first_s, last_s) = self.at_s;
        now_s - last_s < PAUSE_S || self.began && self.tasks.is_empty() && now_s - first_s < WAIT_S
    }
}
