//! The exact mixed-integer program, in continuous time, for problems of a few tasks.
//!
//! Times are divided by the makespan H of a plan at hand, so that the horizon is 1 and the only
//! big-M is 1. For tasks i, j, nodes n, modes m:
//!
//! - x_imn = 1: i runs under narrow mode m on node n; w_im = 1: i runs under wide mode m, and
//!   q_imn = 1 where it holds node n whole (with `pack` also part_imn devices of one more node);
//! - s_i: start, p_i = Σ x·runtime: runtime, C ≥ s_i + p_i: makespan;
//! - d_in: devices that i holds on node n, linear in x, q and part;
//! - y_ij = 1: j starts after i has ended: s_j ≥ s_i + p_i − (1 − y_ij);
//! - f_ijn: devices that pass from i to j on node n, ≤ G_n·y_ij. Those that j holds come from tasks
//!   that have ended or from the idle node: Σ_i f_ijn + f_0jn = d_jn; those that leave i are
//!   d_in at most, those that leave the idle node G_n at most.
//!
//! Devices are thus conserved like a flow, and no pair of tasks needs a constraint per GPU (Artigues,
//! Michelon and Reusser, EJOR 149, 2003). Added are: area cuts Σ held·runtime ≤ G_n·C, the lower
//! bounds already known, and an order among tasks that are equal.
//!
//! HiGHS's solution is read as an order by start with modes and nodes, and decoded anew: its
//! tolerances can't make gangs overlap. Its bound is lowered by a margin for those tolerances.

use highs::Col;

use crate::error::SolveError;
use crate::model::{Model, WideMode};
use crate::options::Objective;
use crate::program::{Outcome, Program};
use crate::schedule::{Place, Schedule, Step};

/// Relative to the horizon; HiGHS works to 1e-9.
const MARGIN: f64 = 2e-7;

/// What the program found.
pub(crate) struct Solution {
    /// No plan is better than this under the objective, seconds.
    pub(crate) bound: f64,
    pub(crate) schedule: Option<Schedule>,
}

/// One way to run a task: its column, runtime over the horizon, and which strategy it is.
struct Choice {
    column: Col,
    runtime: f64,
    strategy: usize,
    place: ChoicePlace,
}

enum ChoicePlace {
    Node(usize),
    /// Whole-node columns and part columns by node.
    Wide(Vec<(usize, Col, Option<Col>)>),
}

/// A task's columns.
struct Row {
    start: Col,
    choices: Vec<Choice>,
    /// Devices held on each node, as terms.
    demand: Vec<Vec<(Col, f64)>>,
}

impl Row {
    /// The runtime as terms, times `factor`.
    fn runtime(&self, factor: f64) -> impl Iterator<Item = (Col, f64)> + '_ {
        self.choices.iter().map(move |choice| (choice.column, factor * choice.runtime))
    }
}

/// Solves the problem within `time_limit_s` seconds of HiGHS.
///
/// `horizon` is a time by which some optimal plan ends; `low` a lower bound on the makespan.
pub(crate) fn solve(
    model: &Model,
    objective: Objective,
    low: f64,
    horizon: f64,
    time_limit_s: f64,
) -> Result<Solution, SolveError> {
    let mut program = Program::default();
    let is_makespan = objective == Objective::Makespan;
    let end_cost = if is_makespan { 0.0 } else { 1.0 };
    let makespan =
        program.continuous(if is_makespan { 1.0 } else { 0.0 }, (low / horizon).min(1.0), 1.0);
    let rows: Vec<Row> = (0..model.tasks.len())
        .map(|task| add_task(&mut program, model, task, horizon, end_cost))
        .collect();
    for row in &rows {
        let mut terms = vec![(row.start, 1.0), (makespan, -1.0)];
        terms.extend(row.runtime(1.0));
        program.at_most(0.0, &terms);
    }
    add_flows(&mut program, model, &rows);
    add_area_cuts(&mut program, model, &rows, makespan);
    for (task, row) in rows.iter().enumerate().skip(1) {
        if is_same(model, task - 1, task) {
            program.at_most(0.0, &[(rows[task - 1].start, 1.0), (row.start, -1.0)]);
        }
    }
    match program.solve(time_limit_s)? {
        Outcome::Infeasible => Ok(Solution { bound: low, schedule: None }),
        Outcome::Known { bound, columns, .. } => {
            let floor = if is_makespan { low } else { 0.0 };
            let bound = ((bound - MARGIN) * horizon).max(floor);
            let schedule = columns.map(|columns| read(model, &rows, &columns));
            Ok(Solution { bound, schedule })
        }
    }
}

