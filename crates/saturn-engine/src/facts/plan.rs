//! A plan of the run, as it is adopted and stored.
//!
//! A plan is a fact: once adopted it never changes. The room `state` knows which of its places are
//! still open.

use std::collections::BTreeSet;
use std::sync::Arc;

use saturn_core::{Gang, PlanStatus, Strategy, WHOLE};
use serde::{Deserialize, Serialize};

use crate::facts::ids::TaskId;

/// The place of a task, or of one segment of it, in a run's plan. Times are on the run's clock, as
/// the engine's forecast promised them when the plan was adopted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Which task.
    pub task: TaskId,
    /// How it runs; shared with the trial that measured it.
    pub strategy: Arc<Strategy>,
    /// Where; shared with the plans before and after that have it there too.
    pub gang: Arc<Gang>,
    /// The share of the task's remaining work, as of the plan's making, that this place does.
    #[serde(default = "whole")]
    pub share: f64,
    /// Finished steps at which the task is to be switched; `None` where it is trained to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_step: Option<u64>,
    /// Whether its times depend on an estimate: the strategy was neither measured nor trained for
    /// the task's group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_estimate: bool,
    /// When it starts, seconds.
    pub start_s: f64,
    /// When it ends, seconds.
    pub end_s: f64,
}

fn whole() -> f64 {
    WHOLE
}

impl Place {
    /// Whether a task with so many finished steps has done its part here.
    pub fn is_done_at(&self, step: u64) -> bool {
        self.until_step.is_some_and(|until| step >= until)
    }
}

/// Where a plan comes from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum PlanSource {
    /// The solver found it.
    #[default]
    Solver,
    /// The plan before it, extended: tasks without a place were put behind it one by one.
    Extended {
        /// Why the solver's answer was not adopted, if the solver was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// A plan in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// When it was adopted, seconds on the run's clock.
    pub at_s: f64,
    /// Where it comes from.
    #[serde(default)]
    pub source: PlanSource,
    /// What the solver proved.
    pub status: PlanStatus,
    /// Seconds from `at_s` to the end of the last task, by the engine's forecast.
    pub makespan_s: f64,
    /// Proven lower bound of that, seconds; 0 where nothing is proven.
    pub lower_bound_s: f64,
    /// Seconds that the solve took.
    pub solve_s: f64,
    /// What current practice would take from `at_s`, seconds.
    pub current_practice_s: Option<f64>,
    /// Whether current practice uses a strategy that was only estimated, never measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub practice_is_estimate: bool,
    /// Seconds that the plan in force before would have taken from `at_s`, by the same forecast.
    /// `None` where no plan was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of_s: Option<f64>,
    /// By start; a task that is to be switched has several, one for each of its segments.
    pub places: Vec<Place>,
}

impl RunPlan {
    /// The plan without its places.
    #[must_use]
    pub fn without_places(&self) -> Self {
        Self { source: self.source.clone(), places: Vec::new(), ..*self }
    }

    /// Tasks that have a place in it.
    pub fn num_tasks(&self) -> usize {
        self.places.iter().map(|place| place.task).collect::<BTreeSet<_>>().len()
    }

    /// Switches that it plans.
    pub fn num_switches(&self) -> usize {
        self.places.len() - self.num_tasks()
    }

    /// A task's places, in the order in which it takes them.
    pub fn places_of(&self, task: TaskId) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| place.task == task)
    }

    /// (makespan − lower bound) / lower bound; 0 where the bound is 0.
    pub fn gap(&self) -> f64 {
        if self.lower_bound_s > 0.0 {
            ((self.makespan_s - self.lower_bound_s) / self.lower_bound_s).max(0.0)
        } else {
            0.0
        }
    }
}
