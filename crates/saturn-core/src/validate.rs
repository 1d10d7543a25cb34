//! Checks what the types of a problem do not express: ranges, names, and facts that contradict each
//! other.

use std::collections::BTreeMap;

use crate::checker::gang_fault;
use crate::error::ProblemError;
use crate::number;
use crate::problem::{Candidate, Problem, ProblemTask, Running};

type Checked = Result<(), ProblemError>;

impl Problem {
    /// Checks the invariants of [`crate::problem`].
    pub fn validate(&self) -> Checked {
        self.validate_cluster()?;
        if self.tasks.is_empty() {
            return Err(empty("tasks", "a list of at least one task"));
        }
        if let Some(deadline_s) = self.deadline_s {
            number::check_runtime(|| "deadline_s".to_owned(), deadline_s)?;
        }
        let nodes = self.cluster.node_indices();
        let owners = self.validate_owners()?;
        let mut names = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            unique(&mut names, &task.name, || format!("tasks[{index}].name"))?;
            if let Some(name) = task.owner.as_ref().filter(|name| !owners.contains_key(&***name)) {
                return Err(ProblemError::UnknownName {
                    at: format!("tasks[{index}].owner"),
                    name: name.clone(),
                    expected: "an owner in `owners`",
                });
            }
            validate_strategies(index, &task.strategies)?;
            validate_times(index, task)?;
            validate_places(index, task, &nodes)?;
        }
        self.validate_order()?;
        self.validate_running(&nodes)
    }

    fn validate_cluster(&self) -> Checked {
        let nodes = &self.cluster.nodes;
        if nodes.is_empty() {
            return Err(empty("cluster.nodes", "a list of at least one node"));
        }
        let mut names = BTreeMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let at = |field: &str| format!("cluster.nodes[{index}].{field}");
            unique(&mut names, &node.name, || at("name"))?;
            number::check_gpus(|| at("gpus"), node.gpus)?;
            number::check_price(|| at("price_per_hour"), node.price_per_hour)?;
            number::check_cost(|| at("available_from_s"), node.available_from_s)?;
            if let Some(bytes) = node.host_memory_bytes {
                number::check_bytes(|| at("host_memory_bytes"), bytes)?;
            }
            if let Some(until_s) = node.available_until_s {
                number::check_runtime(|| at("available_until_s"), until_s)?;
                if until_s <= node.available_from_s {
                    let reason = format!(
                        "the node leaves at {until_s} s, but arrives at {} s: expected it to leave later",
                        node.available_from_s
                    );
                    return Err(contradiction(at("available_until_s"), reason));
                }
            }
        }
        let total: u64 = nodes.iter().map(|node| u64::from(node.gpus)).sum();
        if total > number::MAX_CLUSTER_GPUS {
            return Err(ProblemError::Value {
                at: "cluster.nodes".to_owned(),
                found: format!("{total} GPUs in all"),
                expected: "at most 10000000 GPUs in all",
            });
        }
        Ok(())
    }

    /// The names of the owners, with the places where they stand.
    fn validate_owners(&self) -> Result<BTreeMap<&str, String>, ProblemError> {
        let mut names = BTreeMap::new();
        for (index, owner) in self.owners.iter().enumerate() {
            unique(&mut names, &owner.name, || format!("owners[{index}].name"))?;
            number::check_gpus(|| format!("owners[{index}].max_gpus"), owner.max_gpus)?;
        }
        Ok(names)
    }

    /// Refuses unknown names in `after`, and cycles of tasks that would have to end before they
    /// start.
    fn validate_order(&self) -> Checked {
        let by_name: BTreeMap<&str, usize> = self
            .tasks
            .iter()
            .enumerate()
            .map(|(index, task)| (task.name.as_str(), index))
            .collect();
        let mut before: Vec<Vec<usize>> = Vec::with_capacity(self.tasks.len());
        for (index, task) in self.tasks.iter().enumerate() {
            let mut first = Vec::with_capacity(task.after.len());
            for (position, name) in task.after.iter().enumerate() {
                let Some(&other) = by_name.get(name.as_str()) else {
                    let at = format!("tasks[{index}].after[{position}]");
                    let expected = "a task of the file";
                    return Err(ProblemError::UnknownName { at, name: name.clone(), expected });
                };
                first.push(other);
            }
            before.push(first);
        }
        match find_cycle(&before) {
            None => Ok(()),
            Some(cycle) => {
                let names: Vec<String> =
                    cycle.iter().map(|task| format!("`{}`", self.tasks[*task].name)).collect();
                let reason = format!("{}: a task can't come after itself", names.join(" after "));
                Err(contradiction(format!("tasks[{}].after", cycle[0]), reason))
            }
        }
    }

    fn validate_running(&self, nodes: &BTreeMap<&str, usize>) -> Checked {
        let mut holders: BTreeMap<(usize, u32), &str> = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let Some(running) = &task.running else { continue };
            let at = || format!("tasks[{index}].running");
            self.validate_running_task(index, task, running, nodes)?;
            for part in self.running_gang(task).unwrap_or_default() {
                for device in part.devices {
                    if let Some(other) = holders.insert((part.node, device), &task.name) {
                        let node = &self.cluster.nodes[part.node].name;
                        let reason = format!(
                            "the task holds device {device} of node `{node}`, which `{other}` \
                             holds already"
                        );
                        return Err(contradiction(at(), reason));
                    }
                }
            }
        }
        Ok(())
    }

    fn validate_running_task(
        &self,
        index: usize,
        task: &ProblemTask,
        running: &Running,
        nodes: &BTreeMap<&str, usize>,
    ) -> Checked {
        let at = || format!("tasks[{index}].running");
        let refuse = |reason: &str| Err(contradiction(at(), reason.to_owned()));
        let Some(strategy) = task.running_strategy() else {
            let of = running.gpu_type.as_ref().map(|kind| format!(" of type `{kind}`"));
            return refuse(&format!(
                "the task runs under `{}` on {} GPUs{}: expected one of the task's strategies",
                running.technique,
                running.gpus,
                of.unwrap_or_default()
            ));
        };
        for (position, held) in running.placement.iter().enumerate() {
            let node = nodes.get(held.node.as_str()).map(|node| &self.cluster.nodes[*node]);
            let Some(node) = node else {
                return Err(ProblemError::UnknownName {
                    at: format!("{}.placement[{position}].node", at()),
                    name: held.node.clone(),
                    expected: "a node",
                });
            };
            if node.available_from_s > 0.0 {
                return refuse(&format!(
                    "the task runs on node `{}`, which arrives later: expected a node that is \
                     there from 0 s on",
                    node.name
                ));
            }
        }
        let gang = self.running_gang(task).unwrap_or_default();
        if let Err(fault) = gang_fault(self, &task.strategies[strategy], &gang) {
            return refuse(&fault);
        }
        if task.release_s > 0.0 {
            return refuse("the task is released later: expected no `release_s` of a running task");
        }
        if !task.after.is_empty() {
            return refuse("the task waits for others: expected no `after` of a running task");
        }
        if running.movable && task.switch_cost_s.is_none() {
            return refuse("a movable task needs `switch_cost_s`: what does moving it cost?");
        }
        Ok(())
    }
}