fn is_same(model: &Model, left: usize, right: usize) -> bool {
    let shape = |task: usize| {
        let task = &model.tasks[task];
        (
            task.shapes().map(|(kind, gpus, runtime)| (kind, gpus, runtime.to_bits())),
            task.wide.iter().map(|mode| (mode.gpus, mode.pack)),
        )
    };
    let (left, right) = (shape(left), shape(right));
    left.0.eq(right.0) && left.1.eq(right.1)
}

fn add_task(program: &mut Program, model: &Model, task: usize, horizon: f64, end_cost: f64) -> Row {
    let mut row = Row {
        start: program.continuous(end_cost, 0.0, 1.0),
        choices: Vec::new(),
        demand: vec![Vec::new(); model.nodes.len()],
    };
    for node in 0..model.nodes.len() {
        for mode in model.modes_on(task, node).iter().filter(|mode| mode.runtime <= horizon) {
            let runtime = mode.runtime / horizon;
            let column = program.binary(end_cost * runtime);
            row.demand[node].push((column, f64::from(mode.gpus)));
            let place = ChoicePlace::Node(node);
            row.choices.push(Choice { column, runtime, strategy: mode.strategy as usize, place });
        }
    }
    for mode in model.tasks[task].wide.iter().filter(|mode| mode.runtime <= horizon) {
        let runtime = mode.runtime / horizon;
        let column = program.binary(end_cost * runtime);
        let place = ChoicePlace::Wide(add_wide(program, model, mode, column, &mut row.demand));
        row.choices.push(Choice { column, runtime, strategy: mode.strategy as usize, place });
    }
    let one: Vec<(Col, f64)> = row.choices.iter().map(|choice| (choice.column, 1.0)).collect();
    program.equal(1.0, &one);
    row
}

/// The nodes of a wide mode: whole ones, and with `pack` part of one more.
fn add_wide(
    program: &mut Program,
    model: &Model,
    mode: &WideMode,
    chosen: Col,
    demand: &mut [Vec<(Col, f64)>],
) -> Vec<(usize, Col, Option<Col>)> {
    let mut parts = Vec::new();
    let mut held = vec![(chosen, -f64::from(mode.gpus))];
    let mut one_part = vec![(chosen, -1.0)];
    for (node, spec) in model.nodes.iter().enumerate().filter(|(_, one)| one.kind == mode.kind) {
        let gpus = f64::from(spec.gpus);
        let whole = program.binary(0.0);
        program.at_most(0.0, &[(whole, 1.0), (chosen, -1.0)]);
        demand[node].push((whole, gpus));
        held.push((whole, gpus));
        let part = mode.pack.then(|| {
            let is_part = program.binary(0.0);
            let devices = program.integer(0.0, gpus);
            program.at_most(0.0, &[(devices, 1.0), (is_part, -gpus)]);
            program.at_most(1.0, &[(whole, 1.0), (is_part, 1.0)]);
            one_part.push((is_part, 1.0));
            demand[node].push((devices, 1.0));
            held.push((devices, 1.0));
            devices
        });
        parts.push((node, whole, part));
    }
    if mode.pack {
        program.equal(0.0, &held);
        program.at_most(0.0, &one_part);
    } else {
        // More nodes than needed only cost room; superfluous ones are dropped when reading.
        program.at_least(0.0, &held);
    }
    parts
}

