//! Bugs that are planted between engine and world, to test that they are found.
//!
//! A saboteur stands at the seam. It drops, doubles, reorders and alters the engine's events,
//! records and actions. To the invariants and the judge, an engine with a saboteur is an engine
//! with that bug. The engine itself carries no test code.

use saturn_core::{Placement, TrialOutcome};
use saturn_engine::{
    Action, AttemptId, Command, Decision, Event, FailureKind, Mode, Purpose, RankReport, Record,
    RunEnd, State, TaskEnd,
};

use crate::driving::seam::Sabotage;

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A failed gang's devices are free before its processes are gone.
    FreedEarly,
    /// A rank's end counts twice, and so frees its gang's devices.
    FreedTwice,
    /// A rank's end is overlooked.
    ExitOverlooked,
    /// A gang that goes on from a checkpoint is taken to begin anew.
    StepsForgotten,
    /// A checkpoint is overlooked.
    CheckpointOverlooked,
    /// A stop is mistaken for the end.
    StopTakenForEnd,
    /// A trial's measurement is stored wrongly.
    TrialMiscopied,
    /// An inspection's answer is not stored.
    InspectionNotStored,
    /// An inspection's verdict is stored wrongly.
    VerdictMiscopied,
    /// A model is inspected on a device.
    InspectedOnDevice,
    /// Memory that ran out is mistaken for a crash.
    MemoryTakenForCrash,
    /// A cancelled task goes on.
    CancelIgnored,
    /// A paused task goes on.
    PauseIgnored,
    /// What the stopper says is lost.
    JudgementLost,
    /// One of several submitted tasks is lost.
    TaskLost,
    /// A task's release is lost.
    ReleaseLost,
    /// The predecessors of a task are lost.
    OrderLost,
    /// A node's loss is overlooked.
    NodeLossOverlooked,
    /// The death of a person's agent is overlooked.
    AgentDeathOverlooked,
    /// A node is taken to have more devices than it has.
    DevicesMiscounted,
    /// Timers never ring.
    TimersDead,
    /// A solver's answer is lost.
    AnswerLost,
    /// A retry is not stored.
    RetryLost,
    /// A checkpoint is not stored.
    CheckpointNotStored,
    /// A retry is stored twice.
    RetryStoredTwice,
    /// An attempt's end is stored with another step.
    EndMiscopied,
    /// Records are stored in the wrong order.
    RecordsReversed,
    /// Actions are performed before their records are stored.
    RecordAfterAction,
    /// An attempt gets the number of an earlier one.
    NumberReused,
    /// A kill is not performed.
    KillLost,
    /// A stop is not performed.
    StopLost,
    /// A running gang is not told of its new last step.
    UntilLost,
    /// A trial that goes on as training is not told so.
    GoOnLost,
    /// A launch is not performed.
    LaunchLost,
    /// A launch is performed twice.
    LaunchDoubled,
    /// A gang is launched on another device than was stored.
    WrongDevice,
    /// A gang is launched without one of its devices.
    GangCut,
    /// A solve is never asked for.
    SolveLost,
    /// A new driver reads the journal without its end.
    JournalTorn,
    /// The run is said to be complete with tasks left.
    EndedEarly,
    /// A task that was given up is stored as done.
    FailureHidden,
    /// A task that is done is stored as given up.
    FailureInvented,
    /// A search is said to be complete when no trial runs, with trials left to run.
    SearchEndedEarly,
    /// A search never ends.
    SearchEndless,
    /// A search's trials on one device are never launched.
    SearchTrialLost,
    /// A search trains what it should try.
    SearchTrains,
}

impl Bug {
    /// Every bug.
    pub const ALL: &[Self] = &[
        Self::FreedEarly,
        Self::FreedTwice,
        Self::ExitOverlooked,
        Self::StepsForgotten,
        Self::CheckpointOverlooked,
        Self::StopTakenForEnd,
        Self::TrialMiscopied,
        Self::InspectionNotStored,
        Self::VerdictMiscopied,
        Self::InspectedOnDevice,
        Self::MemoryTakenForCrash,
        Self::CancelIgnored,
        Self::PauseIgnored,
        Self::JudgementLost,
        Self::TaskLost,
        Self::ReleaseLost,
        Self::OrderLost,
        Self::NodeLossOverlooked,
        Self::AgentDeathOverlooked,
        Self::DevicesMiscounted,
        Self::TimersDead,
        Self::AnswerLost,
        Self::RetryLost,
        Self::CheckpointNotStored,
        Self::RetryStoredTwice,
        Self::EndMiscopied,
        Self::RecordsReversed,
        Self::RecordAfterAction,
        Self::NumberReused,
        Self::KillLost,
        Self::StopLost,
        Self::UntilLost,
        Self::GoOnLost,
        Self::LaunchLost,
        Self::LaunchDoubled,
        Self::WrongDevice,
        Self::GangCut,
        Self::SolveLost,
        Self::JournalTorn,
        Self::EndedEarly,
        Self::FailureHidden,
        Self::FailureInvented,
        Self::SearchEndedEarly,
        Self::SearchEndless,
        Self::SearchTrialLost,
        Self::SearchTrains,
    ];
}

