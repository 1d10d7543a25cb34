//! What has changed since the last turn, so that a turn need not search for it.
//!
//! Each entry is a reason to look, never a decision: a policy takes its entries and checks for
//! itself whether anything is to be done.

use std::collections::BTreeSet;

use crate::facts::ids::{DeviceId, TaskId};
use crate::state::breadth::Breadth;
use crate::state::run::State;

/// What the present turn must examine.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Whether anything has changed that trials wait for.
    pub(crate) trials_changed: bool,
    /// Free devices that a trial will need as soon as other trials end.
    pub(crate) kept_for_trials: BTreeSet<DeviceId>,
    /// Tasks that may have no strategy left.
    pub(crate) may_be_hopeless: BTreeSet<TaskId>,
    /// The pool, by types of devices, when all tasks were last put on `may_be_hopeless` for it.
    pub(crate) breadths: Vec<Breadth>,
    /// The same for the devices that could be used then.
    pub(crate) usable_breadths: Vec<Breadth>,
    /// Tasks that have stopped and that the stopper may want ended.
    pub(crate) to_end: BTreeSet<TaskId>,
    /// Devices whose next task waits for host memory.
    pub(crate) short_of_host_memory: BTreeSet<DeviceId>,
    /// Devices whose next task waits until its owner holds fewer devices.
    pub(crate) short_of_quota: BTreeSet<DeviceId>,
    /// Tasks that have begun to train, or have ended: they wait for no host memory any more.
    pub(crate) not_waiting: Vec<TaskId>,
    /// Changes after which planning may ask the solver for a new plan.
    pub(crate) planning: PlanningNews,
}

/// Why a plan may be wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlanningNews {
    /// Something has changed that a plan may rest on, since planning last looked.
    pub(crate) has_news: bool,
    /// Tasks have lost their places, or got others without the solver: the solver must be asked.
    pub(crate) must_ask: bool,
    /// How often devices have come into use that may better a plan.
    pub(crate) num_arrivals: u64,
    /// Tasks that have come, have ended, or are otherwise other than they were, since planning last
    /// looked.
    pub(crate) tasks: BTreeSet<TaskId>,
    /// Groups of which other strategies may be known since then.
    pub(crate) groups: BTreeSet<usize>,
}

impl PlanningNews {
    /// Before anything was planned, everything is news.
    pub(crate) fn of_a_new_run(state: &State) -> Self {
        Self { has_news: true, tasks: state.open_tasks.clone(), ..Self::default() }
    }

    /// Whether something has changed that the solver was not asked about yet.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_news || self.must_ask
    }
}

impl Agenda {
    /// The agenda of a run that begins or is resumed: everything must be examined.
    pub(crate) fn of(state: &State) -> Self {
        Self {
            trials_changed: true,
            may_be_hopeless: state.task_ids().collect(),
            breadths: state.breadths.clone(),
            usable_breadths: state.usable_breadths.clone(),
            to_end: state.open_tasks.clone(),
            planning: PlanningNews::of_a_new_run(state),
            ..Self::default()
        }
    }

    /// Something has changed that a plan may rest on.
    pub(crate) fn note_news(&mut self) {
        self.planning.has_news = true;
    }

    /// Devices have come into use that may better a plan.
    pub(crate) fn note_arrival(&mut self) {
        self.planning.num_arrivals += 1;
    }

    /// Tasks have lost their places, or got others without the solver: the solver is to be asked.
    pub(crate) fn ask_again(&mut self) {
        self.planning.must_ask = true;
    }
}
