//! Problems whose least makespan, or least cost, is known by construction.
//!
//! Each node is cut into gangs that hold all of its devices until a time T. Let a device-second of
//! each type have a price. Every other mode of a gang's task takes device-seconds of at least the
//! same price. So all plans hold device-seconds of at least the price of the whole rectangle: none
//! ends before T. If nodes cost these prices, no plan costs less.

use saturn_core::{Candidate, Cluster, Node, Objective, Problem, ProblemTask};

use super::Planted;
use super::cutting::{GPUS, Gang, in_two, nodes, pairs};
use crate::support::Random;

/// When the planted plan ends.
pub(super) const END_S: f64 = 10_000.0;
/// The price of a device-second of each type.
const PRICES: [f64; 3] = [1.0, 1.7, 2.6];

/// What distinguishes problems.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packing {
    pub(super) nodes: usize,
    pub(super) tasks: usize,
    /// Types of devices, up to three.
    pub(super) types: usize,
    /// Whether some gangs hold two nodes.
    pub(super) is_wide: bool,
    /// Whether some gangs are cut across their time.
    pub(super) is_in_two: bool,
    pub(super) objective: Objective,
}

impl Packing {
    pub(super) fn planted(&self, seed: u64) -> Planted {
        let mut random = Random(seed);
        let cut = if self.is_wide { pairs } else { nodes };
        let mut gangs = cut(&mut random, self.nodes, self.tasks, END_S);
        if self.is_in_two {
            gangs = in_two(&mut random, gangs, 0.5);
        }
        let tasks = gangs.iter().enumerate().map(|(index, gang)| ProblemTask {
            after: gang.after.iter().map(|before| format!("t{before}")).collect(),
            ..ProblemTask::new(format!("t{index}"), self.strategies(&mut random, gang))
        });
        let problem = Problem::new(self.cluster(), tasks.collect());
        Planted { problem, gangs, objective: self.objective }
    }

    fn cluster(&self) -> Cluster {
        let nodes = (0..self.nodes).map(|node| {
            let number = self.type_of(node);
            let price_per_hour = PRICES[number] * f64::from(GPUS);
            Node { price_per_hour, ..Node::new(format!("n{node}"), GPUS, format!("k{number}")) }
        });
        Cluster { nodes: nodes.collect() }
    }

    fn type_of(&self, node: usize) -> usize {
        node % self.types
    }

    /// The gang itself, and all other widths on all types at no lower price.
    fn strategies(&self, random: &mut Random, gang: &Gang) -> Vec<Candidate> {
        let own = self.type_of(gang.node);
        let price = PRICES[own] * f64::from(gang.gpus) * gang.runtime_s;
        let mut all = vec![candidate(gang.gpus, own, gang.runtime_s)];
        let widest = if self.is_wide { 2 * GPUS } else { GPUS };
        for (number, its_price) in PRICES.iter().enumerate().take(self.types) {
            for gpus in [1, 2, 3, 4, 6, 8, 16].into_iter().filter(|gpus| *gpus <= widest) {
                let least_s = price / its_price / f64::from(gpus);
                let runtime_s = least_s * random.between(1.0 + 1e-6, 1.4);
                if (number, gpus) != (own, gang.gpus) {
                    all.push(candidate(gpus, number, runtime_s));
                }
            }
        }
        all
    }
}

fn candidate(gpus: u32, number: usize, runtime_s: f64) -> Candidate {
    Candidate {
        technique: format!("x{gpus}").into(),
        gpus,
        gpu_type: Some(format!("k{number}").into()),
        runtime_s,
        pack: false,
        host_bytes: 0,
        relative_error: 0.0,
    }
}
