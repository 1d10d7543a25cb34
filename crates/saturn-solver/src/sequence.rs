//! The search over one order of all gangs, for problems whose nodes are not independent.
//!
//! Wide gangs start on several nodes at once, so a node's list no longer determines its timeline.
//! Here the state is one sequence of all tasks with a place for each; playing it costs time in
//! proportion to the number of tasks, so it is slower than the search over lists, which provides
//! its start.

use crate::bounds::area::AreaBound;
use crate::clock::Deadline;
use crate::lists::Lists;
use crate::model::{Model, WideMode};
use crate::options::Aim;
use crate::random::Random;
use crate::schedule::{Schedule, Step, nodes_for};
use crate::timeline::place;

const SQUARE: f64 = 20.0;
/// Weights of the priced area; each run takes one. Area makes room, but a wide gang that ends a
/// plan sooner may hold more of it.
const AREAS: [f64; 3] = [0.0, 0.05, 0.2];
const MOVES_PER_LOOK: u64 = 32;

/// Under what a task runs, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A narrow mode: index into the modes of the node's kind.
    Narrow { node: usize, mode: usize },
    /// A wide mode: index into the task's wide modes; its nodes follow from the order, but for the
    /// one that it takes first.
    Wide { mode: usize, lead: Option<usize> },
}

/// A task with its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gang {
    pub(crate) task: usize,
    pub(crate) choice: Choice,
}

pub(crate) type Sequence = Vec<Gang>;

/// What a sequence comes to.
#[derive(Debug, Clone, Copy)]
struct Worth {
    /// Under the objective.
    value: f64,
    /// What annealing makes small.
    cost: f64,
}

/// Plays sequences; keeps its buffers between plays.
pub(crate) struct Player<'a> {
    model: &'a Model,
    objective: Aim,
    prices: &'a [f64],
    free: Vec<Vec<f64>>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(model: &'a Model, objective: Aim, prices: &'a [f64]) -> Self {
        Self { model, objective, prices, free: model.ready.clone() }
    }

    /// Plays the gangs in order and tells `visit` each one's place and end.
    fn play(&mut self, sequence: &[Gang], mut visit: impl FnMut(&Gang, &[(usize, u32)], f64, f64)) {
        for (free, ready) in self.free.iter_mut().zip(&self.model.ready) {
            free.copy_from_slice(ready);
        }
        for gang in sequence {
            let task = &self.model.tasks[gang.task];
            match gang.choice {
                Choice::Narrow { node, mode } => {
                    let kind = self.model.nodes[node].kind;
                    let mode = task.modes[kind][mode];
                    let start = place(&mut self.free[node], mode.gpus as usize, mode.runtime);
                    let priced = self.prices[kind] * mode.area();
                    visit(gang, &[(node, mode.gpus)], start + mode.runtime, priced);
                }
                Choice::Wide { mode, lead } => {
                    let mode = &task.wide[mode];
                    let nodes = nodes_for(self.model, &self.free, mode, lead);
                    let end = self.place_wide(&nodes, mode);
                    let held: u32 = nodes.iter().map(|(_, gpus)| gpus).sum();
                    let priced = self.prices[mode.kind] * f64::from(held) * mode.runtime;
                    visit(gang, &nodes, end, priced);
                }
            }
        }
    }

    fn place_wide(&mut self, nodes: &[(usize, u32)], mode: &WideMode) -> f64 {
        let start = nodes
            .iter()
            .map(|(node, gpus)| self.free[*node][*gpus as usize - 1])
            .fold(0.0, f64::max);
        for (node, gpus) in nodes {
            let free = &mut self.free[*node];
            let gpus = *gpus as usize;
            // The gang waits for its other nodes: its devices are taken from the start on.
            let beyond = free.partition_point(|time| *time <= start);
            free[beyond - gpus..beyond].fill(start + mode.runtime);
            free.sort_by(f64::total_cmp);
        }
        start + mode.runtime
    }

    fn worth(&mut self, sequence: &[Gang], target: f64, area: f64) -> Worth {
        let mut sum_of_ends = 0.0;
        let mut priced = 0.0;
        self.play(sequence, |_, _, end, held| {
            sum_of_ends += end;
            priced += held;
        });
        let ends = || self.free.iter().map(|free| free.last().copied().unwrap_or(0.0));
        let makespan = ends().fold(0.0, f64::max);
        match self.objective {
            Aim::Completion => Worth { value: sum_of_ends, cost: sum_of_ends },
            Aim::Makespan => {
                let late: f64 = ends()
                    .map(|end| (end - target).max(0.0))
                    .map(|excess| excess + SQUARE * excess * excess / target)
                    .sum();
                let cost = late + area * priced / self.model.num_gpus() * self.free.len() as f64;
                Worth { value: makespan, cost }
            }
        }
    }

    /// What a sequence is worth under the objective.
    pub(crate) fn value(&mut self, sequence: &[Gang]) -> f64 {
        self.worth(sequence, f64::INFINITY, 0.0).value
    }

    /// The schedule that plays the sequence.
    pub(crate) fn schedule(&mut self, sequence: &[Gang]) -> Schedule {
        let mut steps = Vec::with_capacity(sequence.len());
        let model = self.model;
        self.play(sequence, |gang, parts, _, _| {
            let task = &model.tasks[gang.task];
            let strategy = match gang.choice {
                Choice::Wide { mode, .. } => task.wide[mode].strategy,
                Choice::Narrow { node, mode } => task.modes[model.nodes[node].kind][mode].strategy,
            };
            let (strategy, parts) = (strategy as usize, parts.to_vec());
            steps.push(Step { task: gang.task, strategy, parts, from: 0.0, stays: false });
        });
        steps
    }
}

