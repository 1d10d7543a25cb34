//! Proofs for problems of many nodes with a few tasks on each: whether any plan has a makespan of
//! at most T.
//!
//! A *load* is a set of tasks that one node can run within T ([`loads`](crate::proof::loads)). A plan of
//! makespan ≤ T is one load for each node, such that all tasks are in the loads. Tasks with the same
//! modes are of one *shape*. Whether there is such a plan is a covering program:
//!
//! ```text
//! minimise Σ_s u_s
//! u_s + Σ_l l_s·z_l ≥ n_s          for each shape s of n_s tasks
//! Σ_l z_l ≤ number of nodes        for the loads l of each class of equal nodes
//! ```
//!
//! z_l nodes run load l, and u_s tasks of shape s are left out. If the least number of tasks left out
//! is above 0, there is no such plan. If tasks are in more loads than needed, they are taken out of
//! some, which delays no other gang. So only the largest loads are columns. (Columns of such a kind
//! are the patterns of Gilmore and Gomory, Operations Research 9, 1961; here all are made beforehand.)
//!
//! It gives up if too many loads fit.

use std::collections::BTreeMap;

use highs::Col;

use crate::bounds::program::{Effort, Outcome, Program};
use crate::course::clock::Deadline;
use crate::problem::model::Model;
use crate::problem::schedule::{Schedule, Step};
use crate::proof::decide::{MAX_GPUS, Verdict};
use crate::proof::loads::{Fitting, Load, Loads, Order, Shapes, Stopped};

/// With more tasks a node on average, too many loads fit.
const MAX_TASKS_A_NODE: usize = 4;
/// More loads than this are too many columns.
const MAX_LOADS: usize = 20_000;
/// Rounding and HiGHS's tolerances leave out far less of a task than this.
const LEFT_OUT: f64 = 0.01;

/// Whether [`Covers`] take on this problem.
pub(crate) fn is_in_reach(model: &Model) -> bool {
    model.is_separable()
        && !model.has_places()
        && !model.host_binds
        && model.tasks.len() <= model.nodes.len() * MAX_TASKS_A_NODE
        && model.widest.iter().all(|widest| *widest <= MAX_GPUS)
        && model.ready.iter().flatten().all(|time| *time <= 0.0)
}

/// Decides for one limit after the other whether there is a plan.
pub(crate) struct Covers<'a> {
    model: &'a Model,
    shapes: Shapes,
    classes: Vec<Vec<usize>>,
    /// The last limit within which there was no plan, and the loads that fit the nodes of each class.
    refuted: Option<(f64, Vec<Fitting>)>,
    /// The same of the last limit within which there was a plan.
    met: Option<(f64, Vec<Fitting>)>,
    /// Whether too many loads fit.
    pub(crate) is_beyond: bool,
}

impl<'a> Covers<'a> {
    /// Of a problem [in reach](is_in_reach).
    pub(crate) fn new(model: &'a Model) -> Self {
        let (shapes, classes) = (Shapes::of(model), classes(model));
        Self { model, shapes, classes, refuted: None, met: None, is_beyond: false }
    }

    /// Decides whether a plan of makespan ≤ `limit` exists.
    pub(crate) fn decide(&mut self, limit: f64, deadline: Deadline) -> Verdict {
        let Some(all) = self.fitting(limit, deadline) else { return Verdict::Unknown };
        let Self { model, shapes, classes, .. } = self;
        let verdict = match cover(shapes, classes, &all, deadline) {
            Covered::Not => Verdict::Impossible,
            Covered::By(chosen) => schedule(model, shapes, classes, &chosen)
                .map_or(Verdict::Unknown, Verdict::Possible),
            Covered::Unknown => Verdict::Unknown,
        };
        match verdict {
            Verdict::Impossible => self.refuted = Some((limit, all)),
            Verdict::Possible(_) => self.met = Some((limit, all)),
            Verdict::Unknown => {}
        }
        verdict
    }