fn add_flows(program: &mut Program, model: &Model, rows: &[Row]) {
    let num_tasks = rows.len();
    let mut inflow: Vec<Vec<Vec<(Col, f64)>>> =
        vec![vec![Vec::new(); model.nodes.len()]; num_tasks];
    let mut outflow = inflow.clone();
    let mut after = vec![vec![None; num_tasks]; num_tasks];
    for (first, row_after) in after.iter_mut().enumerate() {
        for second in (0..num_tasks).filter(|second| *second != first) {
            let order = program.binary(0.0);
            row_after[second] = Some(order);
            let mut terms = vec![(rows[first].start, 1.0), (rows[second].start, -1.0)];
            terms.extend(rows[first].runtime(1.0));
            terms.push((order, 1.0));
            program.at_most(1.0, &terms);
            for (node, spec) in model.nodes.iter().enumerate() {
                let gpus = f64::from(spec.gpus);
                let flow = program.continuous(0.0, 0.0, gpus);
                program.at_most(0.0, &[(flow, 1.0), (order, -gpus)]);
                inflow[second][node].push((flow, 1.0));
                outflow[first][node].push((flow, 1.0));
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
    for (node, spec) in model.nodes.iter().enumerate() {
        let gpus = f64::from(spec.gpus);
        let mut source = Vec::new();
        for task in 0..num_tasks {
            let idle = program.continuous(0.0, 0.0, gpus);
            source.push((idle, 1.0));
            let demand = || rows[task].demand[node].iter().map(|(column, gpus)| (*column, -gpus));
            let mut balance = inflow[task][node].clone();
            balance.push((idle, 1.0));
            balance.extend(demand());
            program.equal(0.0, &balance);
            let mut leaving = outflow[task][node].clone();
            leaving.extend(demand());
            program.at_most(0.0, &leaving);
        }
        program.at_most(gpus, &source);
    }
}

/// Σ devices·runtime ≤ G_n·C on each node, for narrow modes, and over all nodes for all modes.
fn add_area_cuts(program: &mut Program, model: &Model, rows: &[Row], makespan: Col) {
    let mut by_kind: Vec<Vec<(Col, f64)>> = vec![Vec::new(); model.num_kinds];
    for (node, spec) in model.nodes.iter().enumerate() {
        let mut terms = vec![(makespan, -f64::from(spec.gpus))];
        for row in rows {
            for choice in &row.choices {
                if let ChoicePlace::Node(at) = choice.place
                    && at == node
                    && let Some((column, gpus)) =
                        row.demand[node].iter().find(|(column, _)| *column == choice.column)
                {
                    terms.push((*column, gpus * choice.runtime));
                    by_kind[spec.kind].push((*column, gpus * choice.runtime));
                }
            }
        }
        program.at_most(0.0, &terms);
    }
    for (task, row) in rows.iter().enumerate() {
        for choice in row.choices.iter().filter(|one| matches!(one.place, ChoicePlace::Wide(_))) {
            let wide = &model.tasks[task].wide;
            if let Some(mode) = wide.iter().find(|mode| mode.strategy as usize == choice.strategy) {
                by_kind[mode.kind].push((choice.column, f64::from(mode.held) * choice.runtime));
            }
        }
    }
    for (kind, mut terms) in by_kind.into_iter().enumerate() {
        terms.push((makespan, -model.capacity[kind]));
        program.at_most(0.0, &terms);
    }
}

/// The order by start, with modes and nodes, of a solution.
fn read(model: &Model, rows: &[Row], columns: &[f64]) -> Schedule {
    let value = |column: Col| columns[column.index()];
    let mut steps: Vec<(f64, Step)> = Vec::new();
    for (task, row) in rows.iter().enumerate() {
        let chosen = row
            .choices
            .iter()
            .max_by(|left, right| value(left.column).total_cmp(&value(right.column)));
        let Some(choice) = chosen else { continue };
        let place = match &choice.place {
            ChoicePlace::Node(node) => Place::Node(*node),
            ChoicePlace::Wide(parts) => {
                let wide = &model.tasks[task].wide;
                let Some(mode) = wide.iter().find(|one| one.strategy as usize == choice.strategy)
                else {
                    continue;
                };
                Place::Nodes(read_wide(model, mode, parts, &value))
            }
        };
        steps.push((value(row.start), Step { task, strategy: choice.strategy, place }));
    }
    steps.sort_by(|left, right| left.0.total_cmp(&right.0));
    steps.into_iter().map(|(_, step)| step).collect()
}

fn read_wide(
    model: &Model,
    mode: &WideMode,
    parts: &[(usize, Col, Option<Col>)],
    value: &impl Fn(Col) -> f64,
) -> Vec<(usize, u32)> {
    let mut held: Vec<(usize, u32)> = parts
        .iter()
        .filter(|(_, whole, _)| value(*whole) > 0.5)
        .map(|(node, _, _)| (*node, model.nodes[*node].gpus))
        .collect();
    let total: u32 = held.iter().map(|(_, gpus)| gpus).sum();
    if mode.pack {
        if total < mode.gpus {
            let part = parts.iter().find(|(_, _, part)| part.is_some_and(|part| value(part) > 0.5));
            held.extend(part.map(|(node, _, _)| (*node, mode.gpus - total)));
        }
        return held;
    }
    let mut total = total;
    held.retain(|(_, gpus)| {
        let is_superfluous = total - gpus >= mode.gpus;
        if is_superfluous {
            total -= gpus;
        }
        !is_superfluous
    });
    held
}
