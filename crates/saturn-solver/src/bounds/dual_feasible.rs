//! The bound by dual feasible functions: which modes fit together into T seconds of each node.
//!
//! Let f map [0, 1] to [0, 1]. f is *dual feasible* if Σ f(x) ≤ 1 for all numbers x whose sum is at
//! most 1. Take a plan of makespan T and a node of G GPUs. At each moment the widths g/G of its
//! gangs sum to at most 1, so the values f(g/G) do too. So the plan stays valid with those widths.
//! Gangs may hold any devices, so a plan of given widths is an assignment to unit devices. On each
//! device the runtimes r/T sum to at most 1, and so do the values h(r/T). Hence
//!
//! ```text
//! Σ f(g/G)·h(r/T) ≤ 1 on each node, ≤ the number of nodes on each class of equal nodes,
//! ```
//!
//! for all dual feasible f and h. With fractions of modes as variables these rows are a linear
//! program. If it has no solution at T, no plan has makespan ≤ T. Bisection finds the largest such
//! T. Every reported T was itself refuted, so the bound holds even where refutation isn't monotone.
//! With integer variables the refutation is stronger.
//!
//! The families are from Fekete and Schepers (Math. Programming 91, 2001): identity, u_k(x) = x
//! if (k+1)x is whole, else ⌊(k+1)x⌋/k; and e_ε(x) = 1 above 1−ε, 0 below ε, else x. The bound for
//! cumulative resources is due to Carlier and Néron (EJOR 149, 2003).

use crate::bounds::program::{Effort, Outcome, Program};
use crate::course::clock::Deadline;
use crate::problem::model::Model;

/// With more (task, class, mode) than this the program is not tried.
const MAX_COLUMNS: usize = 6_000;
/// A refutation must exceed the tolerances of HiGHS.
const MARGIN: f64 = 1e-6;

/// The most seconds of an integer program.
const MOST_FOR_INTEGERS_S: f64 = 2.0;

/// Nodes of one kind and size.
struct Class {
    gpus: u32,
    kind: usize,
    num_nodes: f64,
}

/// A dual feasible function.
#[derive(Debug, Clone, Copy)]
enum Dual {
    Identity,
    Cut(f64),
    Steps(f64),
}

impl Dual {
    fn of(self, x: f64) -> f64 {
        match self {
            Self::Cut(edge) if x > 1.0 - edge + 1e-12 => 1.0,
            Self::Cut(edge) if x < edge - 1e-12 => 0.0,
            Self::Identity | Self::Cut(_) => x,
            Self::Steps(k) => {
                let scaled = x * (k + 1.0);
                if (scaled - scaled.round()).abs() < 1e-9 { x } else { scaled.floor() / k }
            }
        }
    }
}

const RUNTIME_DUALS: [Dual; 10] = [
    Dual::Identity,
    Dual::Cut(0.1),
    Dual::Cut(0.2),
    Dual::Cut(0.3),
    Dual::Cut(0.4),
    Dual::Cut(0.5),
    Dual::Steps(1.0),
    Dual::Steps(2.0),
    Dual::Steps(3.0),
    Dual::Steps(4.0),
];

fn width_duals(gpus: u32) -> Vec<Dual> {
    let mut duals = vec![Dual::Identity, Dual::Steps(1.0), Dual::Steps(2.0), Dual::Steps(3.0)];
    let edges = 2..=(gpus / 2).min(8);
    duals.extend(edges.map(|edge| Dual::Cut(f64::from(edge) / f64::from(gpus))));
    duals
}

/// Raises `low`, a lower bound, as far as refutations go before the deadline. `high` is the
/// makespan of a plan.
pub(crate) fn raise(model: &Model, low: f64, high: f64, deadline: Deadline) -> f64 {
    let classes = classes(model);
    let num_columns: usize = model
        .tasks
        .iter()
        .map(|task| {
            let narrow: usize = task.modes.iter().map(Vec::len).sum();
            narrow * classes.len().div_ceil(model.num_kinds) + task.wide.len() + 1
        })
        .sum();
    if num_columns > MAX_COLUMNS {
        return low;
    }
    let mut refuted = low;
    for (precision, integral) in [(1e-4, false), (3e-4, true)] {
        let mut open = high;
        while open - refuted > precision * open && !deadline.is_over() {
            let middle = f64::midpoint(refuted, open);
            if is_refuted(model, &classes, middle, integral, deadline) {
                refuted = middle;
            } else {
                open = middle;
            }
        }
        // The whole gap at once, in case the plan is optimal.
        let almost = high * (1.0 - 1e-7);
        if refuted < almost
            && !deadline.is_over()
            && open - refuted <= precision * open
            && open >= high
            && is_refuted(model, &classes, almost, integral, deadline)
        {
            refuted = almost;
        }
    }
    refuted
}

