//! Proofs for problems of many nodes with a few tasks on each: whether any plan has a makespan of
//! at most T.
//!
//! A *pattern* says how many tasks of each group a node runs. Tasks with the same modes are of one
//! *group*. [`patterns`](crate::proof::patterns) finds all patterns whose tasks one node can run within
//! T. A plan of makespan ≤ T gives each node one of these patterns, so that every task has a node.
//! Whether there is such a plan is a covering program:
//!
//! ```text
//! minimise Σ_g u_g
//! u_g + Σ_p p_g·z_p ≥ n_g          for each group g of n_g tasks
//! Σ_p z_p ≤ number of nodes        for the patterns p of each class of equal nodes
//! ```
//!
//! z_p nodes run pattern p, and u_g tasks of group g are left out. If the least number of tasks left out
//! is above 0, there is no such plan. If the chosen patterns have room for more tasks than there are,
//! places stay empty, which delays no other gang. So only the largest patterns are columns. (Gilmore and
//! Gomory, Operations Research 9, 1961, make patterns while they solve; here all patterns are made
//! beforehand.)
//!
//! It gives up if too many patterns fit.

use std::collections::BTreeMap;

use highs::Col;

use crate::bounds::program::{Effort, Outcome, Program};
use crate::course::clock::Deadline;
use crate::problem::model::Model;
use crate::problem::schedule::{Schedule, Step};
use crate::proof::decide::{Verdict, are_nodes_decidable};
use crate::proof::patterns::{Fit, Fitting, Groups, Pattern, Patterns, Stopped};

/// With more tasks a node on average, too many patterns fit.
const MAX_TASKS_A_NODE: usize = 4;
/// More patterns than this are too many columns.
const MAX_PATTERNS: usize = 20_000;
/// Rounding and HiGHS's tolerances leave out far less of a task than this.
const LEFT_OUT: f64 = 0.01;

/// Whether [`Covers`] take on this problem.
pub(crate) fn is_in_reach(model: &Model) -> bool {
    are_nodes_decidable(model)
        && !model.host_binds
        && !model.caps.bind()
        && model.tasks.len() <= model.nodes.len() * MAX_TASKS_A_NODE
}

/// Decides for one limit after the other whether there is a plan.
pub(crate) struct Covers<'a> {
    model: &'a Model,
    groups: Groups,
    /// The nodes of each class.
    classes: Vec<Vec<usize>>,
    /// The last limit within which there was no plan, seconds, and the patterns that fit the nodes of
    /// each class.
    refuted: Option<(f64, Vec<Fitting>)>,
    /// The last limit within which there was a plan, and its patterns.
    met: Option<(f64, Vec<Fitting>)>,
    /// Whether too many patterns fit.
    pub(crate) is_beyond: bool,
}

/// Whether patterns cover all tasks.
enum Covered<'a> {
    Not,
    /// By these columns, each on so many nodes.
    By(Vec<(Column<'a>, usize)>),
    Unknown,
}

/// A pattern of the nodes of a class, in the covering program.
struct Column<'a> {
    variable: Col,
    class: usize,
    pattern: &'a Pattern,
    fit: &'a Fit,
}

impl<'a> Covers<'a> {
    /// Of a problem [in reach](is_in_reach).
    pub(crate) fn new(model: &'a Model) -> Self {
        let (groups, classes) = (Groups::of(model), classes(model));
        Self { model, groups, classes, refuted: None, met: None, is_beyond: false }
    }

    /// Decides whether a plan of makespan ≤ `limit` exists; `limit` in seconds.
    pub(crate) fn decide(&mut self, limit: f64, deadline: Deadline) -> Verdict {
        let Some(all) = self.fitting(limit, deadline) else { return Verdict::Unknown };
        let verdict = match self.cover(&all, deadline) {
            Covered::Not => Verdict::Impossible,
            Covered::By(chosen) => {
                self.schedule(&chosen).map_or(Verdict::Unknown, Verdict::Possible)
            }
            Covered::Unknown => Verdict::Unknown,
        };
        match verdict {
            Verdict::Impossible => self.refuted = Some((limit, all)),
            Verdict::Possible(_) => self.met = Some((limit, all)),
            Verdict::Unknown => {}
        }
        verdict
    }

    /// The patterns that fit the nodes of each class; `None` if they are not all found.
    fn fitting(&mut self, limit: f64, deadline: Deadline) -> Option<Vec<Fitting>> {
        let shorter = self.refuted.as_ref().filter(|(at, _)| *at <= limit);
        let longer = self.met.as_ref().filter(|(at, _)| *at >= limit);
        let mut all = Vec::with_capacity(self.classes.len());
        let mut num_left = MAX_PATTERNS;
        for (class, nodes) in self.classes.iter().enumerate() {
            let patterns = Patterns {
                model: self.model,
                groups: &self.groups,
                node: nodes[0],
                limit,
                deadline,
                areas: self.groups.areas(self.model, nodes[0], limit),
                shorter: shorter.map(|(_, fitting)| &fitting[class]),
                longer: longer.map(|(_, fitting)| &fitting[class]),
                most: num_left,
            };
            match patterns.all() {
                Ok(found) => {
                    num_left = num_left.saturating_sub(found.len());
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

    fn cover<'b>(&self, all: &'b [Fitting], deadline: Deadline) -> Covered<'b> {
        // The linear program is far quicker, and its multipliers are often proof enough.
        let (linear, columns) = self.program(all, false);
        if let Outcome::Known { duals, .. } = linear.solve(Effort::until(deadline))
            && self.are_proof(&duals, &columns)
        {
            return Covered::Not;
        }
        let (integral, columns) = self.program(all, true);
        match integral.solve(Effort::until(deadline)) {
            Outcome::Known { bound, .. } if bound > LEFT_OUT => Covered::Not,
            Outcome::Known { columns: Some(values), .. } => {
                let chosen = columns.into_iter().map(|column| {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a number of nodes"
                    )]
                    let num_nodes = values[column.variable.index()].round() as usize;
                    (column, num_nodes)
                });
                Covered::By(chosen.filter(|(_, num_nodes)| *num_nodes > 0).collect())
            }
            _ => Covered::Unknown,
        }
    }