fn validate_times(index: usize, task: &ProblemTask) -> Checked {
    let at = |field: &str| format!("tasks[{index}].{field}");
    number::check_cost(|| at("release_s"), task.release_s)?;
    number::check_weight(|| at("weight"), task.weight)?;
    if let Some(deadline_s) = task.deadline_s {
        number::check_runtime(|| at("deadline_s"), deadline_s)?;
    }
    if let Some(price) = task.late_price {
        number::check_weight(|| at("late_price"), price)?;
        if task.deadline_s.is_none() {
            let reason = "a second after which time has this price? expected `deadline_s` too";
            return Err(contradiction(at("late_price"), reason.to_owned()));
        }
    }
    if let Some(most_s) = task.most_late_s {
        number::check_cost(|| at("most_late_s"), most_s)?;
        if task.late_price.is_none() {
            let reason = "only a soft deadline may be missed: expected `late_price` too";
            return Err(contradiction(at("most_late_s"), reason.to_owned()));
        }
    }
    if let Some(cost_s) = task.switch_cost_s {
        number::check_cost(|| at("switch_cost_s"), cost_s)?;
    }
    Ok(())
}

fn validate_places(index: usize, task: &ProblemTask, nodes: &BTreeMap<&str, usize>) -> Checked {
    let at = |field: &str| format!("tasks[{index}].{field}");
    if task.only_nodes.as_ref().is_some_and(Vec::is_empty) {
        return Err(empty(&at("only_nodes"), "a list of at least one node's name"));
    }
    let only = task.only_nodes.iter().flatten().enumerate().map(|one| ("only_nodes", one));
    let not = task.not_nodes.iter().enumerate().map(|one| ("not_nodes", one));
    for (field, (position, name)) in only.chain(not) {
        if !nodes.contains_key(name.as_str()) {
            return Err(ProblemError::UnknownName {
                at: format!("tasks[{index}].{field}[{position}]"),
                name: name.clone(),
                expected: "a node",
            });
        }
    }
    Ok(())
}

