//! What a decision must hold.

use saturn_engine::{Action, AttemptId, DeviceId, Judgement, Record, TaskEnd, TaskId};

/// An action or record that must be in the same decision.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Duty {
    /// A gang with a failed rank is killed.
    Kill(AttemptId),
    /// A stored launch is performed.
    Launch(AttemptId),
    /// A stored stop is performed.
    Stop(AttemptId),
    /// A waiting trial hears whether it goes on.
    Answer(AttemptId),
    /// A stored new last step is told to the gang.
    Until(AttemptId),
    /// A failed task is tried again, under the same or another strategy, or ends.
    Recover(TaskId),
    /// A command is obeyed.
    Cancel(String, TaskId),
    /// A command is obeyed.
    Pause(TaskId),
    /// A command is obeyed.
    Unpause(TaskId),
    /// A command is obeyed.
    Add(Vec<String>),
    /// The loss of a node is recorded.
    NodeLeft(String),
    /// The devices of an attempt are set aside, since its processes live.
    SetAside(AttemptId),
    /// A device is used again.
    TakeBack(DeviceId),
    /// A node is recorded that is there when a driver takes over: its name, type and devices.
    NodeIsThere(String, String, u32),
    /// A gang without processes has ended.
    End(AttemptId),
    /// A report of a checkpoint is recorded.
    Checkpointed(AttemptId, u64),
    /// A report of a start is recorded.
    Started(AttemptId, u64),
    /// What the stopper says of a task is recorded.
    Judged(TaskId, Judgement),
    /// A task that trains and is to rest is stopped.
    Halt(TaskId),
    /// A task that is to end, and does not train, ends.
    EndStopped(TaskId),
}

impl Duty {
    pub(super) fn is_done_by(&self, record: &Record) -> bool {
        match (self, record) {
            (
                Self::Recover(task),
                Record::Retrying { task: of, .. }
                | Record::Excluded { task: of, .. }
                | Record::TaskEnded { task: of, .. },
            )
            | (
                Self::Cancel(_, task),
                Record::TaskEnded { task: of, end: TaskEnd::Cancelled { .. } },
            )
            | (Self::EndStopped(task), Record::TaskEnded { task: of, .. })
            | (Self::Pause(task), Record::Paused { task: of })
            | (Self::Unpause(task), Record::Unpaused { task: of }) => task == of,
            (Self::Judged(task, said), Record::Judged { task: of, judgement }) => {
                task == of && said == judgement
            }
            (Self::TakeBack(id), Record::TakenBack { node, devices, .. }) => {
                id.node == *node && devices.contains(&id.device)
            }
            (Self::NodeIsThere(name, gpu_type, gpus), Record::NodeJoined { spec, .. }) => {
                (name, gpu_type, gpus) == (&spec.name, &spec.gpu_type, &spec.gpus)
            }
            (Self::End(attempt), Record::Ended { attempt: of, .. }) => attempt == of,
            (Self::NodeLeft(_), Record::NodeLeft { .. })
            | (Self::SetAside(_), Record::SetAside { .. }) => true,
            (
                Self::Checkpointed(attempt, step),
                Record::Checkpointed { attempt: of, step: at, .. },
            )
            | (Self::Started(attempt, step), Record::Started { attempt: of, step: at, .. }) => {
                attempt == of && step == at
            }
            _ => false,
        }
    }

    pub(super) fn is_done_in(&self, action: &Action) -> bool {
        match (self, action) {
            (Self::Kill(attempt), Action::Kill { attempt: of })
            | (Self::Launch(attempt), Action::Launch { attempt: of, .. })
            | (
                Self::Answer(attempt),
                Action::GoOn { attempt: of, .. } | Action::Stop { attempt: of },
            )
            | (Self::Stop(attempt), Action::Stop { attempt: of })
            | (Self::Until(attempt), Action::Until { attempt: of, .. }) => attempt == of,
            _ => false,
        }
    }
}
