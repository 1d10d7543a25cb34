//! Plans built in one go, task by task: the starts of the search, and the baselines.

use saturn_core::Objective;

use crate::completion::build::Guide;
use crate::course::clock::Deadline;
use crate::general::instance::Instance;
use crate::general::play::{Choice, Genome, Player};

/// The rule that says which of the placeable tasks comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The task that must start first to keep its deadline.
    Due,
    /// The task with the longest way to the end of the last task that waits for it.
    Tail,
    /// The task with the least work for its weight.
    Light,
    /// The task that can start first.
    Head,
}

pub(crate) const RULES: [Rule; 4] = [Rule::Due, Rule::Tail, Rule::Light, Rule::Head];

/// The settings with which a plan is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) rule: Rule,
    /// An end before this is no gain: then the least work is best.
    pub(crate) target: f64,
    /// The price of a second of all devices against a second of the task's end.
    pub(crate) thrift: f64,
    /// Whether only tasks come next that could start about as soon as any device is free. Then no
    /// device is passed over for a task that starts late.
    pub(crate) is_prompt: bool,
    /// Whether work is priced as the guide says, and not by device-seconds.
    pub(crate) is_guided: bool,
}

/// Recipes for weighted completion, each with the ranks of the tasks: tasks come in the order in which
/// the guide has them run.
pub(crate) fn guided(guide: &Guide, num_tasks: usize) -> Vec<(Recipe, Vec<f64>)> {
    let mut all = Vec::new();
    for thrift in [1.0, 0.85, 1.2, 0.7] {
        for point in [0.5, 0.0, 1.0, 0.25, 0.75] {
            let rule = Rule::Light;
            let recipe = Recipe { rule, target: 0.0, thrift, is_prompt: false, is_guided: true };
            let rank = (0..num_tasks).map(|task| guide.moment(task, point)).collect();
            all.push((recipe, rank));
        }
    }
    all
}

/// Builds a plan: the next task is the task of least rank whose predecessors are placed.
///
/// `allows` says which of its choices a task should take. If it may take none of them, it takes
/// another. Tasks that may stay do so if `stays`. `None` when the time is over, or for a task
/// without a way.
pub(crate) fn construct(
    player: &mut Player,
    recipe: Recipe,
    rank: &[f64],
    deadline: Deadline,
    allows: &impl Fn(usize, Choice) -> bool,
    stays: bool,
) -> Option<Genome> {
    let instance = player.instance;
    let mut genome = Genome {
        order: Vec::new(),
        choices: vec![Choice::Stay; instance.tasks.len()],
        backfills: true,
    };
    let is_left = |task: usize| {
        let facts = &instance.tasks[task];
        facts.is_fixed || stays && instance.may_stay(task)
    };
    // A movable task is in the order even if it stays, for the search.
    let mut open: Vec<usize> = Vec::new();
    for (task, choice) in genome.choices.iter_mut().enumerate() {
        if !is_left(task) {
            *choice = Choice::Wide { mode: 0, lead: None };
        }
    }
    player.begin(&genome.choices);
    let mut num_waits: Vec<usize> = instance.tasks.iter().map(|task| task.after.len()).collect();
    let release = |task: usize, num_waits: &mut Vec<usize>, open: &mut Vec<usize>| {
        for &other in &instance.tasks[task].before {
            num_waits[other] -= 1;
            if num_waits[other] == 0 {
                open.push(other);
            }
        }
    };
    for task in 0..instance.tasks.len() {
        if is_left(task) {
            release(task, &mut num_waits, &mut open);
            if !instance.tasks[task].is_fixed {
                genome.order.push(task);
            }
        }
    }
    for task in 0..instance.tasks.len() {
        if instance.tasks[task].after.is_empty() && !is_left(task) {
            open.push(task);
        }
    }
    while !open.is_empty() {
        if deadline.is_over() {
            return None;
        }
        let now = if recipe.is_prompt { soonest(player, &open) } else { f64::INFINITY };
        let first =
            (0..open.len()).filter(|at| player.ready(open[*at]) <= now).min_by(|left, right| {
                let (left, right) = (open[*left], open[*right]);
                rank[left].total_cmp(&rank[right]).then(left.cmp(&right))
            })?;
        let task = open.swap_remove(first);
        let choice = best_choice(player, task, recipe, allows)?;
        genome.choices[task] = choice;
        genome.order.push(task);
        player.place(task, choice);
        release(task, &mut num_waits, &mut open);
    }
    Some(genome)
}

/// When the first of these tasks could start, if any device would do.
fn soonest(player: &Player, open: &[usize]) -> f64 {
    let free = (0..player.calendars.len()).map(|node| player.free_for_good(node));
    let ready = open.iter().map(|task| player.ready(*task)).fold(f64::INFINITY, f64::min);
    ready.max(free.fold(f64::INFINITY, f64::min))
}

/// The rank of every task by a rule; the least comes first.
pub(crate) fn ranks(instance: &Instance, rule: Rule) -> Vec<f64> {
    (0..instance.tasks.len()).map(|task| rank(instance, task, rule)).collect()
}

