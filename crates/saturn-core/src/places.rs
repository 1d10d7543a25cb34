//! Which nodes a task may use.

use std::collections::BTreeMap;

use crate::problem::{Cluster, ProblemTask};

impl Cluster {
    /// The index of each node by its name. Many names are looked up in this, since a search through
    /// all nodes for each name takes seconds with a thousand nodes and tasks.
    pub fn node_indices(&self) -> BTreeMap<&str, usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes.map(|(index, node)| (node.name.as_str(), index)).collect()
    }
}

impl ProblemTask {
    /// Whether it may use each of `num_nodes` nodes, by index; `None` if it may use all. `indices`
    /// is the answer of [`Cluster::node_indices`].
    pub fn places(&self, indices: &BTreeMap<&str, usize>, num_nodes: usize) -> Option<Vec<bool>> {
        if self.only_nodes.is_none() && self.not_nodes.is_empty() {
            return None;
        }
        let mut places = vec![self.only_nodes.is_none(); num_nodes];
        let mut set = |names: &[String], may: bool| {
            for node in names.iter().filter_map(|name| indices.get(name.as_str())) {
                places[*node] = may;
            }
        };
        set(self.only_nodes.as_deref().unwrap_or_default(), true);
        set(&self.not_nodes, false);
        Some(places)
    }

    /// Whether it may use the node with this name. Every name that the task lists is compared: ask
    /// [`places`](Self::places) about many nodes.
    pub fn may_use(&self, node: &str) -> bool {
        let has = |names: &[String]| names.iter().any(|name| is_same(name, node));
        self.only_nodes.as_deref().is_none_or(has) && !has(&self.not_nodes)
    }
}

/// Whether two names are the same.
pub(crate) fn is_same(name: &str, other: &str) -> bool {
    #[cfg(test)]
    tests::NUM_COMPARED.set(tests::NUM_COMPARED.get() + 1);
    name == other
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::problem::{Candidate, Node, Problem};

    thread_local! {
        /// Names compared one by one in this test.
        pub(super) static NUM_COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// Each of 60 tasks lists half of 60 nodes.
    fn problem() -> Problem {
        let nodes: Vec<Node> =
            (0..60).map(|node| Node::new(format!("n{node}"), 8, "gpu")).collect();
        let half = |from: usize| -> Vec<String> {
            (0..30).map(|node| format!("n{}", (from + node) % 60)).collect()
        };
        let task = |index: usize| {
            let candidate = Candidate {
                technique: "ddp".into(),
                gpus: 8,
                gpu_type: None,
                runtime_s: 60.0,
                pack: false,
                host_bytes: 0,
                relative_error: 0.0,
            };
            let task = ProblemTask::new(format!("t{index}"), vec![candidate]);
            if index.is_multiple_of(2) {
                ProblemTask { not_nodes: half(index), ..task }
            } else {
                ProblemTask { only_nodes: Some(half(index)), ..task }
            }
        };
        Problem::new(Cluster { nodes }, (0..60).map(task).collect())
    }

    #[test]
    fn places_are_the_nodes_that_a_task_may_use() {
        let mut problem = problem();
        problem.tasks[1].not_nodes = vec!["n1".to_owned(), "n50".to_owned()];
        problem.tasks[2].not_nodes.clear();
        let indices = problem.cluster.node_indices();
        for task in &problem.tasks {
            let places = task.places(&indices, 60).unwrap_or_else(|| vec![true; 60]);
            for (node, may) in problem.cluster.nodes.iter().zip(places) {
                assert_eq!(may, task.may_use(&node.name), "{} {}", task.name, node.name);
            }
        }
        assert_eq!(problem.tasks[2].places(&indices, 60), None);
    }

    /// A comparison of each of 1,800 listed names with each of 60 nodes would be 108,000.
    #[test]
    fn listed_names_are_not_compared_with_every_node() {
        let problem = problem();
        NUM_COMPARED.set(0);
        problem.validate().expect("a valid problem");
        assert!(problem.unplaceable().is_empty());
        assert_eq!(NUM_COMPARED.get(), 0);
    }
}
