//! Which figure a task's first plan rested on: the seconds of a step, and who had measured them.

use saturn_engine::{Place, State};

/// Where the seconds of a step came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Training, of this task or of a task that performs alike, in this or an earlier run.
    Training,
    /// A trial.
    Trial,
    /// An estimate from other strategies.
    Estimate,
}

/// The seconds of a step that a plan counted on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlannedBy {
    pub(crate) step_s: f64,
    pub(crate) source: Source,
}

impl PlannedBy {
    /// What is known of a place's strategy; `None` if nothing is.
    pub(crate) fn of(state: &State, place: &Place) -> Option<Self> {
        let gpu_type = state.gang_type(&place.gang);
        let trial = state.trial_of(place.task, &place.strategy, gpu_type)?;
        let trained = trial.trained_step_s.map(|step_s| (step_s, Source::Training));
        let tried = || Some((trial.measured_step_s()?, Source::Trial));
        let estimated = || Some((trial.estimate?.step_s, Source::Estimate));
        let (step_s, source) = trained.or_else(tried).or_else(estimated)?;
        Some(Self { step_s, source })
    }
}
