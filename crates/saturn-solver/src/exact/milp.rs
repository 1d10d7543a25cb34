//! The exact mixed-integer program, in continuous time, for problems of a few tasks. It knows every
//! fact of a problem and every objective.
//!
//! Times are divided by a horizon H by which some best plan ends, so that no big-M exceeds 1. For
//! tasks i, j, nodes n, modes m:
//!
//! - x_imn = 1: i runs under narrow mode m on node n;
//! - w_im = 1: i runs under wide mode m; q_imn = 1 if it holds node n whole (with `pack` also
//!   part_imn devices of another node);
//! - z_i = 1: i stays as it runs already;
//! - s_i: start, between the earliest start h_i and the latest; s_i = 0 if z_i = 1;
//! - p_i = Σ x·runtime: runtime; windows: s_i ≥ Σ x·from and s_i + p_i ≤ Σ x·until;
//! - d_in: devices that i holds on node n, linear in x, q, part and z;
//! - y_ij = 1: j starts after i has ended: s_j ≥ s_i + p_i − (1 − y_ij)·(l_i − h_j) with l_i the
//!   latest end. It is fixed if j waits for i, and left out if j can't come after i;
//! - f_ijn: devices that pass from i to j on node n, ≤ G_n·y_ij. The devices of j come from tasks
//!   that have ended or from the idle node: Σ_i f_ijn + f_0jn = d_jn. At most d_in devices leave i,
//!   and at most G_n leave the idle node.
//!
//! Devices are thus conserved like a flow, and no pair of tasks needs a constraint per GPU
//! (Artigues, Michelon and Reusser, EJOR 149, 2003). The program needs no device numbers: a gang
//! that stays has its own devices from the start, and any g free devices do for another gang. The
//! objective is C ≥ s_i + p_i, Σ weight·(s_i + p_i), or the cost of `sessions`. Added are area
//! cuts, the lower bound already known, and an order among tasks that are equal.
//!
//! With soft deadlines there are two programs. t_i ≥ s_i + p_i − d_i, t_i ≥ 0 says how late i is.
//! The first program makes the tardiness Σ price·t_i small, the second the objective, with no more
//! tardiness than that of the best plan known.
//!
//! HiGHS's solution is read as nodes, modes and an order by start, and played anew: its tolerances
//! can't make gangs overlap. Its bound is lowered by a margin for those tolerances.

use highs::Col;
use saturn_core::Objective;

use crate::bounds::program::{Effort, Outcome, Program};
use crate::exact::places::{Row, add_task};
use crate::exact::sessions;
use crate::general::instance::Instance;
use crate::general::play::Placed;
use crate::general::replay::replay;
use crate::problem::model::Node;

/// Relative to the objective; HiGHS works to 1e-9.
const MARGIN: f64 = 2e-7;
const LEAST_MARGIN: f64 = 2e-8;

/// What the program makes small.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aim {
    /// The tardiness.
    Tardiness,
    /// The value under the objective, with no more tardiness than this; it may be infinite.
    Value { most_tardy: f64 },
}

/// The result of the program.
#[derive(Debug)]
pub(crate) enum Solution {
    /// No plan ends by the horizon.
    Infeasible,
    Known {
        /// No plan with at most the tardiness asked for is better than this.
        bound: f64,
        placed: Option<Vec<Placed>>,
    },
}

