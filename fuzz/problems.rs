//! Makes a small problem with any facts out of any bytes; each byte decides one thing. A fuzzer rarely
//! makes up text that reads as a problem.

use saturn_core::{Candidate, Cluster, HeldDevices, Node, Owner, Problem, ProblemTask, Running};

/// The bytes that are left; zeros when there are no more.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        u32::from(self.0.next().copied().unwrap_or(0)) % bound
    }

    /// A third of the time.
    fn sometimes(&mut self) -> bool {
        self.below(3) == 1
    }

    /// Seconds: mostly small whole numbers, so that many times are equal.
    fn seconds(&mut self) -> f64 {
        let whole = f64::from(self.below(16));
        match self.below(16) {
            0 => whole * 1e-6,
            1 => whole + 1e-9,
            2 => whole * 1e7,
            3 => whole / 3.0,
            _ => whole,
        }
    }
}

/// The problem of some bytes. It is valid for most of them.
pub(crate) fn of(bytes: &[u8]) -> Problem {
    let mut bytes = Bytes(bytes.iter());
    let (num_nodes, num_tasks) = (1 + bytes.below(3), 1 + bytes.below(6));
    let nodes = (0..num_nodes).map(|index| node(&mut bytes, index)).collect();
    let mut problem = Problem::new(Cluster { nodes }, Vec::new());
    if bytes.below(6) == 1 {
        problem.deadline_s = Some(1.0 + bytes.seconds() * 4.0);
    }
    let mut held = vec![0; problem.cluster.nodes.len()];
    for index in 0..num_tasks {
        let mut task = task(&mut bytes, index, num_nodes);
        if bytes.sometimes() {
            run(&mut bytes, &problem.cluster.nodes, &mut held, &mut task);
        }
        problem.tasks.push(task);
    }
    if bytes.sometimes() {
        problem.owners = vec![Owner { name: "o".to_owned(), max_gpus: 1 + width(&mut bytes) }];
        for task in &mut problem.tasks {
            task.owner = bytes.sometimes().then(|| "o".to_owned());
        }
    }
    problem
}

fn node(bytes: &mut Bytes, index: u32) -> Node {
    let mut node =
        Node::new(format!("n{index}"), 1 + bytes.below(8), format!("k{}", bytes.below(2)));
    if bytes.sometimes() {
        node.price_per_hour = bytes.seconds() * 3600.0;
    }
    if bytes.sometimes() {
        node.available_from_s = bytes.seconds();
    }
    if bytes.sometimes() {
        node.available_until_s = Some(node.available_from_s + 1.0 + bytes.seconds() * 4.0);
    }
    if bytes.sometimes() {
        node.host_memory_bytes = Some(u64::from(bytes.below(12)));
    }
    node
}

/// A number of devices less one, mostly a small number.
fn width(bytes: &mut Bytes) -> u32 {
    let most = if bytes.below(4) == 0 { 16 } else { 4 };
    bytes.below(most)
}

fn task(bytes: &mut Bytes, index: u32, num_nodes: u32) -> ProblemTask {
    let strategies = (0..=bytes.below(3)).map(|strategy| Candidate {
        technique: format!("x{strategy}").into(),
        gpus: 1 + width(bytes),
        gpu_type: bytes.sometimes().then(|| format!("k{}", bytes.below(2)).into()),
        runtime_s: bytes.seconds().max(1e-6),
        pack: bytes.sometimes(),
        host_bytes: u64::from(bytes.below(6)),
        relative_error: 0.0,
    });
    let mut task = ProblemTask::new(format!("t{index}"), strategies.collect());
    if bytes.sometimes() {
        task.switch_cost_s = Some(bytes.seconds());
    }
    if bytes.sometimes() {
        task.release_s = bytes.seconds();
    }
    if bytes.sometimes() {
        task.weight = 0.5 + f64::from(bytes.below(9));
    }
    if bytes.sometimes() {
        task.deadline_s = Some(task.release_s + 1.0 + bytes.seconds() * 4.0);
    }
    if bytes.sometimes() && num_nodes > 1 {
        let named = vec![format!("n{}", bytes.below(num_nodes))];
        if bytes.sometimes() { task.only_nodes = Some(named) } else { task.not_nodes = named }
    }
    if bytes.sometimes() && index > 0 {
        task.after = vec![format!("t{}", bytes.below(index))];
    }
    task
}

/// Has a task run on devices that are free, if a node has them for its first strategy.
fn run(bytes: &mut Bytes, nodes: &[Node], held: &mut [u32], task: &mut ProblemTask) {
    let strategy = &task.strategies[0];
    let fits = |index: &usize| {
        let node = &nodes[*index];
        node.available_from_s == 0.0
            && strategy.gpu_type.as_deref().is_none_or(|kind| *kind == *node.gpu_type)
            && held[*index] + strategy.gpus <= node.gpus
    };
    let Some(home) = (0..nodes.len()).find(fits) else { return };
    let first = held[home];
    held[home] += strategy.gpus;
    task.running = Some(Running {
        technique: strategy.technique.to_string(),
        gpus: strategy.gpus,
        gpu_type: strategy.gpu_type.as_deref().map(str::to_owned),
        placement: vec![HeldDevices {
            node: nodes[home].name.clone(),
            devices: (first..held[home]).collect(),
        }],
        movable: !bytes.sometimes(),
    });
    task.release_s = 0.0;
    task.after.clear();
    task.switch_cost_s = Some(bytes.seconds());
}