/// Chooses at once which tasks run wide, and plays them first.
///
/// Wide are those without a narrow mode, or none of runtime ≤ `target`; each takes its wide mode of
/// least held area that meets the target, or its shortest. Longest first.
pub(crate) fn wide_first(model: &Model, target: f64) -> Sequence {
    let mut gangs: Vec<(f64, Gang)> = Vec::new();
    for (task, modes) in model.tasks.iter().enumerate() {
        let shortest_narrow =
            modes.modes.iter().flatten().map(|mode| mode.runtime).fold(f64::INFINITY, f64::min);
        if shortest_narrow <= target {
            continue;
        }
        let key = |mode: &WideMode| {
            let area = f64::from(mode.held) * mode.runtime;
            if mode.runtime <= target { (0.0, area) } else { (mode.runtime, area) }
        };
        let best = modes.wide.iter().enumerate().min_by(|left, right| {
            let (left, right) = (key(left.1), key(right.1));
            left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1))
        });
        if let Some((mode, wide)) = best
            && wide.runtime < shortest_narrow
        {
            gangs.push((wide.runtime, Gang { task, choice: Choice::Wide { mode, lead: None } }));
        }
    }
    gangs.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.task.cmp(&right.1.task)));
    gangs.into_iter().map(|(_, gang)| gang).collect()
}

/// The model left for lists after `wide` has been played: those tasks have no modes, and nodes are
/// ready when the wide gangs end.
pub(crate) fn rest_after(model: &Model, wide: &[Gang]) -> Model {
    let prices = vec![1.0; model.num_kinds];
    let mut player = Player::new(model, Aim::Makespan, &prices);
    player.play(wide, |_, _, _, _| {});
    let mut rest = model.clone();
    rest.ready = player.free;
    for gang in wide {
        rest.tasks[gang.task].modes.iter_mut().for_each(Vec::clear);
    }
    for task in &mut rest.tasks {
        task.wide.clear();
    }
    rest
}

/// `wide`, then the lists node by node.
pub(crate) fn with_lists(wide: &[Gang], lists: &Lists) -> Sequence {
    let mut sequence = wide.to_vec();
    for (node, list) in lists.iter().enumerate() {
        sequence.extend(list.iter().filter_map(|entry| {
            let choice = Choice::Narrow { node, mode: entry.mode()? };
            Some(Gang { task: entry.task as usize, choice })
        }));
    }
    sequence
}

