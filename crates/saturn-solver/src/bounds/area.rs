//! The area bound: the least T at which the tasks' work fits into T seconds of all GPUs.
//!
//! In a plan of makespan T every task runs under a mode of runtime at most T. So its GPU-seconds
//! are at least a_i(T), the least area of its modes of runtime ≤ T, and Σ a_i(T) ≤ T·G. The left
//! side falls with T and the right side rises. So all T from some T₀ on satisfy it, and bisection
//! finds T₀. Choosing the modes is exact, because for a given T the tasks compete for nothing else.
//!
//! With several kinds of GPU, give GPU-seconds of kind k a price λ_k ≥ 0. A plan of makespan T uses
//! at most T·G_k GPU-seconds of kind k, so Σ_i min λ_k·area ≤ T·Σ_k λ_k·G_k for any prices. Every λ
//! gives a bound (Lagrangian relaxation of the capacities). The best λ gives the bound of the
//! linear program over fractions of modes. Prices are raised where a kind is overloaded and lowered
//! where it idles (multiplicative weights: Plotkin, Shmoys, Tardos, Math. of OR 20, 1995).

use crate::course::clock::Deadline;
use crate::problem::model::Model;

/// Shaved off every bound so that rounding can't lift it above a true makespan.
const SAFETY: f64 = 1e-9;

/// A lower bound, and the prices of GPU-seconds of each kind that prove it (mean 1 a GPU).
#[derive(Debug, Clone)]
pub(crate) struct AreaBound {
    pub(crate) makespan: f64,
    pub(crate) prices: Vec<f64>,
}

/// The longest task: no plan ends before the shortest runtime of any task.
pub(crate) fn longest_task(model: &Model) -> f64 {
    model.tasks.iter().map(crate::problem::model::Task::shortest).fold(0.0, f64::max)
}

/// The modes of every task, flat: (kind, least area held, runtime).
struct Shapes {
    modes: Vec<(usize, f64, f64)>,
    /// Where each task's modes begin, and the end of the last task's modes.
    first: Vec<usize>,
}

impl Shapes {
    fn new(model: &Model) -> Self {
        let mut shapes = Self { modes: Vec::new(), first: vec![0] };
        for task in &model.tasks {
            let modes = task
                .shapes()
                .map(|(kind, held, runtime)| (kind, f64::from(held) * runtime, runtime));
            shapes.modes.extend(modes);
            shapes.first.push(shapes.modes.len());
        }
        shapes
    }

    /// The cheapest mode of runtime ≤ `makespan` of each task: (kind, area).
    fn cheapest<'a>(
        &'a self,
        prices: &'a [f64],
        makespan: f64,
    ) -> impl Iterator<Item = Option<(usize, f64)>> + 'a {
        self.first.windows(2).map(move |range| {
            let mut least = f64::INFINITY;
            let mut best = None;
            for &(kind, area, runtime) in &self.modes[range[0]..range[1]] {
                let cost = prices[kind] * area;
                if runtime <= makespan && cost < least {
                    least = cost;
                    best = Some((kind, area));
                }
            }
            best
        })
    }

    /// Whether the priced work fits into `makespan` seconds of `budget`, the priced devices.
    fn fits(&self, prices: &[f64], makespan: f64, budget: f64) -> bool {
        let mut work = 0.0;
        for cheapest in self.cheapest(prices, makespan) {
            let Some((kind, area)) = cheapest else { return false };
            work += prices[kind] * area;
        }
        work <= budget * makespan
    }
}

/// Modes looked at while raising and lowering prices, roughly.
const EFFORT: usize = 2_000_000;
/// Rounds of trying single changes of prices afterwards, at most and at least, and roughly the
/// number of modes looked at there.
const MOST_TRIALS: usize = 40;
const LEAST_TRIALS: usize = 6;
const EFFORT_OF_TRIALS: usize = 20_000_000;
/// How near to the best bound of given prices the computed bound comes: at first, and in the end.
const COARSE: f64 = 1e-4;
const FINE: f64 = 1e-6;

/// The area bound under the best prices found before the deadline. Every task must have a mode.
pub(crate) fn area_bound(model: &Model, deadline: Deadline) -> AreaBound {
    let shapes = Shapes::new(model);
    let mut prices = vec![1.0; model.num_kinds];
    let longest = longest_task(model);
    let mut best = AreaBound { makespan: longest, prices: prices.clone() };
    if model.num_kinds == 1 {
        raise(model, &shapes, &prices, FINE * 1e-4, &mut best);
        return best;
    }
    raise(model, &shapes, &prices, COARSE, &mut best);
    let num_rounds = (EFFORT / shapes.modes.len().max(1)).clamp(60, 1500);
    for round in 0..num_rounds {
        if deadline.is_over() {
            break;
        }
        let mut load = vec![0.0; model.num_kinds];
        for (kind, area) in shapes.cheapest(&prices, best.makespan * 1.002).flatten() {
            load[kind] += area;
        }
        let relative: Vec<f64> =
            load.iter().zip(&model.capacity).map(|(load, capacity)| load / capacity).collect();
        let mean = relative.iter().sum::<f64>() / relative.len() as f64;
        let stride = 0.3 / (1.0 + round as f64 * 0.02);
        for (price, relative) in prices.iter_mut().zip(&relative) {
            *price *= (relative / mean).clamp(0.3, 3.0).powf(stride);
        }
        raise(model, &shapes, &prices, COARSE, &mut best);
    }
    let mut stride = 0.05;
    let num_trials = (EFFORT_OF_TRIALS / (2 * model.num_kinds * shapes.modes.len().max(1)))
        .clamp(LEAST_TRIALS, MOST_TRIALS);
    for trial in 0..num_trials {
        let before = best.makespan;
        for kind in 0..model.num_kinds {
            for factor in [1.0 + stride, 1.0 / (1.0 + stride)] {
                let mut prices = best.prices.clone();
                prices[kind] *= factor;
                raise(model, &shapes, &prices, FINE, &mut best);
            }
        }
        if best.makespan <= before * (1.0 + 1e-6) {
            stride *= 0.5;
        }
        if stride < 1e-4 || trial + 1 == num_trials || deadline.is_over() {
            break;
        }
    }
    let scale = model.num_gpus() / budget(model, &best.prices);
    best.prices.iter_mut().for_each(|price| *price *= scale);
    best
}

fn budget(model: &Model, prices: &[f64]) -> f64 {
    prices.iter().zip(&model.capacity).map(|(price, capacity)| price * capacity).sum()
}

/// Takes these prices into `best` if they refute its makespan. Then bisection finds the least T at
/// which the priced work fits, to a relative precision.
fn raise(model: &Model, shapes: &Shapes, prices: &[f64], precision: f64, best: &mut AreaBound) {
    let budget = budget(model, prices);
    let fits = |makespan: f64| shapes.fits(prices, makespan, budget);
    if fits(best.makespan) {
        return;
    }
    let mut low = best.makespan;
    let mut stride = 1e-3;
    let mut high = low * (1.0 + stride);
    while !fits(high) {
        low = high;
        stride *= 4.0;
        high *= 1.0 + stride;
    }
    while high - low > precision * high {
        let middle = f64::midpoint(low, high);
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    // Rounding must not lift the bound above a true makespan.
    let makespan = low * (1.0 - SAFETY);
    if makespan > best.makespan {
        *best = AreaBound { makespan, prices: prices.to_vec() };
    }
}
