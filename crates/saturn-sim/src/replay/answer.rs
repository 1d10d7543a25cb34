//! A plan that a run's solver found, in the words of a replay's problem.
//!
//! Where several plans are equally good, the solver of a run takes one by luck: its search is limited
//! by seconds. So a replay's solver searches from the run's plan too, and takes what it finds
//! there if that is as good. A plan that does not fit the replay's problem is passed over.

use saturn_core::{Assignment, Gang, Placement, Plan, Strategy};
use saturn_engine::SolveOrder;

/// A place of a plan, by names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NamedPlace {
    pub(super) task: String,
    pub(super) strategy: Strategy,
    /// The devices on each node.
    pub(super) gang: Vec<(String, Vec<u32>)>,
    pub(super) share: f64,
    /// Seconds from the start of the plan.
    pub(super) start_s: f64,
    pub(super) end_s: f64,
}

/// The places of a run's plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NamedPlan {
    pub(super) places: Vec<NamedPlace>,
}

impl NamedPlan {
    /// As a plan of this problem; `None` if a task, strategy or node is not in the problem.
    pub(crate) fn plan(&self, order: &SolveOrder) -> Option<Plan> {
        let assignments = self.places.iter().map(|place| place.assignment(order));
        let assignments = assignments.collect::<Option<Vec<Assignment>>>()?;
        (!assignments.is_empty()).then(|| Plan { assignments, ..Plan::none(order.objective) })
    }
}

impl NamedPlace {
    fn assignment(&self, order: &SolveOrder) -> Option<Assignment> {
        let problem = &order.problem;
        let task = problem.tasks.iter().position(|one| *one.name == *self.task)?;
        let mut strategies = problem.tasks[task].strategies.iter();
        let strategy = strategies.position(|one| {
            *one.technique == *self.strategy.technique && one.gpus == self.strategy.gpus
        })?;
        let placement = |(name, devices): &(String, Vec<u32>)| {
            let mut nodes = problem.cluster.nodes.iter();
            let node = nodes.position(|node| node.name == *name)?;
            Some(Placement { node, devices: devices.clone() })
        };
        Some(Assignment {
            task,
            strategy,
            gang: self.gang.iter().map(placement).collect::<Option<Gang>>()?,
            share: self.share,
            start_s: self.start_s,
            end_s: self.end_s,
        })
    }
}
