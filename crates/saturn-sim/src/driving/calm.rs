//! A run in a world without the fuzzer's faults, for experiments and `saturn simulate`.
//!
//! World, clock, launches and planner are the same as in every simulation. The judge and the
//! fuzzer's scenarios are left out. Nodes go and come only by deeds.

use saturn_engine::Command;

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::solving::planner::Planner;
use crate::workloads::truth::Truth;
use crate::workloads::workload::Workload;
use crate::world::cluster::{Manners, World};
use crate::world::faults::Odds;

/// The planner and the manners of a world without the fuzzer's faults.
#[derive(Debug, Clone)]
pub struct Calm {
    /// Who answers the engine's solves.
    pub planner: Planner,
    /// How processes behave.
    pub manners: Manners,
    /// Seconds between two checkpoints of an attempt.
    pub save_every_s: f64,
    /// The seed of all drawn numbers: the noise of trials.
    pub seed: u64,
}

impl Calm {
    /// A world on these nodes, without tasks. It keeps no history.
    pub(crate) fn world<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a saturn_core::Node>,
        truth: Truth,
    ) -> World {
        let mut world =
            World::new(truth, Odds::new(), self.manners.clone(), self.save_every_s, self.seed);
        world.history.is_off = true;
        for node in nodes {
            world.add_node(node.clone());
        }
        world
    }

    /// A run of the workload, to which all tasks come at its beginning.
    pub fn simulation(&self, mut workload: Workload) -> Simulation {
        let tasks = std::mem::take(&mut workload.tasks);
        let mut simulation = self.empty_simulation(workload);
        simulation.plan_deed(0.0, Deed::Ask(Command::Submit { tasks }));
        simulation.plan_deed(0.0, Deed::Ask(Command::Close));
        simulation
    }

    /// A run on the workload's nodes, without its tasks.
    pub(crate) fn empty_simulation(&self, workload: Workload) -> Simulation {
        let Workload { nodes, config, truth, .. } = workload;
        let world = self.world(&nodes, truth);
        Simulation::new(config, world, self.planner.clone())
    }
}