fn rank(instance: &Instance, task: usize, rule: Rule) -> f64 {
    let facts = &instance.tasks[task];
    match rule {
        Rule::Due => {
            facts.latest_end.min(facts.wished).min(1e15) - facts.shortest - facts.tail * 1e-6
        }
        Rule::Tail => -(facts.shortest + facts.tail),
        Rule::Light => {
            let mut area = f64::INFINITY;
            instance.each_way(task, |way| area = area.min(f64::from(way.held) * way.runtime));
            area / facts.weight
        }
        Rule::Head => facts.head,
    }
}

/// The choice that adds least to the placed tasks. A choice that is not allowed is taken only if no
/// other remains.
pub(crate) fn best_choice(
    player: &Player,
    task: usize,
    recipe: Recipe,
    allows: &impl Fn(usize, Choice) -> bool,
) -> Option<Choice> {
    let best = best_of(player, task, recipe, &|choice| allows(task, choice));
    let best = best.or_else(|| best_of(player, task, recipe, &|_| true));
    best.or_else(|| player.instance.may_stay(task).then_some(Choice::Stay))
}

/// The choice that adds least, among the allowed choices but staying.
fn best_of(
    player: &Player,
    task: usize,
    recipe: Recipe,
    allows: &impl Fn(Choice) -> bool,
) -> Option<Choice> {
    let instance = player.instance;
    let facts = &instance.tasks[task];
    let ready = player.ready(task);
    let num_gpus = instance.model.num_gpus();
    // First the choice that misses least, and of those the least tardy.
    let mut best: Option<((f64, f64, f64), Choice)> = None;
    let guide = instance.guide.as_ref().filter(|_| recipe.is_guided);
    let cap = instance.model.cap_resource(task);
    let mut offer =
        |choice: Choice, kind: usize, start: f64, lasts: f64, until: f64, held: f64, price: f64| {
            let end = start + lasts;
            let missed = (end - until).max(0.0) + (end - facts.latest_end).max(0.0);
            let work = match guide {
                Some(guide) => held * guide.paid(kind, cap, (start, end)) / facts.weight.max(1e-12),
                None => held * lasts / num_gpus,
            };
            let score = match instance.objective {
                Objective::Cost => price * lasts + recipe.thrift * end,
                Objective::Makespan => (end + facts.tail).max(recipe.target) + recipe.thrift * work,
                Objective::Completion => end + recipe.thrift * work,
            };
            let score = (missed, facts.tardiness(end), score);
            if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, choice));
            }
        };
    for node in instance.nodes_of(task) {
        let until = instance.nodes[node].until;
        for (index, mode) in instance.model.modes_on(task, node).iter().enumerate() {
            let choice = Choice::Narrow { node, mode: index };
            if allows(choice) {
                let held: (&[_], u64) = (&[(node, mode.gpus)], mode.host);
                let start = player.start(task, held, ready, mode.runtime);
                let price = instance.device_price(node) * f64::from(mode.gpus);
                let kind = instance.model.nodes[node].kind;
                offer(choice, kind, start, mode.runtime, until, f64::from(mode.gpus), price);
            }
        }
    }
    for (index, mode) in instance.model.tasks[task].wide.iter().enumerate() {
        let choice = Choice::Wide { mode: index, lead: None };
        if !allows(choice) || !instance.has_nodes_for(task, mode) {
            continue;
        }
        let lasts = mode.runtime;
        let parts = player.nodes_for(task, mode, None, ready, lasts);
        let start = player.start(task, (&parts, mode.host), ready, lasts);
        let until = parts.iter().map(|(node, _)| instance.nodes[*node].until);
        let until = until.fold(f64::INFINITY, f64::min);
        let held: f64 = parts.iter().map(|(_, gpus)| f64::from(*gpus)).sum();
        let price = parts.iter().map(|(node, _)| instance.nodes[*node].price).sum();
        offer(choice, mode.kind, start, lasts, until, held, price);
    }
    best.map(|(_, choice)| choice)
}

/// The starts of a search, the most promising first.
pub(crate) fn recipes(objective: Objective, low: f64) -> Vec<Recipe> {
    let thrifts: &[f64] = match objective {
        Objective::Makespan => &[1.0, 4.0, 0.2],
        Objective::Completion => &[1.0, 4.0, 15.0, 0.0],
        Objective::Cost => &[1e-6, 1e-3, 0.1, 10.0],
    };
    let targets: &[f64] = match objective {
        Objective::Makespan => &[1.03, 1.0, 1.12, 1.4],
        _ => &[1.0],
    };
    let mut all = Vec::new();
    for &target in targets {
        for &thrift in thrifts {
            for rule in RULES {
                for is_prompt in [true, false] {
                    let target = low * target;
                    all.push(Recipe { rule, target, thrift, is_prompt, is_guided: false });
                }
            }
        }
    }
    all
}