/// Solves the problem within the effort.
///
/// `horizon` is a time by which some best plan ends; `low` a lower bound of what is made small. Every
/// task must have a way.
pub(crate) fn solve(
    instance: &Instance,
    aim: Aim,
    low: f64,
    horizon: f64,
    effort: Effort,
) -> Solution {
    let mut program = Program::default();
    let late_unit = horizon * largest(instance.tasks.iter().map(|task| task.late_price));
    let objective = (aim != Aim::Tardiness).then_some(instance.objective);
    // The worth of one unit of the program's objective.
    let unit = match objective {
        None => late_unit,
        Some(Objective::Makespan) => horizon,
        Some(Objective::Completion) => {
            horizon * largest(instance.tasks.iter().map(|task| task.weight))
        }
        Some(Objective::Cost) => horizon * largest(instance.nodes.iter().map(|node| node.price)),
    };
    // If nodes cost nothing the objective is 0, and the question is whether there is a plan.
    let unit = if unit > 0.0 { unit } else { 1.0 };
    let is_makespan = objective == Some(Objective::Makespan);
    let least = if is_makespan { (low / unit).min(1.0) } else { 0.0 };
    let makespan = program.continuous(if is_makespan { 1.0 } else { 0.0 }, least, 1.0);
    let mut rows: Vec<Row> = Vec::with_capacity(instance.tasks.len());
    for task in 0..instance.tasks.len() {
        let weight = match objective {
            Some(Objective::Completion) => instance.tasks[task].weight * horizon / unit,
            _ => 0.0,
        };
        let Some(row) = add_task(&mut program, instance, task, horizon, weight) else {
            return Solution::Infeasible;
        };
        rows.push(row);
    }
    for row in &rows {
        let mut terms = vec![(row.start, 1.0), (makespan, -1.0)];
        terms.extend(row.runtime(1.0));
        program.at_most(0.0, &terms);
    }
    add_flows(&mut program, instance, &rows);
    add_area_cuts(&mut program, instance, &rows, makespan, horizon);
    if late_unit > 0.0 {
        add_tardiness(&mut program, instance, &rows, aim, horizon, late_unit);
    }
    match objective {
        None | Some(Objective::Makespan) => {}
        Some(Objective::Completion) => {
            let ends = rows.iter().zip(&instance.tasks).flat_map(|(row, task)| {
                let weight = task.weight * horizon / unit;
                row.runtime(weight).chain([(row.start, weight)])
            });
            program.at_least(low / unit * (1.0 - MARGIN), &ends.collect::<Vec<_>>());
        }
        Some(Objective::Cost) => {
            let paid = sessions::add(&mut program, instance, &rows, horizon, unit);
            program.at_least(low / unit * (1.0 - MARGIN), &paid);
        }
    }
    for (task, row) in rows.iter().enumerate().skip(1) {
        if instance.are_alike(task - 1, task) {
            program.at_most(0.0, &[(rows[task - 1].start, 1.0), (row.start, -1.0)]);
        }
    }
    match program.solve(effort) {
        Outcome::Infeasible => Solution::Infeasible,
        Outcome::Unknown => Solution::Known { bound: low, placed: None },
        Outcome::Known { bound, columns, .. } => {
            let bound = (bound * (1.0 - MARGIN) - LEAST_MARGIN) * unit;
            let placed = columns.map(|columns| read(instance, &rows, &columns, horizon));
            Solution::Known { bound: bound.max(low), placed }
        }
    }
}