impl Sabotage for Bug {
    fn told(&self, event: Event, state: &State) -> Vec<Event> {
        match (self, event) {
            (
                Self::FreedEarly,
                Event::Reported { attempt, rank, report: report @ RankReport::Failed { .. } },
            ) => {
                let num_ranks = state.attempts.get(&attempt).map_or(0, |one| one.live_ranks);
                let mut all = vec![Event::Reported { attempt, rank, report }];
                all.extend((0..num_ranks).map(|rank| gone(attempt, rank)));
                all
            }
            (Self::FreedTwice, event @ Event::RankExited { .. }) => vec![event.clone(), event],
            (Self::ExitOverlooked, Event::RankExited { .. })
            | (Self::NodeLossOverlooked, Event::NodeLeft { .. })
            | (Self::AgentDeathOverlooked, Event::OwnerLeft { .. })
            | (Self::TimersDead, Event::Tick)
            | (Self::AnswerLost, Event::Solved { .. })
            | (Self::CancelIgnored, Event::Command { command: Command::Cancel { .. } })
            | (Self::PauseIgnored, Event::Command { command: Command::Pause { .. } })
            | (Self::JudgementLost, Event::Command { command: Command::Judge { .. } })
            | (
                Self::CheckpointOverlooked,
                Event::Reported { report: RankReport::Checkpoint { .. }, .. },
            ) => Vec::new(),
            (bug, Event::Reported { attempt, rank, report }) => {
                let report = bug.heard(report, state, attempt);
                vec![Event::Reported { attempt, rank, report }]
            }
            (bug, Event::Command { command: Command::Submit { mut tasks } }) => {
                match bug {
                    Self::TaskLost if tasks.len() > 1 => tasks.truncate(tasks.len() - 1),
                    Self::ReleaseLost => {
                        for one in &mut tasks {
                            one.spec.wishes.release_s = 0.0;
                        }
                    }
                    Self::OrderLost => {
                        for one in &mut tasks {
                            one.after.clear();
                        }
                    }
                    _ => {}
                }
                vec![Event::Command { command: Command::Submit { tasks } }]
            }
            (Self::DevicesMiscounted, Event::NodeJoined { mut spec, host_memory_bytes }) => {
                spec.gpus += 1;
                vec![Event::NodeJoined { spec, host_memory_bytes }]
            }
            (_, event) => vec![event],
        }
    }

    fn decided(&self, decision: &mut Decision, state: &State) {
        if state.config.mode == Mode::Search {
            self.decided_in_search(decision, state);
        }
        let Decision { records, actions, .. } = decision;
        match self {
            Self::RetryLost => records.retain(|one| !matches!(one, Record::Retrying { .. })),
            Self::InspectionNotStored => {
                records.retain(|one| !matches!(one, Record::Inspected { .. }));
            }
            Self::CheckpointNotStored => {
                records.retain(|one| !matches!(one, Record::Checkpointed { .. }));
            }
            Self::RetryStoredTwice => {
                let again = records.iter().find(|one| matches!(one, Record::Retrying { .. }));
                records.extend(again.cloned());
            }
            Self::RecordsReversed => records.reverse(),
            Self::EndedEarly if records.contains(&Record::Closed) => {
                records.push(Record::RunEnded { end: RunEnd::Complete });
            }
            Self::KillLost => actions.retain(|one| !matches!(one, Action::Kill { .. })),
            Self::StopLost => actions.retain(|one| !matches!(one, Action::Stop { .. })),
            Self::GoOnLost => actions.retain(|one| !matches!(one, Action::GoOn { .. })),
            Self::UntilLost => actions.retain(|one| !matches!(one, Action::Until { .. })),
            Self::LaunchLost => actions.retain(|one| !matches!(one, Action::Launch { .. })),
            Self::SolveLost => actions.retain(|one| !matches!(one, Action::Solve { .. })),
            Self::LaunchDoubled => {
                let again = actions.iter().find(|one| matches!(one, Action::Launch { .. }));
                actions.extend(again.cloned());
            }
            Self::EndMiscopied
            | Self::VerdictMiscopied
            | Self::InspectedOnDevice
            | Self::NumberReused
            | Self::FailureHidden
            | Self::FailureInvented => {
                for one in records {
                    self.miswrite(one);
                }
            }
            _ => {}
        }
        if matches!(
            self,
            Self::WrongDevice | Self::GangCut | Self::NumberReused | Self::InspectedOnDevice
        ) {
            for one in actions {
                self.misdo(one);
            }
        }
    }