    /// The loads that fit the nodes of each class within a limit; `None` if they are not all found.
    fn fitting(&mut self, limit: f64, deadline: Deadline) -> Option<Vec<Fitting>> {
        let shorter = self.refuted.as_ref().filter(|(at, _)| *at <= limit);
        let longer = self.met.as_ref().filter(|(at, _)| *at >= limit);
        let mut all = Vec::with_capacity(self.classes.len());
        let mut num_left = MAX_LOADS;
        for (class, nodes) in self.classes.iter().enumerate() {
            let found = Loads {
                model: self.model,
                shapes: &self.shapes,
                node: nodes[0],
                limit,
                deadline,
                areas: self.shapes.areas(self.model, nodes[0], limit),
                shorter: shorter.map(|(_, loads)| &loads[class]),
                longer: longer.map(|(_, loads)| &loads[class]),
                most: num_left,
            }
            .all();
            match found {
                Ok(found) => {
                    num_left -= found.len();
                    all.push(found);
                }
                Err(Stopped::TooMany) => {
                    self.is_beyond = true;
                    return None;
                }
                Err(Stopped::Undecided) => return None,
            }
        }
        Some(all)
    }
}

/// The nodes of each kind and size. A node where a task runs is alone.
fn classes(model: &Model) -> Vec<Vec<usize>> {
    let homes = || model.tasks.iter().filter_map(|task| task.stay.as_ref()?.home());
    let mut classes: BTreeMap<(usize, u32, Option<usize>), Vec<usize>> = BTreeMap::new();
    for (index, node) in model.nodes.iter().enumerate() {
        let home = homes().find(|home| *home == index);
        classes.entry((node.kind, node.gpus, home)).or_default().push(index);
    }
    classes.into_values().collect()
}

/// Whether loads cover all tasks.
enum Covered<'a> {
    Not,
    By(Vec<Chosen<'a>>),
    Unknown,
}

/// So many nodes of a class run a load.
struct Chosen<'a> {
    class: usize,
    load: &'a Load,
    order: &'a Order,
    num_nodes: usize,
}

fn cover<'a>(
    shapes: &Shapes,
    classes: &[Vec<usize>],
    all: &'a [Fitting],
    deadline: Deadline,
) -> Covered<'a> {
    // The linear program is far quicker, and its multipliers are often proof enough.
    for integral in [false, true] {
        let (program, columns) = program(shapes, classes, all, integral);
        match program.solve(Effort::until(deadline)) {
            Outcome::Known { duals, .. }
                if !integral && are_proof(&duals, shapes, classes, &columns) =>
            {
                return Covered::Not;
            }
            Outcome::Known { bound, .. } if integral && bound > LEFT_OUT => return Covered::Not,
            Outcome::Known { columns: Some(values), .. } if integral => {
                let chosen = columns.into_iter().map(|(column, chosen)| {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a number of nodes"
                    )]
                    let num_nodes = values[column.index()].round() as usize;
                    Chosen { num_nodes, ..chosen }
                });
                return Covered::By(chosen.filter(|one| one.num_nodes > 0).collect());
            }
            _ => {}
        }
    }
    Covered::Unknown
}