    /// The covering program, with a column for each of the largest patterns.
    fn program<'b>(&self, all: &'b [Fitting], integral: bool) -> (Program, Vec<Column<'b>>) {
        let mut program = Program::default();
        let mut variable = |cost: f64, most: usize| {
            let most = most as f64;
            if integral { program.integer(cost, most) } else { program.continuous(cost, 0.0, most) }
        };
        let left_out =
            self.groups.tasks.iter().map(|tasks| vec![(variable(1.0, tasks.len()), 1.0)]);
        let mut of_groups: Vec<Vec<_>> = left_out.collect();
        let mut of_classes = vec![Vec::new(); self.classes.len()];
        let mut columns = Vec::new();
        for (class, (nodes, fitting)) in self.classes.iter().zip(all).enumerate() {
            for (pattern, fit) in fitting.iter().filter(|(_, fit)| fit.is_largest) {
                let variable = variable(0.0, nodes.len());
                of_classes[class].push((variable, 1.0));
                for (part, num) in
                    self.groups.parts.iter().zip(pattern).filter(|(_, num)| **num > 0)
                {
                    of_groups[part.group].push((variable, f64::from(*num)));
                }
                columns.push(Column { variable, class, pattern, fit });
            }
        }
        for (terms, nodes) in of_classes.iter().zip(&self.classes) {
            program.at_most(nodes.len() as f64, terms);
        }
        for (terms, tasks) in of_groups.iter().zip(&self.groups.tasks) {
            program.at_least(tasks.len() as f64, terms);
        }
        (program, columns)
    }

    /// Whether multipliers of the rows prove that tasks are left out. A task is worth its group's
    /// multiplier, at most 1. Tasks are left out if all tasks are worth more than the most that the
    /// patterns of all nodes can be worth.
    fn are_proof(&self, duals: &[f64], columns: &[Column]) -> bool {
        let worths: Vec<f64> =
            duals.iter().skip(self.classes.len()).map(|dual| dual.clamp(0.0, 1.0)).collect();
        let worth_of = |group: usize| worths.get(group).copied().unwrap_or(0.0);
        let mut most = vec![0.0_f64; self.classes.len()];
        for Column { class, pattern, .. } in columns {
            let parts = self.groups.parts.iter().zip(*pattern);
            let worth = parts.map(|(part, num)| worth_of(part.group) * f64::from(*num)).sum();
            most[*class] = most[*class].max(worth);
        }
        let groups = self.groups.tasks.iter().enumerate();
        let needed: f64 = groups.map(|(group, tasks)| tasks.len() as f64 * worth_of(group)).sum();
        let nodes = self.classes.iter().zip(&most);
        let offered: f64 = nodes.map(|(nodes, most)| nodes.len() as f64 * most).sum();
        needed > offered + LEFT_OUT
    }

    /// The plan of columns that cover all tasks; `None` if they leave tasks out.
    fn schedule(&self, chosen: &[(Column, usize)]) -> Option<Schedule> {
        let model = self.model;
        let mut tasks: Vec<_> = self.groups.tasks.iter().map(|one| one.iter().copied()).collect();
        let mut nodes: Vec<_> = self.classes.iter().map(|nodes| nodes.iter().copied()).collect();
        let mut schedule = Schedule::with_capacity(model.tasks.len());
        for (Column { class, pattern, fit, .. }, num_nodes) in chosen {
            for node in nodes[*class].by_ref().take(*num_nodes) {
                let parts = self.groups.parts.iter().zip(*pattern);
                for (part, _) in parts.filter(|(part, num)| part.stays && **num > 0) {
                    let Some(task) = tasks[part.group].next() else { continue };
                    schedule.push(Step::staying(task, model.tasks[task].stay.as_ref()?));
                }
                let kind = model.nodes[node].kind;
                for (group, mode) in &fit.order {
                    let Some(task) = tasks[*group].next() else { continue };
                    let mode = model.tasks[task].modes[kind][*mode];
                    schedule.push(Step::on_node(task, mode.strategy, node, mode.gpus));
                }
            }
        }
        (schedule.len() == model.tasks.len()).then_some(schedule)
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
    fn covers_give_the_verdicts_of_dealing() {
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
            // The patterns of other limits must not change the verdict.
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