    fn acts_first(&self) -> bool {
        *self == Self::RecordAfterAction
    }

    fn tears_journal(&self) -> bool {
        *self == Self::JournalTorn
    }
}

impl Bug {
    fn heard(self, report: RankReport, state: &State, attempt: AttemptId) -> RankReport {
        match (self, report) {
            (Self::StepsForgotten, RankReport::Started { setup_s, .. }) => {
                RankReport::Started { step: 0, setup_s }
            }
            (Self::StopTakenForEnd, RankReport::Stopped { step }) => {
                let task = state.attempts.get(&attempt).map(|one| one.task);
                let steps = task.and_then(|task| state.task(task).steps).unwrap_or(step);
                RankReport::Finished { step: steps, loss: None }
            }
            (Self::TrialMiscopied, RankReport::Trial { knobs, mut outcome, step }) => {
                if let TrialOutcome::Measured { step_s, .. } = &mut outcome {
                    *step_s *= 2.0;
                }
                RankReport::Trial { knobs, outcome, step }
            }
            (
                Self::MemoryTakenForCrash,
                RankReport::Failed { kind: FailureKind::OutOfMemory, error, traceback },
            ) => RankReport::Failed { kind: FailureKind::Died, error, traceback },
            (_, report) => report,
        }
    }

    /// Alters a decision of a search.
    fn decided_in_search(self, decision: &mut Decision, state: &State) {
        let Decision { records, actions, .. } = decision;
        let is_launched = |id: &AttemptId| {
            let of =
                |one: &Record| matches!(one, Record::Launched { attempt, .. } if attempt == id);
            records.iter().any(of)
        };
        match self {
            Self::SearchEndedEarly
                if state.is_closed
                    && records.iter().any(|one| matches!(one, Record::Ended { .. }))
                    && state.attempts.keys().all(is_launched) =>
            {
                records.retain(|one| !matches!(one, Record::Launched { .. }));
                actions.retain(|one| !matches!(one, Action::Launch { .. }));
                records.retain(|one| !matches!(one, Record::RunEnded { .. }));
                records.push(Record::RunEnded { end: RunEnd::Complete });
            }
            Self::SearchEndless => records.retain(|one| !matches!(one, Record::RunEnded { .. })),
            Self::SearchTrialLost => {
                records.retain(
                    |one| !matches!(one, Record::Launched { strategy, .. } if strategy.gpus == 1),
                );
                actions.retain(
                    |one| !matches!(one, Action::Launch { strategy, .. } if strategy.gpus == 1),
                );
            }
            Self::SearchTrains => {
                for one in records {
                    if let Record::Launched { purpose: purpose @ Purpose::Trial, .. } = one {
                        *purpose = Purpose::Train;
                    }
                }
            }
            _ => {}
        }
    }

    fn miswrite(self, record: &mut Record) {
        match (self, record) {
            (Self::EndMiscopied, Record::Ended { step, .. }) => *step = step.saturating_sub(1),
            (Self::VerdictMiscopied, Record::Inspected { inspection, .. }) => {
                inspection.verdicts.pop();
            }
            (
                Self::InspectedOnDevice,
                Record::Launched { purpose: Purpose::Inspection, gang, .. },
            ) => gang.push(first_device()),
            (Self::NumberReused, Record::Launched { attempt, .. }) => {
                attempt.0 = attempt.0.saturating_sub(1);
            }
            (Self::FailureHidden, Record::TaskEnded { end, .. })
                if matches!(end, TaskEnd::Failed { .. }) =>
            {
                *end = TaskEnd::Done { loss: None };
            }
            (Self::FailureInvented, Record::TaskEnded { end, .. })
                if matches!(end, TaskEnd::Done { .. }) =>
            {
                *end = TaskEnd::Failed { error: "it failed".to_owned(), traceback: String::new() };
            }
            _ => {}
        }
    }

    fn misdo(self, action: &mut Action) {
        let Action::Launch { attempt, purpose, gang, .. } = action else { return };
        match self {
            Self::InspectedOnDevice if *purpose == Purpose::Inspection => gang.push(first_device()),
            Self::NumberReused => attempt.0 = attempt.0.saturating_sub(1),
            Self::WrongDevice => {
                if let Some(device) = gang.first_mut().and_then(|part| part.devices.last_mut()) {
                    *device += 1;
                }
            }
            Self::GangCut => {
                if let Some(part) = gang.first_mut().filter(|part| part.devices.len() > 1) {
                    part.devices.pop();
                }
            }
            _ => {}
        }
    }
}

fn first_device() -> Placement {
    Placement { node: 0, devices: vec![0] }
}

fn gone(attempt: AttemptId, rank: u32) -> Event {
    Event::RankExited { attempt, rank, code: 0, last_words: String::new() }
}