/// Anneals from `start` until the deadline or the number of moves, again and again, and returns the
/// best sequence met with its value.
pub(crate) fn anneal(
    model: &Model,
    objective: Aim,
    bound: &AreaBound,
    start: Sequence,
    deadline: Deadline,
    max_moves: Option<u64>,
    random: &mut Random,
) -> (f64, Sequence) {
    let mut player = Player::new(model, objective, &bound.prices);
    let mut best = (player.value(&start), start);
    let mut num_moves = 0;
    let mut length = 10_000;
    let is_done = |value: f64, num_moves: u64| {
        deadline.is_over()
            || max_moves.is_some_and(|limit| num_moves >= limit)
            || objective == Aim::Makespan && value <= bound.makespan * (1.0 + 1e-9)
    };
    while !is_done(best.0, num_moves) {
        let target = bound.makespan + (best.0 - bound.makespan) * (0.3 + 0.7 * random.unit());
        let scale = match objective {
            Aim::Makespan => bound.makespan,
            Aim::Completion => best.0 / model.nodes.len() as f64,
        };
        let from = scale * random.log_between(0.005, 0.3);
        let to = scale * 0.0005;
        let looks: u64 = length / MOVES_PER_LOOK;
        let factor = (to / from).powf(1.0 / looks as f64);
        let mut temperature = from;
        let mut current = best.1.clone();
        let area = AREAS[random.below(AREAS.len())];
        let mut cost = player.worth(&current, target, area).cost;
        for _ in 0..looks {
            if is_done(best.0, num_moves) {
                break;
            }
            for _ in 0..MOVES_PER_LOOK {
                num_moves += 1;
                let undo = change(model, &mut current, random);
                let worth = player.worth(&current, target, area);
                let threshold = -temperature * (1.0 - random.unit()).ln();
                if worth.cost - cost <= threshold {
                    cost = worth.cost;
                    if worth.value < best.0 * (1.0 - 1e-12) {
                        best.0 = worth.value;
                        best.1.clone_from(&current);
                    }
                } else {
                    undo.apply(&mut current);
                }
            }
            temperature *= factor;
        }
        length = (length * 3 / 2).min(2_000_000);
    }
    best
}

/// How to take back a change.
enum Undo {
    Swap(usize, usize),
    /// Where a gang is now, and where it was.
    Shift(usize, usize),
    Choice(usize, Choice),
    Nothing,
}

impl Undo {
    fn apply(self, sequence: &mut [Gang]) {
        match self {
            Self::Swap(left, right) => sequence.swap(left, right),
            Self::Shift(from, to) => shift(sequence, from, to),
            Self::Choice(at, choice) => sequence[at].choice = choice,
            Self::Nothing => {}
        }
    }
}

fn shift(sequence: &mut [Gang], from: usize, to: usize) {
    if from < to {
        sequence[from..=to].rotate_left(1);
    } else {
        sequence[to..=from].rotate_right(1);
    }
}

/// A random change of order or of a choice.
fn change(model: &Model, sequence: &mut [Gang], random: &mut Random) -> Undo {
    let at = random.below(sequence.len());
    let other = random.below(sequence.len());
    match random.below(4) {
        0 => {
            sequence.swap(at, other);
            Undo::Swap(at, other)
        }
        1 => {
            shift(sequence, at, other);
            Undo::Shift(other, at)
        }
        _ => {
            let old = sequence[at].choice;
            match random_choice(model, sequence[at].task, old, random) {
                Some(new) => {
                    sequence[at].choice = new;
                    Undo::Choice(at, old)
                }
                None => Undo::Nothing,
            }
        }
    }
}

/// Another mode, or another node.
fn random_choice(model: &Model, task: usize, old: Choice, random: &mut Random) -> Option<Choice> {
    let wide = &model.tasks[task].wide;
    if !wide.is_empty() && random.below(4) == 0 {
        let lead = (random.below(2) == 0).then(|| random.below(model.nodes.len()));
        return Some(Choice::Wide { mode: random.below(wide.len()), lead });
    }
    let node = match old {
        Choice::Narrow { node, .. } if random.below(2) == 0 => node,
        _ => random.below(model.nodes.len()),
    };
    let modes = model.modes_on(task, node);
    match old {
        _ if modes.is_empty() => None,
        Choice::Narrow { mode, .. } if mode < modes.len() && random.below(2) == 0 => {
            Some(Choice::Narrow { node, mode })
        }
        _ => Some(Choice::Narrow { node, mode: random.below(modes.len()) }),
    }
}
