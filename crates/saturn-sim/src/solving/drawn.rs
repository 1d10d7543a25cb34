//! Plans drawn at random, without a search: strategies, places, order and switches.
//!
//! They are valid in devices and order, and poor. So the engine has something to improve, and it
//! follows more kinds of plans than a solver would give it.

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};
use saturn_core::{Assignment, Candidate, Placement, Plan, PlanStatus, WHOLE};
use saturn_engine::SolveOrder;

/// One part of a task.
#[derive(Debug, Clone, Copy)]
struct Segment {
    task: usize,
    share: f64,
    is_first: bool,
}

/// Draws a plan; `None` if some task has no place.
pub(crate) fn draw(rng: &mut impl Rng, order: &SolveOrder) -> Option<Plan> {
    let problem = &order.problem;
    let nodes = &problem.cluster.nodes;
    let mut free_at: Vec<Vec<f64>> =
        nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
    let mut end_of: Vec<f64> = vec![0.0; problem.tasks.len()];
    let mut assignments = Vec::new();
    for Segment { task, share, is_first } in segments(rng, order) {
        let spec = &problem.tasks[task];
        let fits = |one: &Candidate, node: usize| {
            one.gpu_type.as_deref().is_none_or(|kind| kind == nodes[node].gpu_type)
                && one.gpus <= nodes[node].gpus
        };
        let mut options = Vec::new();
        for (strategy, one) in spec.strategies.iter().enumerate() {
            options.extend(
                (0..nodes.len()).filter(|node| fits(one, *node)).map(|node| (strategy, node)),
            );
        }
        let (strategy, node) = *options.choose(rng)?;
        let mut devices: Vec<u32> = (0..nodes[node].gpus).collect();
        devices.sort_by(|a, b| free_at[node][*a as usize].total_cmp(&free_at[node][*b as usize]));
        devices.truncate(spec.strategies[strategy].gpus as usize);
        devices.sort_unstable();
        let lost_s = if is_first { 0.0 } else { spec.switch_cost_s.unwrap_or(0.0) };
        let before = spec.after.iter().filter_map(|name| {
            problem.tasks.iter().position(|one| one.name == *name).map(|index| end_of[index])
        });
        let start_s = devices
            .iter()
            .map(|device| free_at[node][*device as usize])
            .chain(before)
            .chain([spec.release_s, end_of[task]])
            .fold(0.0, f64::max);
        let end_s = start_s + share * spec.strategies[strategy].runtime_s + lost_s;
        for device in &devices {
            free_at[node][*device as usize] = end_s;
        }
        end_of[task] = end_s;
        let gang = vec![Placement { node, devices }];
        assignments.push(Assignment { task, strategy, gang, share, start_s, end_s });
    }
    assignments.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let plan = Plan::of(problem, order.objective, assignments);
    Some(Plan { status: PlanStatus::Feasible, ..plan })
}

/// All parts of all tasks in an order in which they may be placed.
fn segments(rng: &mut impl Rng, order: &SolveOrder) -> Vec<Segment> {
    let tasks = &order.problem.tasks;
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    open.shuffle(rng);
    let mut segments: Vec<Segment> = Vec::new();
    // A task's later parts may stand behind other tasks.
    let mut rests: Vec<Segment> = Vec::new();
    while !open.is_empty() {
        let is_ready = |task: &usize| {
            let after = &tasks[*task].after;
            !open.iter().any(|other| after.contains(&tasks[*other].name))
        };
        let Some(index) = open.iter().position(is_ready) else { break };
        let task = open.swap_remove(index);
        let is_awaited = tasks.iter().any(|other| other.after.contains(&tasks[task].name));
        let may_cut = order.max_switches > 0 && tasks[task].switch_cost_s.is_some() && !is_awaited;
        if may_cut && rng.random_bool(0.4) {
            let share = rng.random_range(0.1..0.9);
            segments.push(Segment { task, share, is_first: true });
            let rest = Segment { task, share: WHOLE - share, is_first: false };
            rests.push(rest);
        } else {
            segments.push(Segment { task, share: WHOLE, is_first: true });
        }
    }
    rests.shuffle(rng);
    segments.extend(rests);
    segments
}
