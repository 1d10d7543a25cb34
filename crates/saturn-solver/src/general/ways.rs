//! The ways of a task that bounds look at: no more of them than bounds have time for.
//!
//! A way that another way can stand for is left out: the other holds no more devices of the same
//! kind for no longer, in a window that is no shorter, at no higher price. If the windows of many
//! nodes differ, none of their ways can stand for another. Then the ways of a mode are merged, those
//! with the nearest windows first. A merged way may be used whenever one of its ways may, at the
//! least of their prices. So it allows more, and bounds stay bounds. Where tasks and nodes are many,
//! they are merged once for all tasks ([`shared`](crate::general::shared)).

use crate::general::instance::{Instance, Way};

/// Ways of a task, at most, and roughly of all tasks together; but each task has so many at least.
const MOST: usize = 256;
const MOST_IN_ALL: usize = 1_000_000;
const FEWEST: usize = 16;

/// How many ways each of `num_tasks` tasks may have.
pub(super) fn most_of(num_tasks: usize) -> usize {
    (MOST_IN_ALL / num_tasks.max(1)).clamp(FEWEST, MOST)
}

/// The ways of a task: about `most`, or one for each of its modes if these are more.
pub(super) fn ways(instance: &Instance, task: usize, most: usize) -> Vec<Way> {
    let mut kept: Vec<Way> = Vec::new();
    if instance.has_relaxed_ways() {
        let task_modes = &instance.model.tasks[task];
        let num_modes =
            task_modes.wide.len() + task_modes.modes.iter().map(Vec::len).sum::<usize>();
        let (parts, head) = (most / num_modes.max(1), instance.tasks[task].head);
        instance.each_way_in(task, parts, |way| {
            keep(&mut kept, Way { from: way.from.max(head), ..way });
        });
        return kept;
    }
    each_way(instance, task, |way| {
        if kept.len() <= most {
            keep(&mut kept, way);
        }
    });
    if kept.len() > most { merged(instance, task, most) } else { kept }
}

/// Tells `visit` every way, none of which starts before the task can.
fn each_way(instance: &Instance, task: usize, mut visit: impl FnMut(Way)) {
    let head = instance.tasks[task].head;
    instance.each_way(task, |way| visit(Way { from: way.from.max(head), ..way }));
}

/// Takes a way in, if no other can stand for it.
fn keep(kept: &mut Vec<Way>, way: Way) {
    if !kept.iter().any(|other| stands_for(other, &way)) {
        kept.push(way);
    }
}

fn stands_for(other: &Way, way: &Way) -> bool {
    other.kind == way.kind
        && other.held <= way.held
        && other.runtime <= way.runtime
        && other.from <= way.from
        && other.until >= way.until
        && other.share <= way.share
        && other.alone <= way.alone
}

/// The ways of each mode, by their windows, in so many parts that there are about `most` in all.
fn merged(instance: &Instance, task: usize, most: usize) -> Vec<Way> {
    let mut all: Vec<Way> = Vec::new();
    each_way(instance, task, |way| all.push(way));
    all.sort_by(|left, right| {
        let shape = (left.kind, left.held).cmp(&(right.kind, right.held));
        let windows = || left.from.total_cmp(&right.from).then(left.until.total_cmp(&right.until));
        shape.then(left.runtime.total_cmp(&right.runtime)).then_with(windows)
    });
    let is_same_mode = |left: &Way, right: &Way| {
        (left.kind, left.held, left.runtime) == (right.kind, right.held, right.runtime)
    };
    let num_modes = all.chunk_by(is_same_mode).count();
    let parts = (most / num_modes.max(1)).max(1);
    let mut kept = Vec::with_capacity(num_modes * parts);
    for mode in all.chunk_by(is_same_mode) {
        for part in mode.chunks(mode.len().div_ceil(parts)) {
            let way = part.iter().copied().reduce(|one, other| Way {
                from: one.from.min(other.from),
                until: one.until.max(other.until),
                share: one.share.min(other.share),
                alone: one.alone.min(other.alone),
                ..one
            });
            if let Some(way) = way {
                keep(&mut kept, way);
            }
        }
    }
    kept
}