fn classes(model: &Model) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for node in &model.nodes {
        match classes.iter_mut().find(|class| class.gpus == node.gpus && class.kind == node.kind) {
            Some(class) => class.num_nodes += 1.0,
            None => classes.push(Class { gpus: node.gpus, kind: node.kind, num_nodes: 1.0 }),
        }
    }
    classes
}

/// Whether no plan of makespan ≤ `makespan` exists by this bound.
fn is_refuted(
    model: &Model,
    classes: &[Class],
    makespan: f64,
    integral: bool,
    deadline: Deadline,
) -> bool {
    let mut program = Program::default();
    // How far the rows must stretch; above 1 the linear program is refuted.
    let stretch = (!integral).then(|| program.continuous(1.0, 0.0, f64::INFINITY));
    let duals: Vec<Vec<Dual>> = classes.iter().map(|class| width_duals(class.gpus)).collect();
    let mut rows: Vec<Vec<Vec<(highs::Col, f64)>>> =
        duals.iter().map(|widths| vec![Vec::new(); widths.len() * RUNTIME_DUALS.len()]).collect();
    for task in &model.tasks {
        let mut choices = Vec::new();
        let mut add = |program: &mut Program, class: usize, parts: &[(u32, f64)], runtime: f64| {
            let column =
                if integral { program.binary(0.0) } else { program.continuous(0.0, 0.0, 1.0) };
            choices.push((column, 1.0));
            let share = (runtime / makespan).min(1.0);
            for (width_index, width) in duals[class].iter().enumerate() {
                let size: f64 = parts
                    .iter()
                    .map(|(gpus, count)| {
                        count * width.of(f64::from(*gpus) / f64::from(classes[class].gpus))
                    })
                    .sum();
                for (time_index, time) in RUNTIME_DUALS.iter().enumerate() {
                    let value = size * time.of(share);
                    if value > 0.0 {
                        let row = width_index * RUNTIME_DUALS.len() + time_index;
                        rows[class][row].push((column, value));
                    }
                }
            }
        };
        for (class_index, class) in classes.iter().enumerate() {
            for mode in &task.modes[class.kind] {
                if mode.gpus <= class.gpus && mode.runtime <= makespan {
                    add(&mut program, class_index, &[(mode.gpus, 1.0)], mode.runtime);
                }
            }
        }
        for mode in task.wide.iter().filter(|mode| mode.runtime <= makespan) {
            let mut same = (0..classes.len()).filter(|index| classes[*index].kind == mode.kind);
            match (same.next(), same.next()) {
                (Some(class), None) => {
                    let gpus = classes[class].gpus;
                    let whole = (gpus, f64::from(mode.held / gpus));
                    add(&mut program, class, &[whole, (mode.held % gpus, 1.0)], mode.runtime);
                }
                // Nodes of several sizes: the gang may take any of them, so it counts for nothing.
                (Some(class), Some(_)) => add(&mut program, class, &[], mode.runtime),
                (None, _) => {}
            }
        }
        if let Some(stay) = task.stay.as_ref().filter(|stay| stay.runtime <= makespan) {
            let home = stay.home().map(|node| model.nodes[node]);
            let is_home = |class: &Class| {
                home.is_some_and(|home| class.gpus == home.gpus && class.kind == home.kind)
            };
            match classes.iter().position(is_home) {
                Some(class) => add(&mut program, class, &[(stay.held(), 1.0)], stay.runtime),
                // A gang on several nodes counts for nothing.
                None => add(&mut program, 0, &[], stay.runtime),
            }
        }
        if choices.is_empty() {
            return true;
        }
        program.equal(1.0, &choices);
    }
    for (class, rows) in classes.iter().zip(rows) {
        for mut row in rows.into_iter().filter(|row| !row.is_empty()) {
            match stretch {
                Some(stretch) => {
                    row.push((stretch, -class.num_nodes));
                    program.at_most(0.0, &row);
                }
                None => program.at_most(class.num_nodes * (1.0 + MARGIN), &row),
            }
        }
    }
    let deadline = if integral { deadline.within(MOST_FOR_INTEGERS_S) } else { deadline };
    match program.solve(Effort::until(deadline)) {
        Outcome::Infeasible => integral,
        Outcome::Known { bound, .. } => !integral && bound > 1.0 + MARGIN,
        Outcome::Unknown => false,
    }
}
