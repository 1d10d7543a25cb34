//! The history of a simulation, as seen at the seam between engine and world.

use saturn_core::Gang;
use saturn_engine::{Action, AttemptId, Event, NodeId, Purpose, Record, TaskId};

use crate::world::faults::Fault;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The engine was told an event. Reports of progress are left out.
    Told(Event),
    /// The engine refused a command.
    Refused(String),
    /// A record was stored.
    Stored(Record),
    /// An action was performed.
    Performed(Action),
    /// Processes of a gang came into being.
    Started {
        /// Their attempt.
        attempt: AttemptId,
        /// Their task.
        task: TaskId,
        /// Trial or training.
        purpose: Purpose,
        /// Their devices.
        gang: Gang,
        /// Their number.
        num_ranks: u32,
    },
    /// A gang has loaded its task.
    Loaded {
        /// Its attempt.
        attempt: AttemptId,
        /// Finished steps in the loaded checkpoint.
        step: u64,
    },
    /// A process is gone.
    Gone {
        /// Its attempt.
        attempt: AttemptId,
        /// Its rank.
        rank: u32,
    },
    /// A checkpoint is on the disk.
    Saved {
        /// The attempt that wrote it.
        attempt: AttemptId,
        /// Its task.
        task: TaskId,
        /// Finished steps in it.
        step: u64,
    },
    /// The newest checkpoint of a task turned out to be damaged.
    Damaged {
        /// The task.
        task: TaskId,
        /// Finished steps in the checkpoint before it, which is the newest now.
        step: u64,
    },
    /// A node went with everything on it, or came.
    Node {
        /// Its name.
        name: String,
        /// Its devices; 0 if it went.
        gpus: u32,
    },
    /// The node's number, and its name.
    Numbered {
        /// Number.
        node: NodeId,
        /// Name.
        name: String,
    },
    /// A fault occurred.
    Hit(Fault),
    /// Processes of these attempts, which were killed, outlive the driver that dies next.
    Outlive(Vec<AttemptId>),
    /// The driver died. Only the ranks of these attempts live on.
    DriverDied(Vec<AttemptId>),
    /// The world stands still.
    Over,
}

/// Everything that happened, with its time in seconds.
#[derive(Debug, Default)]
pub struct History {
    /// In order.
    pub facts: Vec<(f64, Fact)>,
    /// Nothing is kept, for runs that are only timed.
    pub is_off: bool,
}

impl History {
    /// Adds a fact of the present moment.
    pub(crate) fn add(&mut self, now_s: f64, fact: impl FnOnce() -> Fact) {
        if !self.is_off {
            self.facts.push((now_s, fact()));
        }
    }
}