#[cfg(test)]
pub(super) mod tests {
    use saturn_core::{Candidate, Cluster, Node, Objective, Problem, ProblemTask};

    use super::*;
    use crate::problem::model::Model;

    /// A task of four modes on nodes each of which comes and goes a little after the node before.
    pub(crate) fn staggered(num_nodes: u32) -> Problem {
        let nodes = (0..num_nodes).map(|index| Node {
            price_per_hour: 1.0 + f64::from(index % 7),
            available_from_s: 10.0 * f64::from(index),
            available_until_s: Some(10.0 * f64::from(index) + 20_000.0),
            ..Node::new(format!("n{index}"), 8, "gpu")
        });
        let candidates = [1, 2, 4, 8].map(|gpus| Candidate {
            technique: "ddp".into(),
            gpus,
            gpu_type: None,
            runtime_s: 900.0 / f64::from(gpus) + 100.0,
            pack: false,
            host_bytes: 0,
            relative_error: 0.0,
        });
        let mut task = ProblemTask::new("t", candidates.to_vec());
        task.release_s = 25.0;
        Problem::new(Cluster { nodes: nodes.collect() }, vec![task])
    }

    /// The ways of the task, and whether every way that it has is allowed by one of them.
    fn found(num_nodes: u32, most: usize) -> (usize, bool) {
        let problem = staggered(num_nodes);
        let model = Model::new(&problem);
        let instance = Instance::new(&problem, &model, Objective::Makespan, &[1.0]);
        let ways = ways(&instance, 0, most);
        let mut are_allowed = true;
        each_way(&instance, 0, |way| {
            are_allowed &= ways.iter().any(|other| stands_for(other, &way));
        });
        (ways.len(), are_allowed)
    }

    #[test]
    fn few_windows_are_all_kept() {
        // The first three nodes are there when the task is released.
        let (num_ways, are_allowed) = found(20, MOST);
        assert!(are_allowed && num_ways > 4 * 17, "{num_ways}");
    }

    #[test]
    fn many_windows_are_merged_into_ways_that_allow_as_much() {
        for num_nodes in [65, 100, 600] {
            let (num_ways, are_allowed) = found(num_nodes, MOST);
            assert!(
                are_allowed && (MOST / 2..=MOST).contains(&num_ways),
                "{num_nodes}: {num_ways}"
            );
        }
    }

    #[test]
    fn without_time_each_mode_is_one_way() {
        assert_eq!(found(600, 0), (4, true));
    }

    #[test]
    fn many_tasks_on_many_nodes_share_the_windows() {
        let mut problem = staggered(1_000);
        let named =
            |task: usize| ProblemTask { name: format!("t{task}"), ..problem.tasks[0].clone() };
        problem.tasks = (0..1_000).map(named).collect();
        let model = Model::new(&problem);
        let instance = Instance::new(&problem, &model, Objective::Makespan, &[1.0]);
        let mut num_ways = 0;
        instance.each_way(7, |_| num_ways += 1);
        assert_eq!(num_ways, 4, "one for each mode, not one for each node");
        for most in [0, 64, MOST] {
            let ways = ways(&instance, 7, most);
            assert!((most / 2..=most.max(4)).contains(&ways.len()), "{most}: {}", ways.len());
            for node in &problem.cluster.nodes {
                for mode in model.modes_on(7, 0) {
                    let share = node.price_per_hour / 3600.0 / 8.0 * f64::from(mode.gpus);
                    let way = Way {
                        kind: 0,
                        held: mode.gpus,
                        runtime: mode.runtime,
                        from: node.available_from_s.max(25.0),
                        until: node.until_s(),
                        share: share * (1.0 + 1e-12),
                        alone: node.price_per_hour / 3600.0,
                    };
                    assert!(ways.iter().any(|other| stands_for(other, &way)), "{way:?}");
                }
            }
        }
    }
}
