//! What a task costs at least where it may change between its modes as often as it likes.
//!
//! A task that spends the share w_m of its work in mode m takes Σ w_m·r_m seconds and the priced
//! area Σ w_m·a_m. In a plan of makespan T no task has more than T seconds. So at least it pays the
//! area of the best mix within T, which is the lower convex hull of its points (r_m, a_m). The hull
//! falls as T grows, and the devices can pay T times their price. So no plan ends before the T at
//! which both are equal.

use crate::bounds::area::longest_task;
use crate::problem::model::{Model, Task};

/// Shaved off so that rounding can't lift the bound above a true makespan.
const SAFETY: f64 = 1e-9;
/// How near to that T the bisection comes, relative.
const PRECISION: f64 = 1e-10;

/// The best mixes of a task's modes: corners (seconds, priced area) of the hull, in ascending
/// seconds and falling area.
struct Hull(Vec<(f64, f64)>);

impl Hull {
    fn new(task: &Task, prices: &[f64]) -> Self {
        let point = |(kind, held, runtime)| (runtime, prices[kind] * f64::from(held) * runtime);
        let mut points: Vec<(f64, f64)> = task.shapes().map(point).collect();
        points.sort_by(|left, right| left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal));
        let mut corners: Vec<(f64, f64)> = Vec::with_capacity(points.len());
        for point in points {
            if corners.last().is_some_and(|last| point.1 >= last.1) {
                continue;
            }
            while let [.., before, last] = corners[..]
                && slope(before, last) >= slope(last, point)
            {
                corners.pop();
            }
            corners.push(point);
        }
        Self(corners)
    }

    /// The area of the best mix within `seconds`, and how much it falls with each second more.
    fn at(&self, seconds: f64) -> (f64, f64) {
        let next = self.0.partition_point(|corner| corner.0 <= seconds);
        match (next.checked_sub(1).and_then(|at| self.0.get(at)), self.0.get(next)) {
            (Some(last), None) => (last.1, 0.0),
            (Some(&last), Some(&next)) => {
                let fall = -slope(last, next);
                (last.1 - fall * (seconds - last.0), fall)
            }
            (None, _) => (f64::INFINITY, 0.0),
        }
    }
}

fn slope(from: (f64, f64), to: (f64, f64)) -> f64 {
    (to.1 - from.1) / (to.0 - from.0)
}

/// A lower bound on the makespan of every plan with switches, seconds, and for each task the line
/// that proves it: the priced area at no seconds, and how much that falls with each second.
pub(super) struct FreeSwitches {
    pub(super) makespan: f64,
    pub(super) lines: Vec<(f64, f64)>,
}

/// The bound at these prices of a GPU-second of each kind. Every task must have a mode.
pub(super) fn free_switches(model: &Model, prices: &[f64]) -> FreeSwitches {
    let hulls: Vec<Hull> = model.tasks.iter().map(|task| Hull::new(task, prices)).collect();
    let budget: f64 =
        prices.iter().zip(&model.capacity).map(|(price, capacity)| price * capacity).sum();
    let cost = |seconds: f64| hulls.iter().map(|hull| hull.at(seconds).0).sum::<f64>();
    let mut low = longest_task(model);
    // Any task alone, and the cheapest modes one after another, fit into this.
    let mut high = low.max(cost(f64::MAX) / budget);
    if cost(low) > budget * low {
        while cost(high) > budget * high {
            high *= 2.0;
        }
        while high - low > PRECISION * high {
            let middle = f64::midpoint(low, high);
            if cost(middle) > budget * middle {
                low = middle;
            } else {
                high = middle;
            }
        }
    }
    let lines = hulls.iter().map(|hull| {
        let (area, fall) = hull.at(low);
        (area + fall * low, fall)
    });
    FreeSwitches { makespan: low * (1.0 - SAFETY), lines: lines.collect() }
}

#[cfg(test)]
mod tests {
    use saturn_core::Problem;

    use super::*;

    /// A task of 100 s on one device or 60 s on two, one of 60 s on one device, on one node of two.
    /// In T seconds the first task pays 100 + (100 - T)/2 GPU-seconds, the other 60: 2·T pays for
    /// both from T = 84 on.
    #[test]
    fn a_mix_within_the_makespan_is_paid() {
        let problem = Problem::from_json(
            r#"{"cluster": {"nodes": [{"gpus": 2}]}, "tasks": [
                {"name": "a", "strategies": [
                    {"technique": "ddp", "gpus": 1, "runtime_s": 100.0},
                    {"technique": "ddp", "gpus": 2, "runtime_s": 60.0}]},
                {"name": "b", "strategies": [
                    {"technique": "ddp", "gpus": 1, "runtime_s": 60.0}]}]}"#,
        );
        let model = Model::new(&problem.expect("a problem"));
        let found = free_switches(&model, &[1.0]);
        assert!((found.makespan - 84.0).abs() < 1e-6, "{}", found.makespan);
        let (area, fall) = found.lines[0];
        assert!((area - 150.0).abs() < 1e-6 && (fall - 0.5).abs() < 1e-9, "{area} {fall}");
    }
}
