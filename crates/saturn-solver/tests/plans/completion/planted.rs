//! Problems whose least weighted completion is known by construction.
//!
//! Let the price of a device be λ(t), falling with slope −ρ in each of some slabs of time, where ρ
//! falls from slab to slab: λ is convex, and 0 at the end. Each node is tiled with gangs, none of
//! which crosses a slab's border, and a gang of g devices and p seconds has weight ρ·g·p. Its cost
//! from a start s, w·(s + p) + g·∫λ over its run, has the slope w − g·(λ(s) − λ(s + p)), which is 0
//! within its slab; the cost is convex, so that it is least there. Every other mode of its task
//! lasts long enough to cost no less at any start. So these prices prove that no plan is worth less
//! than the tiling, whose devices never idle.

use saturn_core::{Candidate, Cluster, Node, Problem, ProblemTask};

use crate::support::Random;

const GPUS: u32 = 8;
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

/// Gangs that tile a rectangle: devices, seconds, and when each starts.
fn tile(
    random: &mut Random,
    pieces: usize,
    gpus: u32,
    runtime: f64,
    start: f64,
) -> Vec<(u32, f64, f64)> {
    if pieces < 2 {
        return vec![(gpus, runtime, start)];
    }
    let (first, part) = (pieces / 2, random.between(0.35, 0.65));
    if gpus > 1 && random.unit() < 0.6 {
        let left = gpus / 2;
        let mut all = tile(random, first, left, runtime, start);
        all.extend(tile(random, pieces - first, gpus - left, runtime, start));
        return all;
    }
    let left = runtime * part;
    let mut all = tile(random, first, gpus, left, start);
    all.extend(tile(random, pieces - first, gpus, runtime - left, start + left));
    all
}

/// A problem of about so many tasks on nodes of eight devices, and its least weighted completion.
pub(super) fn planted(
    seed: u64,
    num_nodes: usize,
    num_tasks: usize,
    releases: bool,
) -> (Problem, f64) {
    let mut random = Random(seed);
    let slabs = Slabs::new(&mut random);
    let (mut tasks, mut optimum) = (Vec::new(), 0.0);
    for _ in 0..num_nodes {
        for slab in 0..NUM_SLABS {
            let begin = slabs.borders[slab];
            let length = slabs.borders[slab + 1] - begin;
            let pieces = (num_tasks / num_nodes / NUM_SLABS).max(1);
            for (gpus, runtime, start) in tile(&mut random, pieces, GPUS, length, begin) {
                let weight = slabs.slopes[slab] * f64::from(gpus) * runtime;
                let is_late = releases && random.unit() < 0.5;
                let release = if is_late { start * random.between(0.5, 1.0) } else { 0.0 };
                let paid = slabs.paid(start + runtime) - slabs.paid(start);
                let own = weight * (start + runtime) + f64::from(gpus) * paid;
                optimum += weight * (start + runtime);
                let mut strategies = vec![candidate(gpus, runtime)];
                for other in [1, 2, 3, 4, 6, 8].into_iter().filter(|other| *other != gpus) {
                    let (mut low, mut high) = (1.0, 40.0 * runtime);
                    for _ in 0..60 {
                        let middle = f64::midpoint(low, high);
                        if slabs.least(weight, release, f64::from(other), middle) < own {
                            low = middle;
                        } else {
                            high = middle;
                        }
                    }
                    let slower = 1.0 + 1e-6 + 0.1 * random.unit();
                    strategies.push(candidate(other, high * slower));
                }
                let name = format!("t{}", tasks.len());
                tasks.push(ProblemTask {
                    release_s: release,
                    weight,
                    ..ProblemTask::new(name, strategies)
                });
            }
        }
    }
    let nodes = (0..num_nodes).map(|node| Node::new(format!("n{node}"), GPUS, "gpu")).collect();
    (Problem::new(Cluster { nodes }, tasks), optimum)
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