/// The covering program, with a column for each of the largest loads.
fn program<'a>(
    shapes: &Shapes,
    classes: &[Vec<usize>],
    all: &'a [Fitting],
    integral: bool,
) -> (Program, Vec<(Col, Chosen<'a>)>) {
    let mut program = Program::default();
    let mut column = |cost: f64, most: usize| {
        let most = most as f64;
        if integral { program.integer(cost, most) } else { program.continuous(cost, 0.0, most) }
    };
    let left_out = shapes.tasks.iter().map(|tasks| vec![(column(1.0, tasks.len()), 1.0)]);
    let mut of_shapes: Vec<Vec<_>> = left_out.collect();
    let mut of_classes = vec![Vec::new(); classes.len()];
    let mut columns = Vec::new();
    for (class, (nodes, loads)) in classes.iter().zip(all).enumerate() {
        for (load, fit) in loads.iter().filter(|(_, fit)| fit.is_largest) {
            let column = column(0.0, nodes.len());
            of_classes[class].push((column, 1.0));
            for (part, num) in shapes.parts.iter().zip(load).filter(|(_, num)| **num > 0) {
                of_shapes[part.shape].push((column, f64::from(*num)));
            }
            columns.push((column, Chosen { class, load, order: &fit.order, num_nodes: 0 }));
        }
    }
    for (terms, nodes) in of_classes.iter().zip(classes) {
        program.at_most(nodes.len() as f64, terms);
    }
    for (terms, tasks) in of_shapes.iter().zip(&shapes.tasks) {
        program.at_least(tasks.len() as f64, terms);
    }
    (program, columns)
}

/// Whether multipliers of the rows prove that tasks are left out. A task is worth its shape's multiplier,
/// at most 1. Tasks are left out if all tasks are worth more than the most that the loads of all nodes
/// can be worth.
fn are_proof(
    duals: &[f64],
    shapes: &Shapes,
    classes: &[Vec<usize>],
    columns: &[(Col, Chosen)],
) -> bool {
    let worths: Vec<f64> =
        duals.iter().skip(classes.len()).map(|dual| dual.clamp(0.0, 1.0)).collect();
    let worth_of = |shape: usize| worths.get(shape).copied().unwrap_or(0.0);
    let mut most = vec![0.0_f64; classes.len()];
    for (_, Chosen { class, load, .. }) in columns {
        let parts = shapes.parts.iter().zip(*load);
        let worth = parts.map(|(part, num)| worth_of(part.shape) * f64::from(*num)).sum();
        most[*class] = most[*class].max(worth);
    }
    let tasks = shapes.tasks.iter().enumerate();
    let needed: f64 = tasks.map(|(shape, tasks)| tasks.len() as f64 * worth_of(shape)).sum();
    let nodes = classes.iter().zip(&most);
    let offered: f64 = nodes.map(|(nodes, most)| nodes.len() as f64 * most).sum();
    needed > offered + LEFT_OUT
}

/// The plan of loads that cover all tasks; `None` if they leave tasks out.
fn schedule(
    model: &Model,
    shapes: &Shapes,
    classes: &[Vec<usize>],
    chosen: &[Chosen],
) -> Option<Schedule> {
    let mut tasks: Vec<_> = shapes.tasks.iter().map(|tasks| tasks.iter().copied()).collect();
    let mut nodes: Vec<_> = classes.iter().map(|nodes| nodes.iter().copied()).collect();
    let mut schedule = Schedule::with_capacity(model.tasks.len());
    for Chosen { class, load, order, num_nodes } in chosen {
        for node in nodes[*class].by_ref().take(*num_nodes) {
            let stays =
                shapes.parts.iter().zip(*load).filter(|(part, num)| part.stays && **num > 0);
            for (part, _) in stays {
                let Some(task) = tasks[part.shape].next() else { continue };
                schedule.push(Step::staying(task, model.tasks[task].stay.as_ref()?));
            }
            let kind = model.nodes[node].kind;
            for (shape, mode) in *order {
                let Some(task) = tasks[*shape].next() else { continue };
                let mode = model.tasks[task].modes[kind][*mode];
                schedule.push(Step::on_node(task, mode.strategy, node, mode.gpus));
            }
        }
    }
    (schedule.len() == model.tasks.len()).then_some(schedule)
}

#[cfg(test)]
mod tests {
    use saturn_core::{Candidate, Cluster, HeldDevices, Node, Problem, ProblemTask, Running};

    use super::*;
    use crate::course::clock::FrozenClock;
    use crate::course::random::Random;
    use crate::problem::schedule::assignments;
    use crate::proof::decide::{self, SLACK, area_of_staying, least_area};

    /// Four nodes of three classes, and tasks some of which are alike. The first two run on devices of
    /// the first node, if they are not alike.
    fn problem(random: &mut Random) -> Problem {
        let node = |(index, (gpus, kind)): (usize, (u32, &str))| {
            Node::new(format!("n{index}"), gpus, kind)
        };
        let nodes = [(4, "a"), (4, "a"), (2, "a"), (3, "b")].into_iter().enumerate().map(node);
        let cluster = Cluster { nodes: nodes.collect() };
        let mut tasks: Vec<ProblemTask> = Vec::new();
        for index in 0..6 + random.below(4) {
            if index > 0 && random.below(3) == 0 {
                let like = tasks[random.below(index)].strategies.clone();
                tasks.push(ProblemTask::new(format!("t{index}"), like));
                continue;
            }
            let work_s = random.log_between(10.0, 80.0);
            let mut strategies = Vec::new();
            for (kind, speed) in [("a", 1.0), ("b", 1.5)] {
                for gpus in 1..=4 {
                    let parallel = f64::from(gpus).powf(0.6 + 0.4 * random.unit());
                    strategies.push(Candidate {
                        technique: "ddp".into(),
                        gpus,
                        gpu_type: Some(kind.into()),
                        runtime_s: (work_s / parallel / speed).ceil(),
                        pack: false,
                        host_bytes: 0,
                        relative_error: 0.0,
                    });
                }
            }
            tasks.push(ProblemTask::new(format!("t{index}"), strategies));
            if index < 2 && random.below(2) == 0 {
                let devices = vec![2 * u32::try_from(index).unwrap_or(0)];
                tasks[index].running = Some(Running {
                    technique: "ddp".to_owned(),
                    gpus: 1,
                    gpu_type: Some("a".to_owned()),
                    placement: vec![HeldDevices { node: "n0".to_owned(), devices }],
                    movable: random.below(3) > 0,
                });
                tasks[index].switch_cost_s = Some(2.0);
            }
        }
        Problem::new(cluster, tasks)
    }

    #[test]
    fn loads_that_cover_say_what_dealing_all_tasks_says() {
        let (mut num_possible, mut num_impossible) = (0, 0);
        for seed in 0..80 {
            let mut random = Random::new(seed, 0);
            let problem = problem(&mut random);
            let model = Model::new(&problem);
            assert!(is_in_reach(&model));
            let area: f64 = (0..model.tasks.len())
                .map(|task| {
                    let nodes = 0..model.nodes.len();
                    let areas = nodes.map(|node| least_area(&model, task, node, 1e6));
                    areas.fold(area_of_staying(&model.tasks[task], 1e6), f64::min)
                })
                .sum();
            let limit = area / model.num_gpus() * (1.0 + random.unit());
            let until = Deadline::new(&FrozenClock, 60.0);
            let dealt = decide::decide(&model, &[1.0, 1.0], limit, until, u64::MAX, 1);
            let mut covers = Covers::new(&model);
            // What is known of other limits must not change the verdict.
            for other in [0.9, 1.1] {
                covers.decide(limit * other, until);
            }
            match (covers.decide(limit, until), dealt) {
                (Verdict::Possible(schedule), Verdict::Possible(_)) => {
                    let assignments = assignments(&problem, &model, &schedule);
                    assert_eq!(assignments.len(), problem.tasks.len());
                    let latest = assignments.iter().map(|one| one.end_s).fold(0.0, f64::max);
                    assert!(latest <= limit * (1.0 + 2.0 * SLACK), "{latest} > {limit}");
                    num_possible += 1;
                }
                (Verdict::Impossible, Verdict::Impossible) => num_impossible += 1,
                (covered, dealt) => panic!("seed {seed}: {covered:?}, but {dealt:?}"),
            }
        }
        assert!(num_possible > 9 && num_impossible > 9, "{num_possible}, {num_impossible}");
    }
}
