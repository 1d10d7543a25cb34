//! Arrivals and departures that a transcript gathers before it reports them.

use saturn_core::Node;
use saturn_engine::{NodeId, TaskId};

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
    pub(super) resumed: bool,
    pub(super) closed: bool,
    pub(super) tasks: Vec<TaskId>,
    /// Nodes that joined, each with its earlier specification if it had been there before.
    pub(super) joined: Vec<(NodeId, Option<Node>)>,
    pub(super) left: Vec<(NodeId, String)>,
}

impl Arrivals {
    /// Whether the burst may go on.
    pub(super) fn may_wait(&self, now_s: f64) -> bool {
        let (first_s, last_s) = self.at_s;
        now_s - last_s < PAUSE_S || self.began && self.tasks.is_empty() && now_s - first_s < WAIT_S
    }
}
