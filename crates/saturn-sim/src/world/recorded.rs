//! A recorded run, as the world and the solver's clock see it.
//!
//! Where several plans are equally good, the solver of a run takes one by luck: its search is limited
//! by seconds. So a replay's solver searches from the run's plan too, and takes what it finds
//! there if that is as good. A plan that does not fit the replay's problem is passed over.

use std::collections::BTreeMap;
use std::fmt::Debug;

use saturn_core::{Assignment, Gang, Placement, Plan, Strategy};
use saturn_engine::{SolveOrder, TaskId};

use crate::world::gang::LiveGang;

/// How long things took in a recorded run, in place of the truth.
pub(crate) trait Recorded: Debug {
    /// Has a gang take as long for everything as the run took.
    fn pace(&mut self, gang: &mut LiveGang, saved_step: u64, gpu_type: &str);

    /// An attempt has failed as the run's did.
    fn failed(&mut self, gang: &LiveGang);

    /// How long the next answer of the solver takes; `None` where the run does not say.
    fn next_answer(&mut self, now_s: f64) -> Option<Answered>;

    /// Another driver takes the run over. Returns the steps of the checkpoints that it finds, of
    /// which the driver before it has not heard.
    fn next_driver(&mut self) -> BTreeMap<TaskId, u64>;

    /// Strategies of groups that the replay ran and the run never trained nor tried.
    fn num_guessed(&self) -> usize;
}

/// An answer of the solver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answered {
    /// Seconds from the question to the answer.
    pub(crate) took_s: f64,
    /// Seconds of those that the solver took for the plan; `None` where that is not known.
    pub(crate) solve_s: Option<f64>,
    /// The plan that the run adopted then, if it adopted one.
    pub(crate) plan: Option<NamedPlan>,
}

/// A place of a plan, by names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedPlace {
    pub(crate) task: String,
    pub(crate) strategy: Strategy,
    /// The devices on each node.
    pub(crate) gang: Vec<(String, Vec<u32>)>,
    pub(crate) share: f64,
    /// Seconds from the start of the plan.
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
}

/// The places of a run's plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NamedPlan {
    pub(crate) places: Vec<NamedPlace>,
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
