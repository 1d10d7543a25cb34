//! Whether host memory binds: whether gangs that could run together on some node would take more of it
//! than the node has.
//!
//! Where it doesn't bind, plans are made without it, as fast as ever. The question is answered on the
//! safe side. Any tasks may run together that fit a node by their devices, whenever they start, and
//! wherever they may be placed.

use std::collections::BTreeMap;

use saturn_core::{Candidate, Problem, ProblemTask};

/// On wider nodes than this, any tasks count as able to run together, up to one for each device.
const WIDE: usize = 64;

/// Whether host memory binds in this problem.
pub(crate) fn binds(problem: &Problem) -> bool {
    let nodes = &problem.cluster.nodes;
    let takes_any = |task: &ProblemTask| task.strategies.iter().any(|one| one.host_bytes > 0);
    if nodes.iter().all(|node| node.host_memory_bytes.is_none())
        || !problem.tasks.iter().any(takes_any)
    {
        return false;
    }
    let mut widest: BTreeMap<&str, u32> = BTreeMap::new();
    for node in nodes {
        let widest = widest.entry(&node.gpu_type).or_default();
        *widest = node.gpus.max(*widest);
    }
    widest.iter().any(|(kind, widest)| {
        let most = most_together(&problem.tasks, kind, *widest);
        let limited = nodes.iter().filter(|node| node.gpu_type == **kind);
        limited.into_iter().any(|node| most[node.gpus as usize] > u128::from(node.host_memory()))
    })
}

/// The most bytes that tasks can take together on a node of one device, of two devices, and so on up to
/// the widest node of this type.
fn most_together(tasks: &[ProblemTask], kind: &str, widest: u32) -> Vec<u128> {
    let of_kind = |one: &&Candidate| one.gpu_type.as_deref().is_none_or(|wanted| wanted == kind);
    let widest = widest as usize;
    let mut most = vec![0u128; widest + 1];
    if widest > WIDE {
        let largest = |task: &ProblemTask| {
            task.strategies.iter().filter(of_kind).map(|one| u128::from(one.host_bytes)).max()
        };
        let mut largest: Vec<u128> = tasks.iter().filter_map(largest).collect();
        largest.sort_unstable_by(|left, right| right.cmp(left));
        for gpus in 0..widest {
            most[gpus + 1] = most[gpus] + largest.get(gpus).copied().unwrap_or(0);
        }
        return most;
    }
    // The knapsack problem: each task is there once at most, under one strategy.
    for task in tasks {
        let before = most.clone();
        for one in task.strategies.iter().filter(of_kind).filter(|one| one.host_bytes > 0) {
            // Of its last node, a wide gang may take a single device.
            let gpus = if one.gpus as usize > widest { 1 } else { one.gpus as usize };
            for (most, before) in most[gpus..].iter_mut().zip(&before) {
                *most = (*most).max(before + u128::from(one.host_bytes));
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use saturn_core::{Cluster, Node};

    use super::*;

    /// Tasks of (devices, bytes) on nodes of (devices, bytes).
    fn problem(tasks: &[&[(u32, u64)]], nodes: &[(u32, Option<u64>)]) -> Problem {
        let node = |(index, (gpus, host)): (usize, &(u32, Option<u64>))| Node {
            host_memory_bytes: *host,
            ..Node::new(format!("n{index}"), *gpus, "gpu")
        };
        let strategy = |(gpus, host_bytes): &(u32, u64)| Candidate {
            technique: "ddp".into(),
            gpus: *gpus,
            gpu_type: None,
            runtime_s: 1.0,
            pack: true,
            host_bytes: *host_bytes,
            relative_error: 0.0,
        };
        let task = |(index, one): (usize, &&[(u32, u64)])| {
            ProblemTask::new(format!("t{index}"), one.iter().map(strategy).collect())
        };
        Problem::new(
            Cluster { nodes: nodes.iter().enumerate().map(node).collect() },
            tasks.iter().enumerate().map(task).collect(),
        )
    }

    #[test]
    fn it_binds_where_gangs_that_fit_a_node_take_more_than_it_has() {
        let (wide, narrow) = ([(4, 100)], [(1, 10), (2, 25)]);
        let tasks = [&wide[..], &narrow, &narrow, &narrow, &narrow];
        let is_bound = |nodes: &[(u32, Option<u64>)]| binds(&problem(&tasks, nodes));
        assert!(!is_bound(&[(4, None)]));
        assert!(!is_bound(&[(4, Some(100))]), "the wide gang is alone");
        assert!(is_bound(&[(4, Some(99))]));
        assert!(is_bound(&[(4, Some(100)), (2, Some(24))]), "one narrow gang");
        assert!(!is_bound(&[(4, Some(100)), (2, Some(25))]));
        assert!(is_bound(&[(5, Some(109))]), "the wide gang and a narrow gang");
        assert!(!is_bound(&[(5, Some(110))]));
        // On the last of its nodes, the wide gang may be beside others.
        assert!(is_bound(&[(2, Some(109)), (2, Some(200))]));
        assert!(!is_bound(&[(2, Some(110)), (2, Some(110))]));
    }

    #[test]
    fn on_a_very_wide_node_any_tasks_may_meet() {
        let tasks = [[(60u32, 100u64)]; 2];
        let tasks: Vec<&[(u32, u64)]> = tasks.iter().map(<[_; 1]>::as_slice).collect();
        assert!(binds(&problem(&tasks, &[(100, Some(199))])));
        assert!(!binds(&problem(&tasks, &[(100, Some(200))])));
        assert!(!binds(&problem(&tasks, &[(64, Some(199))])), "they need 120 devices");
    }
}
