//! Problems whose least weighted completion is known by construction.
//!
//! Let the price of a device be λ(t), falling with slope −ρ in each of some slabs of time, where ρ
//! falls from slab to slab: λ is convex, and 0 at the end. Each node is tiled with gangs, none of
//! which crosses a slab's border, and a gang of g devices and p seconds has weight ρ·g·p. Its cost
//! from a start s, w·(s + p) + g·∫λ over its run, has the slope w − g·(λ(s) − λ(s + p)), which is 0
//! within its slab; the cost is convex, so that it is least there. Every other mode of its task
//! lasts long enough to cost no less at any start. So these prices prove that no plan is worth less
//! than the tiling, whose devices never idle.

use saturn_core::{Candidate, Cluster, Node, Objective, Problem, ProblemTask};

use super::Planted;
use super::cutting::{GPUS, Gang, in_two, tile};
use crate::support::Random;

const NUM_SLABS: usize = 4;

/// Where slabs begin and end, their slopes, and the price at each border.
struct Slabs {
    borders: Vec<f64>,
    slopes: Vec<f64>,
    levels: Vec<f64>,
}

impl Slabs {
    fn new(random: &mut Random) -> Self {
        let mut borders = vec![0.0];
        for slab in 0..NUM_SLABS {
            borders.push(borders[slab] + 20_000.0 * random.between(0.6, 1.4));
        }
        let mut slopes: Vec<f64> = (0..NUM_SLABS).map(|_| random.between(1e-6, 6e-6)).collect();
        slopes.sort_by(|left, right| right.total_cmp(left));
        let mut levels = vec![0.0; NUM_SLABS + 1];
        for slab in (0..NUM_SLABS).rev() {
            levels[slab] = levels[slab + 1] + slopes[slab] * (borders[slab + 1] - borders[slab]);
        }
        Self { borders, slopes, levels }
    }

    /// The integral of the price up to a time.
    fn paid(&self, time: f64) -> f64 {
        let mut paid = 0.0;
        for slab in 0..NUM_SLABS {
            let inside = (time.min(self.borders[slab + 1]) - self.borders[slab]).max(0.0);
            paid += inside * (self.levels[slab] - self.slopes[slab] * inside / 2.0);
        }
        paid
    }

    /// The least that a gang costs from any start from `release` on: the cost is convex.
    fn least(&self, weight: f64, release: f64, gpus: f64, runtime: f64) -> f64 {
        let cost = |start: f64| {
            weight * (start + runtime) + gpus * (self.paid(start + runtime) - self.paid(start))
        };
        let (mut low, mut high) = (release, self.borders[NUM_SLABS].max(release));
        for _ in 0..80 {
            let third = (high - low) / 3.0;
            if cost(low + third) <= cost(high - third) {
                high -= third;
            } else {
                low += third;
            }
        }
        cost(low).min(cost(release))
    }
}

/// What distinguishes problems.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiling {
    pub(super) nodes: usize,
    pub(super) tasks: usize,
    /// Whether half of the tasks are released late.
    pub(super) has_releases: bool,
    /// Whether some gangs are cut across their time.
    pub(super) is_in_two: bool,
}

impl Tiling {
    pub(super) fn planted(&self, seed: u64) -> Planted {
        let mut random = Random(seed);
        let slabs = Slabs::new(&mut random);
        let pieces = (self.tasks / self.nodes / NUM_SLABS).max(1);
        let (mut tasks, mut gangs) = (Vec::new(), Vec::new());
        for node in 0..self.nodes {
            for slab in 0..NUM_SLABS {
                let begin = slabs.borders[slab];
                let length = slabs.borders[slab + 1] - begin;
                for gang in tile(&mut random, pieces, Gang::whole_node(node, begin, length)) {
                    let halves = if self.is_in_two {
                        in_two(&mut random, vec![gang], 0.5)
                    } else {
                        vec![gang]
                    };
                    let first = gangs.len();
                    for gang in halves {
                        let after = gang.after.map(|before| first + before);
                        gangs.push(Gang { after, ..gang });
                        tasks.push(self.task(&mut random, &slabs, slab, &gangs));
                    }
                }
            }
        }
        let nodes = (0..self.nodes).map(|node| Node::new(format!("n{node}"), GPUS, "gpu"));
        let problem = Problem::new(Cluster { nodes: nodes.collect() }, tasks);
        Planted { problem, gangs, objective: Objective::Completion }
    }

    /// The task of the last gang.
    fn task(&self, random: &mut Random, slabs: &Slabs, slab: usize, gangs: &[Gang]) -> ProblemTask {
        let gang = gangs[gangs.len() - 1];
        let (runtime, gpus) = (gang.runtime_s, f64::from(gang.gpus));
        let weight = slabs.slopes[slab] * gpus * runtime;
        let is_late = self.has_releases && random.unit() < 0.5;
        let release_s = if is_late { gang.start_s * random.between(0.5, 1.0) } else { 0.0 };
        let paid = slabs.paid(gang.end_s()) - slabs.paid(gang.start_s);
        let own = weight * gang.end_s() + gpus * paid;
        let mut strategies = vec![candidate(gang.gpus, runtime)];
        for other in [1, 2, 3, 4, 6, 8].into_iter().filter(|other| *other != gang.gpus) {
            let (mut low, mut high) = (1.0, 40.0 * runtime);
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                if slabs.least(weight, release_s, f64::from(other), middle) < own {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            let slower = 1.0 + 1e-6 + 0.1 * random.unit();
            strategies.push(candidate(other, high * slower));
        }
        ProblemTask {
            release_s,
            weight,
            after: gang.after.iter().map(|before| format!("t{before}")).collect(),
            ..ProblemTask::new(format!("t{}", gangs.len() - 1), strategies)
        }
    }
}

fn candidate(gpus: u32, runtime_s: f64) -> Candidate {
    Candidate {
        technique: format!("x{gpus}").into(),
        gpus,
        gpu_type: None,
        runtime_s,
        pack: false,
        host_bytes: 0,
        relative_error: 0.0,
    }
}
