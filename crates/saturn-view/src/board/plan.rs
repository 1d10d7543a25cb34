//! The plan in force, as data. It changes only when another plan is adopted.

use saturn_core::PlanStatus;
use saturn_engine::{PlanSource, State};
use serde::{Deserialize, Serialize};

use crate::status::data::{DevicesOn, devices_on};

/// A place of a task in the plan. Times are seconds on the run's clock, as the plan promised them
/// when it was adopted; the status of a task has what is expected now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedPlace {
    /// The task's name.
    pub task: String,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Its devices.
    pub devices: Vec<DevicesOn>,
    /// When it starts.
    pub start_s: f64,
    /// When it ends.
    pub end_s: f64,
    /// The share of the task's work, as of the plan's making, that this place does.
    pub share: f64,
    /// The finished steps at which the task is switched to its next place.
    pub until_step: Option<u64>,
    /// Whether its times depend on an estimate that nobody has measured.
    pub is_estimate: bool,
}

/// The plan in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanInForce {
    /// When it was adopted, seconds on the run's clock.
    pub at_s: f64,
    /// Who made it, and why.
    pub source: PlanSource,
    /// What the solver proved of it.
    pub status: PlanStatus,
    /// Seconds from its adoption to the end of the last task.
    pub makespan_s: f64,
    /// A proven lower bound of that, seconds; null if nothing is proven.
    pub lower_bound_s: Option<f64>,
    /// Seconds that the solve took.
    pub solve_s: f64,
    /// Its places, in the order in which the plan has them.
    pub places: Vec<PlannedPlace>,
}

impl PlanInForce {
    /// The plan in force of a run; `None` if no plan has been made.
    pub fn of(state: &State) -> Option<Self> {
        let plan = state.plan.as_ref()?;
        let places = plan.places.iter().map(|place| PlannedPlace {
            task: state.name(place.task).to_owned(),
            technique: place.strategy.technique.clone(),
            gpus: place.strategy.gpus,
            devices: devices_on(state, &place.gang),
            start_s: place.start_s,
            end_s: place.end_s,
            share: place.share,
            until_step: place.until_step,
            is_estimate: place.is_estimate,
        });
        Some(Self {
            at_s: plan.at_s,
            source: plan.source.clone(),
            status: plan.status,
            makespan_s: plan.makespan_s,
            lower_bound_s: (plan.lower_bound_s > 0.0).then_some(plan.lower_bound_s),
            solve_s: plan.solve_s,
            places: places.collect(),
        })
    }
}
