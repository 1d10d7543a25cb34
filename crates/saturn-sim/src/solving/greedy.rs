//! A plan that costs next to nothing, for runs that don't measure solving.
//!
//! Running tasks stay as they run. Every other task, in the order given, runs under its strategy of
//! least devices times seconds, on the node that has the devices for it first. A gang that is wider
//! than every node takes the whole nodes that are free first.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Assignment, Gang, Placement, Plan, PlanStatus, Problem, ProblemTask, WHOLE};
use saturn_engine::SolveOrder;

/// When the devices of one node are free, and in what order.
struct Nodes {
    free_at: Vec<Vec<f64>>,
    /// For each width: when each node has that many devices free.
    ready: BTreeMap<(String, u32), BTreeSet<(u64, usize)>>,
    types: Vec<String>,
    /// Devices of the widest node of each type.
    widths: BTreeMap<String, u32>,
}

/// The plan; tasks that no node can hold have no place in it.
pub(crate) fn greedy(order: &SolveOrder) -> Plan {
    let problem = &order.problem;
    let mut nodes = Nodes::new(problem);
    let mut assignments = Vec::with_capacity(problem.tasks.len());
    let by_name: BTreeMap<&str, usize> = problem
        .cluster
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (node.name.as_str(), index))
        .collect();
    let (running, waiting): (Vec<_>, Vec<_>) =
        problem.tasks.iter().enumerate().partition(|(_, task)| task.running.is_some());
    for (task, spec) in running {
        assignments.extend(stay(&mut nodes, &by_name, task, spec));
    }
    for (task, spec) in waiting {
        assignments.extend(place(&mut nodes, task, spec));
    }
    assignments.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let plan = Plan::of(problem, order.objective, assignments);
    Plan { status: PlanStatus::Feasible, ..plan }
}

fn stay(
    nodes: &mut Nodes,
    by_name: &BTreeMap<&str, usize>,
    task: usize,
    spec: &ProblemTask,
) -> Option<Assignment> {
    let running = spec.running.as_ref()?;
    let strategy = spec.strategies.iter().position(|one| {
        *one.technique == *running.technique
            && one.gpus == running.gpus
            && one.gpu_type.as_deref() == running.gpu_type.as_deref()
    })?;
    let end_s = spec.strategies[strategy].runtime_s;
    let held = running.placement.iter().map(|held| {
        Some(Placement { node: *by_name.get(held.node.as_str())?, devices: held.devices.clone() })
    });
    let gang: Gang = held.collect::<Option<_>>()?;
    for part in &gang {
        nodes.hold(part.node, &part.devices, end_s);
    }
    Some(Assignment { task, strategy, gang, share: WHOLE, start_s: 0.0, end_s })
}

fn place(nodes: &mut Nodes, task: usize, spec: &ProblemTask) -> Option<Assignment> {
    let (strategy, one) = spec
        .strategies
        .iter()
        .enumerate()
        .filter(|(_, one)| nodes.first(one.gpu_type.as_deref(), one.gpus).is_some())
        .min_by(|(_, a), (_, b)| {
            let area = |one: &saturn_core::Candidate| one.runtime_s * f64::from(one.gpus);
            area(a).total_cmp(&area(b))
        })?;
    let (free_s, first) = nodes.first(one.gpu_type.as_deref(), one.gpus)?;
    if first.len() > 1 {
        let start_s = free_s.max(spec.release_s);
        let end_s = start_s + one.runtime_s;
        let whole = first.into_iter().map(|node| {
            let devices: Vec<u32> = (0..).take(nodes.free_at[node].len()).collect();
            nodes.hold(node, &devices, end_s);
            Placement { node, devices }
        });
        let gang = whole.collect();
        return Some(Assignment { task, strategy, gang, share: WHOLE, start_s, end_s });
    }
    let node = *first.first()?;
    let mut devices: Vec<u32> = (0..).take(nodes.free_at[node].len()).collect();
    devices.sort_by(|a, b| {
        nodes.free_at[node][*a as usize].total_cmp(&nodes.free_at[node][*b as usize])
    });
    devices.truncate(one.gpus as usize);
    devices.sort_unstable();
    let start_s = free_s.max(spec.release_s);
    let end_s = start_s + one.runtime_s;
    nodes.hold(node, &devices, end_s);
    let gang = vec![Placement { node, devices }];
    Some(Assignment { task, strategy, gang, share: WHOLE, start_s, end_s })
}

impl Nodes {
    fn new(problem: &Problem) -> Self {
        let nodes = &problem.cluster.nodes;
        let mut all = Self {
            free_at: nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect(),
            ready: BTreeMap::new(),
            types: nodes.iter().map(|node| node.gpu_type.clone()).collect(),
            widths: BTreeMap::new(),
        };
        for (index, node) in nodes.iter().enumerate() {
            let width = all.widths.entry(node.gpu_type.clone()).or_default();
            *width = node.gpus.max(*width);
            for gpus in 1..=node.gpus {
                let ready = all.ready.entry((node.gpu_type.clone(), gpus)).or_default();
                ready.insert((0, index));
            }
        }
        all
    }

    /// When a gang's devices are free, and on which nodes: one, or whole nodes of one size.
    fn first(&self, gpu_type: Option<&str>, gpus: u32) -> Option<(f64, Vec<usize>)> {
        let gpu_type = gpu_type.unwrap_or_default().to_owned();
        if let Some(ready) = self.ready.get(&(gpu_type.clone(), gpus)) {
            let (at, node) = ready.first()?;
            return Some((f64::from_bits(*at), vec![*node]));
        }
        let width =
            self.widths.get(&gpu_type).copied().filter(|width| gpus.is_multiple_of(*width))?;
        let ready = self.ready.get(&(gpu_type, width))?;
        let num_nodes = (gpus / width) as usize;
        let (at, _) = ready.iter().nth(num_nodes - 1)?;
        let nodes = ready.iter().take(num_nodes).map(|(_, node)| *node);
        Some((f64::from_bits(*at), nodes.collect()))
    }

    fn hold(&mut self, node: usize, devices: &[u32], until_s: f64) {
        let before = sorted(&self.free_at[node]);
        for device in devices {
            if let Some(free_s) = self.free_at[node].get_mut(*device as usize) {
                *free_s = until_s;
            }
        }
        let after = sorted(&self.free_at[node]);
        for (gpus, (before, after)) in (1..).zip(before.into_iter().zip(after)) {
            if let Some(ready) = self.ready.get_mut(&(self.types[node].clone(), gpus)) {
                ready.remove(&(before.to_bits(), node));
                ready.insert((after.to_bits(), node));
            }
        }
    }
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times
}
