//! The state and the decision of a turn: where records are committed and actions are asked for.

use std::collections::BTreeMap;

use saturn_core::{Gang, StrategyKey};

use crate::facts::event::Action;
use crate::facts::ids::{DeviceId, TaskId, devices};
use crate::facts::record::Record;
use crate::facts::refusal::Refusal;
use crate::ledger::agenda::Agenda;
use crate::ledger::idle::Idle;
use crate::ledger::queues::Queues;
use crate::ledger::timers::Timers;
use crate::state::run::State;

/// What the engine decided on an event.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// Facts to store, in order, before any action is performed.
    pub records: Vec<Record>,
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// Why a command was refused.
    pub refusal: Option<Refusal>,
}

/// The state, the decision so far, and the agenda.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) state: State,
    pub(crate) timers: Timers,
    pub(crate) queues: Queues,
    pub(crate) idle: Idle,
    pub(crate) agenda: Agenda,
    /// Under which strategy each task was killed from outside in its attempt before the last.
    pub(crate) was_killed: BTreeMap<TaskId, StrategyKey>,
    decision: Decision,
}

impl Ledger {
    /// A ledger that continues from a state, with everything on its agenda.
    pub(crate) fn of(state: State) -> Self {
        let mut ledger = Self {
            timers: Timers::default(),
            queues: Queues::default(),
            idle: Idle::default(),
            agenda: Agenda::of(&state),
            was_killed: BTreeMap::new(),
            decision: Decision::default(),
            state,
        };
        ledger.note_plan();
        ledger
    }

    /// Applies a record, puts it into the decision, and notes what must be looked at because of it.
    pub(crate) fn commit(&mut self, record: Record, now_s: f64) {
        let stopped = if let Record::Ended { attempt, .. } = &record {
            self.note_end(*attempt);
            self.state.attempts.get(attempt).map(|attempt| attempt.task)
        } else {
            None
        };
        let (num_closed, version) = (self.state.order.closed().len(), self.state.version);
        self.state.apply(&record, now_s);
        self.note(&record);
        if self.state.version != version && self.is_news(&record) {
            self.agenda.note_news();
            self.idle.look_again();
        }
        if self.state.order.closed().len() > num_closed {
            self.note_closed(num_closed);
        }
        if let Some(task) = stopped {
            self.note_stopped(task);
        }
        self.decision.records.push(record);
    }

    /// Puts an action into the decision.
    pub(crate) fn act(&mut self, action: Action) {
        self.decision.actions.push(action);
    }

    /// Says why a command was refused.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.decision.refusal = Some(refusal);
    }

    /// The decision of the turn; the next turn begins with an empty one.
    pub(crate) fn take_decision(&mut self) -> Decision {
        std::mem::take(&mut self.decision)
    }

    /// Whether a device is free, and not for a trial.
    pub(crate) fn is_at_hand(&self, device: DeviceId) -> bool {
        self.state.is_free(device) && !self.agenda.kept_for_trials.contains(&device)
    }

    /// Whether all of a gang's devices are free, and not for a trial.
    pub(crate) fn are_at_hand(&self, gang: &Gang) -> bool {
        devices(gang).all(|device| self.is_at_hand(device))
    }
}
