//! The area bound: the least T at which the work that must be done fits into T seconds of all GPUs.
//!
//! In a plan of makespan T every task runs under a mode of runtime at most T. So the GPU-seconds
//! that it holds are at least a_i(T), the least area of its modes of runtime ≤ T, and
//! Σ a_i(T) ≤ T·G. The left side falls with T and the right side rises, so the T that satisfy it
//! are all those from some T₀ on, found by bisection: choosing the modes is exact, because given T
//! the tasks don't compete for anything else.
//!
//! With several kinds of GPU, give GPU-seconds of kind k a price λ_k ≥ 0. A plan of makespan T
//! uses at most T·G_k GPU-seconds of kind k, so Σ_i min λ_k·area ≤ T·Σ_k λ_k·G_k for any prices:
//! every λ gives a bound (Lagrangian relaxation of the capacities), and the best λ gives that of
//! the linear program over fractions of modes. Prices are raised where a kind is overloaded and
//! lowered where it idles (multiplicative weights: Plotkin, Shmoys, Tardos, Math. of OR 20, 1995).

use crate::model::Model;

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
    model.tasks.iter().map(crate::model::Task::shortest).fold(0.0, f64::max)
}

/// The area bound under the best prices found. Every task must have a mode.
pub(crate) fn area_bound(model: &Model) -> AreaBound {
    let mut prices = vec![1.0; model.num_kinds];
    let longest = longest_task(model);
    let mut best = AreaBound { makespan: priced(model, &prices, longest), prices: prices.clone() };
    if model.num_kinds == 1 {
        return best;
    }
    let num_shapes: usize = model.tasks.iter().map(|task| task.shapes().count()).sum();
    let num_rounds = (6_000_000 / num_shapes.max(1)).clamp(60, 600);
    for round in 0..num_rounds {
        let load = loads(model, &prices, best.makespan * 1.002);
        let relative: Vec<f64> =
            load.iter().zip(&model.capacity).map(|(load, capacity)| load / capacity).collect();
        let mean = relative.iter().sum::<f64>() / relative.len() as f64;
        let stride = 0.3 / (1.0 + round as f64 * 0.02);
        for (price, relative) in prices.iter_mut().zip(&relative) {
            *price *= (relative / mean).clamp(0.3, 3.0).powf(stride);
        }
        if round % 5 == 4 {
            let makespan = priced(model, &prices, longest);
            if makespan > best.makespan {
                best = AreaBound { makespan, prices: prices.clone() };
            }
        }
    }
    normalise(model, &mut best.prices);
    best
}

/// GPU-seconds that each kind is given when every task takes its cheapest mode of runtime ≤ T.
fn loads(model: &Model, prices: &[f64], makespan: f64) -> Vec<f64> {
    let mut load = vec![0.0; model.num_kinds];
    for task in &model.tasks {
        let cheapest = task
            .shapes()
            .filter(|(_, _, runtime)| *runtime <= makespan)
            .map(|(kind, held, runtime)| (kind, f64::from(held) * runtime))
            .min_by(|left, right| {
                (prices[left.0] * left.1).total_cmp(&(prices[right.0] * right.1))
            });
        if let Some((kind, area)) = cheapest {
            load[kind] += area;
        }
    }
    load
}

/// The least T ≥ `longest` at which the priced work fits, by bisection.
fn priced(model: &Model, prices: &[f64], longest: f64) -> f64 {
    let budget: f64 =
        prices.iter().zip(&model.capacity).map(|(price, capacity)| price * capacity).sum();
    let fits = |makespan: f64| {
        let mut work = 0.0;
        for task in &model.tasks {
            work += task
                .shapes()
                .filter(|(_, _, runtime)| *runtime <= makespan)
                .map(|(kind, held, runtime)| prices[kind] * f64::from(held) * runtime)
                .fold(f64::INFINITY, f64::min);
        }
        work <= budget * makespan
    };
    if fits(longest) {
        return longest;
    }
    let mut low = longest;
    let mut high = longest * 2.0;
    while !fits(high) {
        low = high;
        high *= 2.0;
    }
    while high - low > 1e-10 * high {
        let middle = f64::midpoint(low, high);
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (low * (1.0 - SAFETY)).max(longest)
}

/// Scales prices to a mean of 1 over the GPUs.
fn normalise(model: &Model, prices: &mut [f64]) {
    let budget: f64 =
        prices.iter().zip(&model.capacity).map(|(price, capacity)| price * capacity).sum();
    let scale = model.num_gpus() / budget;
    for price in prices {
        *price *= scale;
    }
}
