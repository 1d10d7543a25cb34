//! Random problems of any size with any facts.

use saturn_core::{Candidate, Cluster, HeldDevices, Node, Problem, ProblemTask, Running};

use crate::random::Random;

/// If a problem has a fact, the share of its tasks or nodes that have it.
const SHARE: f64 = 0.33;

/// Which facts a problem has.
#[expect(clippy::struct_excessive_bools, reason = "each fact is there or not")]
struct Facts {
    releases: bool,
    order: bool,
    weights: bool,
    deadlines: bool,
    windows: bool,
    places: bool,
    prices: bool,
    running: bool,
    wide: bool,
}

impl Facts {
    /// A third of the problems have no facts. The others have each fact with an even chance, except
    /// wide gangs.
    fn draw(random: &mut Random) -> Self {
        let is_plain = random.unit() < 0.33;
        let mut has = |chance: f64| random.unit() < chance && !is_plain;
        Self {
            releases: has(0.5),
            order: has(0.5),
            weights: has(0.5),
            deadlines: has(0.5),
            windows: has(0.5),
            places: has(0.5),
            prices: has(0.5),
            running: has(0.5),
            wide: has(0.25),
        }
    }
}

/// A whole number below `bound`.
pub(crate) fn below(random: &mut Random, bound: usize) -> usize {
    let number = random.unit() * bound as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the bound")]
    let number = number as usize;
    number.min(bound - 1)
}

/// A problem of so many tasks.
pub(crate) fn problem(random: &mut Random, num_tasks: usize) -> Problem {
    let facts = Facts::draw(random);
    let num_kinds = 1 + below(random, 3);
    let num_nodes = (num_tasks / (1 + below(random, 12))).max(1);
    let sizes = [1, 2, 4, 8];
    let widest_size = if random.unit() < 0.5 { 8 } else { sizes[below(random, 4)] };
    let mut nodes: Vec<Node> = (0..num_nodes)
        .map(|node| {
            let gpus = if random.unit() < 0.8 { widest_size } else { sizes[below(random, 4)] };
            Node::new(format!("n{node}"), gpus, format!("k{}", below(random, num_kinds)))
        })
        .collect();
    let mut tasks: Vec<ProblemTask> =
        (0..num_tasks).map(|task| self::task(random, task, num_kinds, facts.wide)).collect();
    let num_gpus: u32 = nodes.iter().map(|node| node.gpus).sum();
    let work: f64 = tasks.iter().map(|task| work(&task.strategies[0])).sum();
    // About when all work is done.
    let end = work / f64::from(num_gpus);
    for node in &mut nodes {
        node.price_per_hour = if facts.prices { random.unit() * 30.0 } else { 0.0 };
        if facts.windows && random.unit() < SHARE {
            node.available_from_s = random.unit() * end;
            let stays = end * (1.0 + 3.0 * random.unit());
            node.available_until_s = (random.unit() < 0.5).then_some(node.available_from_s + stays);
        }
    }
    for (index, task) in tasks.iter_mut().enumerate() {
        let (weight, release) = (1.0 + 3.0 * random.unit(), random.unit() * end);
        let (slack, node) = (end * (1.5 + 3.0 * random.unit()), below(random, num_nodes));
        let before = below(random, index.max(1));
        let mut has = |is_fact: bool| is_fact && random.unit() < SHARE;
        task.weight = if has(facts.weights) { weight } else { 1.0 };
        task.release_s = if has(facts.releases) { release } else { 0.0 };
        task.deadline_s = has(facts.deadlines).then_some(task.release_s + slack);
        if has(facts.places) && num_nodes > 1 {
            task.not_nodes = vec![format!("n{node}")];
        }
        if has(facts.order) && index > 0 {
            task.after = vec![format!("t{before}")];
        }
    }
    let mut problem = Problem::new(Cluster { nodes }, tasks);
    for (task, _) in problem.unplaceable() {
        let fallback = Candidate {
            technique: "narrow".into(),
            gpus: 1,
            gpu_type: None,
            runtime_s: 100.0,
            pack: false,
            host_bytes: 0,
            relative_error: 0.0,
        };
        problem.tasks[task].not_nodes.clear();
        problem.tasks[task].strategies.push(fallback);
    }
    if facts.running {
        run_some(random, &mut problem);
    }
    problem
}

fn work(one: &Candidate) -> f64 {
    f64::from(one.gpus) * one.runtime_s
}

fn task(random: &mut Random, index: usize, num_kinds: usize, may_be_wide: bool) -> ProblemTask {
    let (work, serial) = (100.0 * 30f64.powf(random.unit()), 0.02 + 0.2 * random.unit());
    let widest = if may_be_wide && random.unit() < 0.1 { 16 } else { 8 };
    let is_typed = num_kinds > 1 && random.unit() < 0.7;
    let mut strategies = Vec::new();
    for kind in 0..if is_typed { num_kinds } else { 1 } {
        let speed = 0.5 + random.unit();
        for gpus in [1u32, 2, 3, 4, 6, 8, 12, 16].into_iter().filter(|gpus| *gpus <= widest) {
            if random.unit() < 0.3 && gpus > 1 {
                continue;
            }
            strategies.push(Candidate {
                technique: if gpus < 3 { "ddp".into() } else { "fsdp".into() },
                gpus,
                gpu_type: is_typed.then(|| format!("k{kind}").into()),
                runtime_s: work * speed * (serial + (1.0 - serial) / f64::from(gpus)),
                pack: gpus > 8 && random.unit() < 0.5,
                host_bytes: 0,
                relative_error: 0.0,
            });
        }
    }
    let switch_cost_s = (random.unit() < 0.7).then(|| 60.0 * random.unit());
    ProblemTask { switch_cost_s, ..ProblemTask::new(format!("t{index}"), strategies) }
}

/// Makes a third of the tasks running tasks, as far as a node has free devices for a strategy.
fn run_some(random: &mut Random, problem: &mut Problem) {
    let mut node = 0;
    let mut held = 0;
    for task in &mut problem.tasks {
        if random.unit() >= SHARE || task.strategies[0].gpus > 8 {
            continue;
        }
        let strategy = &task.strategies[0];
        let fits = |node: &Node, held: u32| {
            node.available_from_s == 0.0
                && strategy.gpu_type.as_deref().is_none_or(|kind| *kind == *node.gpu_type)
                && held + strategy.gpus <= node.gpus
        };
        let nodes = &problem.cluster.nodes;
        while node < nodes.len() && !fits(&nodes[node], held) {
            (node, held) = (node + 1, 0);
        }
        let Some(home) = nodes.get(node) else { return };
        task.running = Some(Running {
            technique: strategy.technique.to_string(),
            gpus: strategy.gpus,
            gpu_type: strategy.gpu_type.as_deref().map(str::to_owned),
            placement: vec![HeldDevices {
                node: home.name.clone(),
                devices: (held..held + strategy.gpus).collect(),
            }],
            movable: random.unit() < 0.8,
        });
        held += strategy.gpus;
        (task.release_s, task.switch_cost_s) = (0.0, Some(60.0));
        task.after.clear();
    }
}
