//! How a rank fails, as far as the rank or the launcher can tell.

use serde::{Deserialize, Serialize};

/// Why a rank failed, as far as it can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The task's own functions raised, or returned what they must not.
    Task,
    /// The task failed in a way that it would repeat, such as a script that ends before its last
    /// step. The task is not tried again, however far it came.
    Certain,
    /// A device's memory ran out.
    OutOfMemory,
    /// Another rank went away: an echo, never the cause.
    PeerLost,
    /// The technique says that it can't run this task.
    NotApplicable,
    /// The process ended without a word.
    Died,
    /// The process was killed by signal 9 that Saturn did not send: by a person, or by the kernel.
    Killed,
    /// The kernel killed the process because host memory ran out. This says nothing about the
    /// memory of its device.
    HostMemory,
    /// The machine failed, not the task.
    Machine,
    /// One of Saturn's own processes failed, such as the parent of ranks, or the rank's node left.
    Saturn,
    /// The same again and again under one task, which may be the cause. The task is not tried again.
    SaturnRepeated,
    /// Nothing was heard for longer than the policy allows.
    Stalled,
    /// The disk is full.
    NoSpace,
    /// Anything else.
    Error,
}

impl FailureKind {
    /// Whether the task is to blame: its own functions raised, or Saturn's own processes failed
    /// under this task only.
    pub fn is_the_tasks(self) -> bool {
        matches!(self, Self::Task | Self::Certain | Self::SaturnRepeated)
    }

    /// Whether a broken device makes attempts fail in this way.
    pub(crate) fn may_be_machines_fault(self) -> bool {
        matches!(self, Self::Died | Self::Machine | Self::Stalled)
    }
}

/// A rank's failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFailure {
    /// Which rank.
    pub rank: u32,
    /// What kind.
    pub kind: FailureKind,
    /// One line.
    pub error: String,
    /// The worker's own traceback, or empty.
    #[serde(default)]
    pub traceback: String,
}
