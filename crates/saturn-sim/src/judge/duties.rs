//! The duties of a decision: towards the event that the engine was told, and towards the records
//! that it stored itself.

use saturn_core::TrialOutcome;
use saturn_engine::{
    AttemptId, Command, Event, FailureKind, Judgement, NamedJudgement, Purpose, RankReport, Ruling,
    TaskId,
};

use crate::judge::books::Books;
use crate::judge::duty::Duty;

/// Why a rank died without a report, by its exit code and the last words of its process. The code
/// is negative after a signal.
fn death(code: i32, last_words: &str) -> FailureKind {
    let has_no_memory = ["std::bad_alloc", "can't allocate memory"];
    match code {
        -9 => FailureKind::Killed,
        ..0 if has_no_memory.iter().any(|words| last_words.contains(words)) => {
            FailureKind::OutOfMemory
        }
        _ => FailureKind::Died,
    }
}

impl Books {
    /// A decision is over: a duty that was not done is a fault.
    pub(super) fn end_decision(&mut self) {
        let attempts = &self.attempts;
        // An attempt that is dying already is not asked to stop.
        let is_left = |task: TaskId| {
            attempts.values().any(|one| {
                one.task == task
                    && one.purpose == Purpose::Train
                    && one.end.is_none()
                    && !one.is_stopping
                    && !one.is_killed
            })
        };
        self.duties.retain(|duty| !matches!(duty, Duty::Halt(task) if !is_left(*task)));
        if let Some(duty) = self.duties.first() {
            let what = format!("{duty:?} was not done");
            self.wrong("what is owed is done", what);
        }
        self.has_space = false;
        self.check_left_to_others();
        self.may_return.clear();
        (self.accuses, self.returns_for_want) = (false, false);
        self.noted.clear();
        self.asked.clear();
    }

    /// Notes the duties that an event brings.
    pub(super) fn note_duties(&mut self, event: &Event) {
        if self.ended.is_some() {
            return;
        }
        match event {
            Event::Interrupt => self.is_interrupted = true,
            Event::Reported { attempt, rank, report } => {
                self.note_report(*attempt, *rank, report);
            }
            Event::Command { command } => {
                self.is_interrupted |= matches!(command, Command::Stop { .. });
                self.note_command(command);
            }
            Event::SpaceFreed => self.note_space(),
            Event::OwnerLeft { .. } | Event::OwnerCame { .. } => self.told_of_people(event),
            Event::Undead { attempts } => self.note_undead(attempts),
            Event::UsedOutside { devices } => self.note_outside(devices.keys().copied().collect()),
            Event::Resume { cluster, .. } => self.note_pool(cluster),
            Event::NodeLeft { name, .. }
                if self.nodes.iter().any(|(one, _, gpus)| one == name && *gpus > 0) =>
            {
                self.duties.push(Duty::NodeLeft(name.clone()));
            }
            Event::RankExited { attempt, rank, code, last_words } => {
                let Some(one) = self.attempts.get_mut(attempt) else { return };
                if one.is_left {
                    one.num_exits += 1;
                    if one.num_exits == one.num_ranks {
                        self.left_are_gone(*attempt);
                    }
                } else if one.end.is_none() {
                    // A rank that has said why it fails, or was killed, ends without news.
                    if *code != 0
                        && !one.is_killed
                        && !one.failed_ranks.contains(rank)
                        && one.cause.is_none()
                    {
                        one.cause = Some(death(*code, last_words));
                        one.death = Some((*code, last_words.clone()));
                    }
                    one.num_exits += 1;
                    if one.num_exits == one.num_ranks {
                        self.duties.push(Duty::End(*attempt));
                    }
                }
            }
            Event::LaunchFailed { attempt, .. } => {
                let Some(one) = self.attempts.get_mut(attempt) else { return };
                one.launch_failed = true;
                if one.is_left {
                    // Its agent has died, and the remaining ranks died with the agent.
                    self.left_are_gone(*attempt);
                }
            }
            _ => {}
        }
    }

    fn note_report(&mut self, attempt: AttemptId, rank: u32, report: &RankReport) {
        let Some(one) = self.attempts.get_mut(&attempt).filter(|one| one.end.is_none()) else {
            return;
        };
        let is_short =
            matches!(report, RankReport::Trial { outcome: TrialOutcome::OutOfMemory { .. }, .. });
        // Beside others that is no outcome, but how the trial fails.
        let is_cramped = is_short && self.outside.are_beside(&one.gang).is_some();
        if is_cramped || matches!(report, RankReport::Failed { .. }) {
            one.failed_ranks.insert(rank);
        }
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
            Command::Cancel { task, .. } => {
                position(task).map(|index| Duty::Cancel(task.clone(), TaskId(index)))
            }
            Command::Pause { task } => position(task)
                .filter(|index| !self.tasks[*index].is_paused)
                .map(|index| Duty::Pause(TaskId(index))),
            Command::Unpause { task } => position(task)
                .filter(|index| self.tasks[*index].is_paused)
                .map(|index| Duty::Unpause(TaskId(index))),
            Command::TakeBack { node, devices } => {
                self.note_asked_back(node, devices);
                None
            }
            Command::Submit { tasks } => {
                Some(Duty::Add(tasks.iter().map(|one| one.spec.name.clone()).collect()))
            }
            Command::Judge { judgements } => {
                let known: Option<Vec<usize>> =
                    judgements.iter().map(|one| position(&one.task)).collect();
                for (index, one) in known.into_iter().flatten().zip(judgements) {
                    self.note_judgement(TaskId(index), &one.judgement);
                }
                None
            }
            _ => None,
        };
        self.duties.extend(duty);
    }

    /// What a task owes to its stopper.
    fn note_judgement(&mut self, id: TaskId, judgement: &Judgement) {
        self.duties.push(Duty::Judged(id, judgement.clone()));
        let task = &self.tasks[id.0];
        let trains = self
            .attempts
            .values()
            .any(|one| one.task == id && one.purpose == Purpose::Train && one.end.is_none());
        if task.end.is_some() || task.ruling == Ruling::Stop {
            return;
        }
        match judgement.ruling {
            Some(Ruling::Hold) if trains && task.can_resume => self.duties.push(Duty::Halt(id)),
            Some(Ruling::Stop) if trains => self.duties.push(Duty::Halt(id)),
            Some(Ruling::Stop) => self.duties.push(Duty::EndStopped(id)),
            _ => {}
        }
    }

    /// The command is refused, so there are no duties.
    pub(super) fn refused(&mut self) {
        self.duties.retain(|duty| {
            !matches!(
                duty,
                Duty::Cancel(..)
                    | Duty::Pause(_)
                    | Duty::TakeBack(_)
                    | Duty::Unpause(_)
                    | Duty::Add(_)
                    | Duty::Judged(..)
                    | Duty::Halt(_)
                    | Duty::EndStopped(_)
            )
        });
    }

    /// Whether the stopper has just ruled so on a task.
    pub(super) fn is_asked_to_judge(&self, name: &str, judgement: &Judgement) -> bool {
        let is_it = |one: &NamedJudgement| one.task == name && one.judgement == *judgement;
        self.asked.iter().any(|one| match one {
            Command::Judge { judgements } => judgements.iter().any(is_it),
            _ => false,
        })
    }

    pub(super) fn is_asked_to_cancel(&self, name: &str) -> bool {
        let is_of = |one: &Command| matches!(one, Command::Cancel { task, .. } if task == name);
        self.asked.iter().any(is_of)
    }
}