fn validate_strategies(index: usize, strategies: &[Candidate]) -> Checked {
    if strategies.is_empty() {
        let at = format!("tasks[{index}].strategies");
        return Err(empty(&at, "a list of at least one strategy"));
    }
    for (position, strategy) in strategies.iter().enumerate() {
        let at = |field: &str| format!("tasks[{index}].strategies[{position}].{field}");
        named(&strategy.technique, || at("technique"))?;
        number::check_gpus(|| at("gpus"), strategy.gpus)?;
        number::check_runtime(|| at("runtime_s"), strategy.runtime_s)?;
        number::check_bytes(|| at("host_bytes"), strategy.host_bytes)?;
        number::check_error(|| at("relative_error"), strategy.relative_error)?;
    }
    Ok(())
}

/// A cycle: tasks that each come after the next, with the first again at the end.
fn find_cycle(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; before.len()];
    for root in 0..before.len() {
        if marks[root] != Mark::New {
            continue;
        }
        // The path from the root. Each task has the number of its edges that were followed.
        let mut path = vec![(root, 0)];
        marks[root] = Mark::Open;
        while let Some((task, followed)) = path.last_mut() {
            let Some(&next) = before[*task].get(*followed) else {
                marks[*task] = Mark::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            match marks[next] {
                Mark::Done => {}
                Mark::New => {
                    marks[next] = Mark::Open;
                    path.push((next, 0));
                }
                Mark::Open => {
                    let from = path.iter().position(|(task, _)| *task == next).unwrap_or(0);
                    let mut cycle: Vec<usize> =
                        path[from..].iter().map(|(task, _)| *task).collect();
                    cycle.push(next);
                    return Some(cycle);
                }
            }
        }
    }
    None
}

fn contradiction(at: String, reason: String) -> ProblemError {
    ProblemError::Contradiction { at, reason }
}

fn empty(at: &str, expected: &'static str) -> ProblemError {
    ProblemError::Value { at: at.to_owned(), found: "empty".to_owned(), expected }
}

/// Refuses an empty name.
pub(crate) fn named(name: &str, at: impl FnOnce() -> String) -> Checked {
    if name.is_empty() { Err(empty(&at(), "a name")) } else { Ok(()) }
}

fn unique<'a>(
    seen: &mut BTreeMap<&'a str, String>,
    name: &'a str,
    at: impl Fn() -> String,
) -> Checked {
    named(name, &at)?;
    match seen.insert(name, at()) {
        Some(first) => Err(ProblemError::DuplicateName { at: at(), name: name.to_owned(), first }),
        None => Ok(()),
    }
}