/// How late tasks with soft deadlines are: what is made small, or at most as much as may be.
fn add_tardiness(
    program: &mut Program,
    instance: &Instance,
    rows: &[Row],
    aim: Aim,
    horizon: f64,
    unit: f64,
) {
    let mut all = Vec::new();
    for (row, task) in rows.iter().zip(&instance.tasks) {
        if task.wished < horizon {
            let price = task.late_price * horizon / unit;
            let counted = if aim == Aim::Tardiness { price } else { 0.0 };
            let late = program.continuous(counted, 0.0, 1.0);
            let mut terms = vec![(row.start, 1.0), (late, -1.0)];
            terms.extend(row.runtime(1.0));
            program.at_most(task.wished / horizon, &terms);
            all.push((late, price));
        }
    }
    if let Aim::Value { most_tardy } = aim
        && most_tardy.is_finite()
    {
        program.at_most(most_tardy / unit * (1.0 + MARGIN) + LEAST_MARGIN * 0.1, &all);
    }
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// What gangs hold and pass on: the devices of a node, or those that an owner may hold.
struct Resource {
    gpus: f64,
    /// For each task, the devices that it takes of it under each of its choices.
    demand: Vec<Vec<(Col, f64)>>,
}

/// The nodes, and the caps that may bind.
fn resources(instance: &Instance, rows: &[Row]) -> Vec<Resource> {
    let model = instance.model;
    let node = |(index, node): (usize, &Node)| Resource {
        gpus: f64::from(node.gpus),
        demand: rows.iter().map(|row| row.demand[index].clone()).collect(),
    };
    let cap = |cap: usize| {
        let demand = |(task, row): (usize, &Row)| {
            if model.caps.of(task) == Some(cap) { row.demand.concat() } else { Vec::new() }
        };
        Resource { gpus: model.room_of(cap), demand: rows.iter().enumerate().map(demand).collect() }
    };
    let nodes = model.nodes.iter().enumerate().map(node);
    nodes.chain((0..model.caps.max_gpus.len()).map(cap)).collect()
}

/// Orders and flows of devices.
fn add_flows(program: &mut Program, instance: &Instance, rows: &[Row]) {
    let resources = resources(instance, rows);
    let num_tasks = rows.len();
    let mut inflow: Vec<Vec<Vec<(Col, f64)>>> = vec![vec![Vec::new(); resources.len()]; num_tasks];
    let mut outflow = inflow.clone();
    let mut after = vec![vec![None; num_tasks]; num_tasks];
    let waits_for = instance.predecessors();
    for (first, row_after) in after.iter_mut().enumerate() {
        for second in (0..num_tasks).filter(|second| *second != first) {
            if waits_for[first][second] {
                continue;
            }
            let must = waits_for[second][first];
            let (earlier, later) = (&rows[first], &rows[second]);
            if !must && earlier.head + earlier.shortest > later.latest - later.shortest + 1e-9 {
                continue;
            }
            let order = program.binary(0.0);
            row_after[second] = Some(order);
            // How far the end of the first task may lie behind the second's earliest start.
            let reach = (earlier.latest - later.head).max(0.0);
            let mut terms = vec![(earlier.start, 1.0), (later.start, -1.0)];
            terms.extend(earlier.runtime(1.0));
            terms.push((order, reach));
            program.at_most(reach, &terms);
            if must {
                program.equal(1.0, &[(order, 1.0)]);
            }
            for (at, resource) in resources.iter().enumerate() {
                if resource.demand[first].is_empty() || resource.demand[second].is_empty() {
                    continue;
                }
                let flow = program.continuous(0.0, 0.0, resource.gpus);
                program.at_most(0.0, &[(flow, 1.0), (order, -resource.gpus)]);
                inflow[second][at].push((flow, 1.0));
                outflow[first][at].push((flow, 1.0));
            }
        }
    }
    for (first, row) in after.iter().enumerate() {
        for (second, there) in row.iter().enumerate().skip(first + 1) {
            if let (Some(there), Some(back)) = (*there, after[second][first]) {
                program.at_most(1.0, &[(there, 1.0), (back, 1.0)]);
            }
        }
    }
    for (at, Resource { gpus, demand }) in resources.iter().enumerate() {
        let mut source = Vec::new();
        for task in (0..num_tasks).filter(|task| !demand[*task].is_empty()) {
            let idle = program.continuous(0.0, 0.0, *gpus);
            source.push((idle, 1.0));
            let demand = || demand[task].iter().map(|(column, gpus)| (*column, -gpus));
            let mut balance = inflow[task][at].clone();
            balance.push((idle, 1.0));
            balance.extend(demand());
            program.equal(0.0, &balance);
            let mut leaving = outflow[task][at].clone();
            leaving.extend(demand());
            program.at_most(0.0, &leaving);
        }
        program.at_most(*gpus, &source);
    }
}

/// Σ devices·runtime ≤ G_n·C on each node and of each kind, and ≤ G_n times its window.
fn add_area_cuts(
    program: &mut Program,
    instance: &Instance,
    rows: &[Row],
    makespan: Col,
    horizon: f64,
) {
    let model = instance.model;
    let mut by_kind: Vec<Vec<(Col, f64)>> = vec![Vec::new(); model.num_kinds];
    for (node, spec) in model.nodes.iter().enumerate() {
        let gpus = f64::from(spec.gpus);
        let area: Vec<(Col, f64)> = rows.iter().flat_map(|row| row.area_on(node)).collect();
        let facts = instance.nodes[node];
        let window = (facts.until.min(horizon) - facts.from).max(0.0) / horizon;
        program.at_most(gpus * window, &area);
        by_kind[spec.kind].extend(&area);
        let mut terms = area;
        terms.push((makespan, -gpus));
        program.at_most(0.0, &terms);
    }
    for (kind, mut terms) in by_kind.into_iter().enumerate() {
        terms.extend(rows.iter().flat_map(|row| row.wide_area(kind)));
        terms.push((makespan, -model.capacity[kind]));
        program.at_most(0.0, &terms);
    }
}

/// The gangs of a solution, played anew.
fn read(instance: &Instance, rows: &[Row], columns: &[f64], horizon: f64) -> Vec<Placed> {
    let value = |column: Col| columns[column.index()];
    let gangs: Vec<Placed> = rows
        .iter()
        .enumerate()
        .filter_map(|(task, row)| row.read(instance, task, &value, horizon))
        .collect();
    // For the cost it can pay to wait. Then starts are kept, but for what tolerances may have
    // added.
    let early = match instance.objective {
        Objective::Cost => 1e-7 * horizon,
        _ => f64::INFINITY,
    };
    replay(instance, gangs, early)
}
