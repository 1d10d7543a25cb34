//! What a decision owes: to what was told, and to what it has stored itself.

use saturn_engine::{
    Action, AttemptId, Command, Event, FailureKind, Judgement, NamedJudgement, Purpose, RankReport,
    Record, TaskEnd, TaskId,
};

use super::books::Books;

/// Something that must be done in the same decision.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Duty {
    /// A gang with a failed rank dies.
    Kill(AttemptId),
    /// A launch that was stored is performed.
    Launch(AttemptId),
    /// A stop that was stored is performed.
    Stop(AttemptId),
    /// A trial that waits for it hears whether it goes on.
    Answer(AttemptId),
    /// A new last step that was stored is told.
    Until(AttemptId),
    /// A failed task is tried again, or otherwise, or ends.
    Recover(TaskId),
    /// A command is obeyed.
    Cancel(String, TaskId),
    /// A command is obeyed.
    Pause(TaskId),
    /// A command is obeyed.
    Unpause(TaskId),
    /// A command is obeyed.
    Add(Vec<String>),
    /// A node that goes is noted.
    NodeLeft(String),
    /// An attempt whose devices must be set aside, since its processes live.
    SetAside(AttemptId),
    /// A gang of which nothing is left has ended.
    End(AttemptId),
    /// A word that must be kept.
    Checkpointed(AttemptId, u64),
    /// The same of a start.
    Started(AttemptId, u64),
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
            | (Self::Pause(task), Record::Paused { task: of })
            | (Self::Unpause(task), Record::Unpaused { task: of }) => task == of,
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

impl Books {
    /// A decision is over: whatever it owes is owed for good.
    pub(super) fn end_decision(&mut self) {
        if let Some(duty) = self.duties.first() {
            let what = format!("{duty:?} was not done");
            self.wrong("what is owed is done", what);
        }
        self.has_space = false;
        self.asked.clear();
    }

    /// What being told this asks of the decision.
    pub(super) fn note_duties(&mut self, event: &Event) {
        if self.ended.is_some() {
            return;
        }
        match event {
            Event::Reported { attempt, report, .. } => self.note_report(*attempt, report),
            Event::Command { command } => self.note_command(command),
            Event::SpaceFreed => self.note_space(),
            Event::NodeLeft { name, .. }
                if self.nodes.iter().any(|(one, _, gpus)| one == name && *gpus > 0) =>
            {
                self.duties.push(Duty::NodeLeft(name.clone()));
            }
            Event::RankExited { attempt, .. } => {
                let one = self.attempts.get_mut(attempt);
                if let Some(one) = one.filter(|one| one.end.is_none()) {
                    one.num_exits += 1;
                    if one.num_exits == one.num_ranks {
                        self.duties.push(Duty::End(*attempt));
                    }
                }
            }
            Event::LaunchFailed { attempt, .. } => {
                if let Some(one) = self.attempts.get_mut(attempt) {
                    one.launch_failed = true;
                }
            }
            _ => {}
        }
    }

    fn note_report(&mut self, attempt: AttemptId, report: &RankReport) {
        let Some(one) = self.attempts.get_mut(&attempt).filter(|one| one.end.is_none()) else {
            return;
        };
        if let RankReport::Failed { kind, .. } = report
            && *kind != FailureKind::PeerLost
            && !one.is_killed
        {
            one.cause.get_or_insert(*kind);
        }
        one.said.push(report.clone());
        match report {
            RankReport::Failed { kind, .. }
                if *kind != FailureKind::PeerLost && !one.is_killed && !one.live.is_empty() =>
            {
                self.duties.push(Duty::Kill(attempt));
            }
            RankReport::Checkpoint { step, .. } => {
                self.duties.push(Duty::Checkpointed(attempt, *step));
            }
            RankReport::Trial { step: Some(step), .. }
                if one.purpose == Purpose::Trial && !one.is_killed && !one.has_waited =>
            {
                (one.waits_at, one.has_waited) = (Some(*step), true);
                self.duties.push(Duty::Answer(attempt));
            }
            RankReport::Started { step, .. } => self.duties.push(Duty::Started(attempt, *step)),
            _ => {}
        }
    }

    fn note_command(&mut self, command: &Command) {
        self.asked.push(command.clone());
        let position = |name: &str| self.tasks.iter().position(|one| one.name == name);
        let duty = match command {
            Command::Cancel { task } => {
                position(task).map(|index| Duty::Cancel(task.clone(), TaskId(index)))
            }
            Command::Pause { task } => position(task)
                .filter(|index| !self.tasks[*index].is_paused)
                .map(|index| Duty::Pause(TaskId(index))),
            Command::Unpause { task } => position(task)
                .filter(|index| self.tasks[*index].is_paused)
                .map(|index| Duty::Unpause(TaskId(index))),
            Command::Submit { tasks } => {
                Some(Duty::Add(tasks.iter().map(|one| one.spec.name.clone()).collect()))
            }
            _ => None,
        };
        self.duties.extend(duty);
    }

    /// The command is refused: nothing is owed.
    pub(super) fn refused(&mut self) {
        self.duties.retain(|duty| {
            !matches!(duty, Duty::Cancel(..) | Duty::Pause(_) | Duty::Unpause(_) | Duty::Add(_))
        });
    }

    /// Whether the stopper has just said so of a task.
    pub(super) fn is_asked_to_judge(&self, name: &str, judgement: &Judgement) -> bool {
        let is_it = |one: &NamedJudgement| one.task == name && one.judgement == *judgement;
        self.asked.iter().any(|one| match one {
            Command::Judge { judgements } => judgements.iter().any(is_it),
            _ => false,
        })
    }

    pub(super) fn is_asked_to_cancel(&self, name: &str) -> bool {
        let is_of = |one: &Command| matches!(one, Command::Cancel { task } if task == name);
        self.asked.iter().any(is_of)
    }
}
