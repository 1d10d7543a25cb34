//! The names of the kinds of records.

use crate::facts::record::Record;

impl Record {
    /// Its kind, as journals name it: the value of `record` in its JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Began { .. } => "began",
            Self::Resumed { .. } => "resumed",
            Self::DriverStarted { .. } => "driver_started",
            Self::StoodStill { .. } => "stood_still",
            Self::NodeJoined { .. } => "node_joined",
            Self::NodeLeft { .. } => "node_left",
            Self::SetAside { .. } => "set_aside",
            Self::TakenBack { .. } => "taken_back",
            Self::TaskAdded { .. } => "task_added",
            Self::Closed => "closed",
            Self::Wished { .. } => "wished",
            Self::Paused { .. } => "paused",
            Self::Unpaused { .. } => "unpaused",
            Self::OwnerLeft { .. } => "owner_left",
            Self::OwnerCame { .. } => "owner_came",
            Self::Shared { .. } => "shared",
            Self::Guaranteed { .. } => "guaranteed",
            Self::Judged { .. } => "judged",
            Self::Launched { .. } => "launched",
            Self::Started { .. } => "started",
            Self::Checkpointed { .. } => "checkpointed",
            Self::Evaluated { .. } => "evaluated",
            Self::Inspected { .. } => "inspected",
            Self::WentOn { .. } => "went_on",
            Self::Tried { .. } => "tried",
            Self::TrialsChosen { .. } => "trials_chosen",
            Self::Observed { .. } => "observed",
            Self::Clocked { .. } => "clocked",
            Self::Solved { .. } => "solved",
            Self::Planned { .. } => "planned",
            Self::PlanKept { .. } => "plan_kept",
            Self::NotSolved { .. } => "not_solved",
            Self::Stopping { .. } => "stopping",
            Self::Until { .. } => "until",
            Self::Ended { .. } => "ended",
            Self::Retrying { .. } => "retrying",
            Self::Excluded { .. } => "excluded",
            Self::TaskEnded { .. } => "task_ended",
            Self::Noted { .. } => "noted",
            Self::Interrupted { .. } => "interrupted",
            Self::RunEnded { .. } => "run_ended",
        }
    }
}
