//! The second constructive heuristic: nodes filled one after another, each as tightly as can be.
//!
//! With many tasks, some task fits any gap. For a target T the nodes are filled in turn. Each node
//! begins with the largest remaining task. Then its lowest gap is filled until no task fits, by the
//! task that ends closest to T or by a random task. Several such fillings of a node are drawn, and
//! the filling whose tasks are worth most is kept. A task's worth is its least priced GPU-seconds
//! less a fee. Priced GPU-seconds charge idle devices and wasteful modes alike; the fee keeps small
//! tasks for the gaps of later nodes. A task that fits nowhere goes where it ends first. (The
//! one-bin-at-a-time idea is minimum bin slack, Gupta and Ho 1999.)
//!
//! Some running tasks are drawn at random. They may go to any node, or stay in half of the drawings
//! of their own node. All other running tasks stay.
//!
//! One filling takes milliseconds with a thousand tasks, and depends much on chance, so hundreds
//! are drawn.

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::lists::list::{Entry, Lists};
use crate::lists::shelf::{Item, Shelf};
use crate::problem::model::{Model, Task};
use crate::problem::modes::Mode;
use crate::problem::timeline::place;

/// The settings with which a plan is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    /// No gang that fits ends later, seconds.
    pub(crate) target: f64,
    /// Fillings drawn for each node.
    pub(crate) draws: usize,
    /// Fee of a task, as a share of a whole node's worth.
    pub(crate) fee: f64,
    /// How much a mode may be above its task's least priced GPU-seconds, relative.
    pub(crate) waste: f64,
    /// The share of the running tasks that need not stay, where they may be moved.
    pub(crate) moved: f64,
}

impl Recipe {
    /// Random settings.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 5 and `most_draws`"
    )]
    pub(crate) fn random(target: f64, most_draws: f64, random: &mut Random) -> Self {
        Self {
            target,
            draws: random.log_between(5.0, most_draws) as usize,
            fee: random.log_between(0.0005, 0.006),
            waste: random.log_between(0.004, 0.08),
            moved: [0.0, random.log_between(0.02, 1.0), 1.0][random.below(3)],
        }
    }
}

/// A gap below this share of the target counts as closed.
const CLOSED: f64 = 0.002;
/// Devices whose free times differ by less than this share of the target are on one level.
const LEVEL: f64 = 0.0005;

/// A plan in the making.
struct Filling<'a> {
    model: &'a Model,
    prices: &'a [f64],
    recipe: Recipe,
    /// Least priced GPU-seconds of each task under modes that meet the target.
    least: Vec<f64>,
    /// By kind and width less one.
    shelves: Vec<Vec<Shelf>>,
    is_taken: Vec<bool>,
    /// When the devices of the node at work fall free.
    free: Vec<f64>,
    random: &'a mut Random,
    num_steps: u64,
}

/// Fills `nodes` with `tasks`: a list for each node, and the number of gangs tried out on the way.
/// `None` when the time is over.
///
/// Every task should have a narrow mode on some node; a task without a narrow mode is left out.
pub(crate) fn fill(
    model: &Model,
    prices: &[f64],
    nodes: &[usize],
    mut tasks: Vec<usize>,
    recipe: Recipe,
    deadline: Deadline,
    random: &mut Random,
) -> Option<(Lists, u64)> {
    let Running { staying: mut lists, drawn } =
        stay_or_move(model, prices, nodes, &mut tasks, recipe, random);
    let mut filling = Filling::new(model, prices, &tasks, recipe, random);
    tasks.sort_by(|left, right| filling.least[*right].total_cmp(&filling.least[*left]));
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    filling.random.shuffle(&mut order);
    for local in order {
        if deadline.is_over() {
            return None;
        }
        let filled = filling.best_list(nodes[local], &lists[local], &drawn[local], &tasks);
        lists[local] = filled;
        for entry in &lists[local] {
            filling.is_taken[entry.task as usize] = true;
        }
    }
    tasks.retain(|task| !filling.is_taken[*task]);
    append(model, nodes, &mut lists, &tasks);
    Some((lists, filling.num_steps))
}

/// Least priced GPU-seconds of a task under modes that meet the target.
fn least_area(task: &Task, prices: &[f64], target: f64) -> f64 {
    let modes = task.modes.iter().zip(prices).flat_map(|(modes, price)| {
        let in_time = modes.iter().filter(|mode| mode.runtime <= target);
        in_time.map(move |mode| price * mode.area())
    });
    modes.fold(f64::INFINITY, f64::min)
}

/// The running tasks as they are, each on the list of its node.
struct Running {
    /// Running tasks that stay.
    staying: Lists,
    /// Running tasks that may stay, and are among the tasks for all nodes.
    drawn: Lists,
}

/// Divides the running tasks; those that stay are taken out of `tasks`.
fn stay_or_move(
    model: &Model,
    prices: &[f64],
    nodes: &[usize],
    tasks: &mut Vec<usize>,
    recipe: Recipe,
    random: &mut Random,
) -> Running {
    const ELSEWHERE: usize = usize::MAX;
    let lists: Lists = vec![Vec::new(); nodes.len()];
    let mut running = Running { staying: lists.clone(), drawn: lists };
    if !model.has_running() {
        return running;
    }
    let mut locals = vec![ELSEWHERE; model.nodes.len()];
    for (local, node) in nodes.iter().enumerate() {
        locals[*node] = local;
    }
    tasks.retain(|&index| {
        let task = &model.tasks[index];
        let Some(stay) = &task.stay else { return true };
        let home = stay.home().map(|node| locals[node]);
        let Some(local) = home.filter(|local| *local != ELSEWHERE) else { return true };
        // A task that would end too late, or wastes too much, has a mode that doesn't.
        let area = prices[stay.kind] * f64::from(stay.held()) * stay.runtime;
        let moves = !task.is_fixed()
            && (stay.runtime > recipe.target
                || area > least_area(task, prices, recipe.target) * (1.0 + recipe.waste)
                || recipe.moved > 0.0 && random.unit() < recipe.moved);
        let entry = Entry::staying(index, stay);
        if !moves {
            running.staying[local].push(entry);
        } else if stay.runtime <= recipe.target {
            running.drawn[local].push(entry);
        }
        moves
    });
    running
}

impl<'a> Filling<'a> {
    fn new(
        model: &'a Model,
        prices: &'a [f64],
        tasks: &[usize],
        recipe: Recipe,
        random: &'a mut Random,
    ) -> Self {
        let mut least = vec![f64::INFINITY; model.tasks.len()];
        for task in tasks {
            least[*task] = least_area(&model.tasks[*task], prices, recipe.target);
        }
        let mut filling = Self {
            model,
            prices,
            recipe,
            least,
            shelves: Vec::new(),
            is_taken: vec![false; model.tasks.len()],
            free: Vec::new(),
            random,
            num_steps: 0,
        };
        filling.shelves =
            (0..model.num_kinds).map(|kind| filling.shelves_of(kind, tasks)).collect();
        filling
    }

    #[expect(clippy::cast_possible_truncation, reason = "counts are bounded by the problem")]
    fn shelves_of(&self, kind: usize, tasks: &[usize]) -> Vec<Shelf> {
        let mut widths: Vec<Vec<Item>> = vec![Vec::new(); self.model.widest[kind] as usize];
        for &task in tasks {
            for (index, mode) in self.model.tasks[task].modes[kind].iter().enumerate() {
                if self.is_worth_having(task, kind, mode) {
                    widths[mode.gpus as usize - 1].push(Item {
                        runtime: mode.runtime,
                        task: task as u32,
                        mode: index as u16,
                    });
                }
            }
        }
        widths.into_iter().map(Shelf::new).collect()
    }

    fn is_worth_having(&self, task: usize, kind: usize, mode: &Mode) -> bool {
        mode.runtime <= self.recipe.target
            && self.prices[kind] * mode.area() <= self.least[task] * (1.0 + self.recipe.waste)
    }

    /// The list worth most of those drawn for `node`, behind the tasks that stay there. Some of the
    /// remaining `drawn` tasks may stay too.
    fn best_list(
        &mut self,
        node: usize,
        staying: &[Entry],
        drawn: &[Entry],
        order: &[usize],
    ) -> Vec<Entry> {
        let mut ready = self.model.ready[node].clone();
        for entry in staying {
            place(&mut ready, usize::from(entry.gpus), entry.runtime);
        }
        let is_left = |entry: &&Entry| !self.is_taken[entry.task as usize];
        let homely: Vec<Entry> = drawn.iter().filter(is_left).copied().collect();
        let seed = self.seed(node, &ready, order);
        if seed.is_none() && homely.is_empty() {
            return staying.to_vec();
        }
        let crate::problem::model::Node { gpus, kind, .. } = self.model.nodes[node];
        let fee = self.recipe.fee * self.prices[kind] * f64::from(gpus) * self.recipe.target;
        let mut best: (f64, Vec<Entry>) = (f64::NEG_INFINITY, Vec::new());
        for _ in 0..self.recipe.draws.max(1) {
            let list = self.draw(node, &ready, &homely, seed);
            let worth: f64 = list.iter().map(|entry| self.least[entry.task as usize] - fee).sum();
            if worth > best.0 {
                best = (worth, list);
            }
        }
        [staying, &best.1].concat()
    }

    /// The largest remaining task that fits `node`, in its smallest mode.
    fn seed(&self, node: usize, ready: &[f64], order: &[usize]) -> Option<Entry> {
        let kind = self.model.nodes[node].kind;
        order.iter().filter(|task| !self.is_taken[**task]).find_map(|&task| {
            let modes = self.model.modes_on(task, node).iter().enumerate();
            modes
                .filter(|(_, mode)| {
                    self.is_worth_having(task, kind, mode)
                        && ready[mode.gpus as usize - 1] + mode.runtime <= self.recipe.target
                })
                .min_by(|left, right| left.1.area().total_cmp(&right.1.area()))
                .map(|(index, mode)| Entry::new(task, index, mode))
        })
    }

    /// One filling of `node`, whose devices become free at `ready`: some tasks that run there, the
    /// seed, and tasks that fit behind.
    fn draw(
        &mut self,
        node: usize,
        ready: &[f64],
        homely: &[Entry],
        seed: Option<Entry>,
    ) -> Vec<Entry> {
        let target = self.recipe.target;
        let kind = self.model.nodes[node].kind;
        self.free.clear();
        self.free.extend_from_slice(ready);
        let mut list: Vec<Entry> = Vec::new();
        for entry in homely {
            if self.random.below(2) == 0 {
                list.push(*entry);
            }
        }
        list.extend(seed.filter(|seed| list.iter().all(|entry| entry.task != seed.task)));
        for entry in &list {
            place(&mut self.free, usize::from(entry.gpus), entry.runtime);
        }
        while target - self.free[0] > target * CLOSED {
            self.num_steps += 1;
            let level = self.free[0] + target * LEVEL;
            let width = self.free.partition_point(|time| *time <= level);
            let closes = self.random.below(2) == 0;
            let found = if closes {
                self.closest(node, width, &list)
            } else {
                self.some(node, width, &list)
            };
            if let Some((gpus, item)) = found {
                let mode =
                    &self.model.tasks[item.task as usize].modes[kind][usize::from(item.mode)];
                list.push(Entry::new(item.task as usize, usize::from(item.mode), mode));
                place(&mut self.free, gpus, item.runtime);
            } else if closes {
                // No task fits: these devices idle until others become free beside them.
                match self.free.get(width) {
                    Some(next) if *next < target => {
                        let next = *next;
                        self.free[..width].fill(next);
                    }
                    _ => break,
                }
            }
        }
        list
    }

    /// The item of at most `width` devices that leaves least of the lowest gap.
    fn closest(&mut self, node: usize, width: usize, list: &[Entry]) -> Option<(usize, Item)> {
        let (model, kind) = (self.model, self.model.nodes[node].kind);
        let mut best: Option<(f64, usize, Item)> = None;
        for gpus in 1..=width {
            let room = self.recipe.target - self.free[gpus - 1];
            let shelf = &mut self.shelves[kind][gpus - 1];
            let count = shelf.num_within(room);
            let may_be = |task: usize| is_new(model, node, list, task);
            if let Some(item) = shelf.last_of(count, &self.is_taken, may_be) {
                let rest = room - item.runtime;
                if best.as_ref().is_none_or(|(least, _, _)| rest < *least) {
                    best = Some((rest, gpus, item));
                }
            }
        }
        best.map(|(_, gpus, item)| (gpus, item))
    }

    /// The larger of two random items of at most `width` devices that fit the lowest gap.
    fn some(&mut self, node: usize, width: usize, list: &[Entry]) -> Option<(usize, Item)> {
        let (model, kind) = (self.model, self.model.nodes[node].kind);
        let mut best: Option<(f64, usize, Item)> = None;
        for _ in 0..2 {
            let gpus = 1 + self.random.below(width);
            let room = self.recipe.target - self.free[gpus - 1];
            let shelf = &mut self.shelves[kind][gpus - 1];
            let count = shelf.num_within(room);
            if count == 0 {
                continue;
            }
            let count = 1 + self.random.below(count);
            let may_be = |task: usize| is_new(model, node, list, task);
            if let Some(item) = shelf.last_of(count, &self.is_taken, may_be) {
                let area = item.runtime * gpus as f64;
                if best.as_ref().is_none_or(|(most, _, _)| area > *most) {
                    best = Some((area, gpus, item));
                }
            }
        }
        best.map(|(_, gpus, item)| (gpus, item))
    }
}

/// Whether a remaining task may go to the list of a node.
#[inline]
fn is_new(model: &Model, node: usize, list: &[Entry], task: usize) -> bool {
    list.iter().all(|entry| entry.task as usize != task) && model.tasks[task].may_use(node)
}

/// Puts each task at the end of the list where it ends first.
fn append(model: &Model, nodes: &[usize], lists: &mut Lists, tasks: &[usize]) {
    if tasks.is_empty() {
        return;
    }
    let mut free: Vec<Vec<f64>> = nodes.iter().map(|node| model.ready[*node].clone()).collect();
    for (free, list) in free.iter_mut().zip(&*lists) {
        for entry in list {
            place(free, usize::from(entry.gpus), entry.runtime);
        }
    }
    for &task in tasks {
        let places = nodes.iter().enumerate().flat_map(|(local, node)| {
            let modes = model.modes_on(task, *node).iter().enumerate();
            modes.map(move |(index, mode)| (local, Entry::new(task, index, mode)))
        });
        let ends = places.map(|(local, entry)| {
            (free[local][usize::from(entry.gpus) - 1] + entry.runtime, local, entry)
        });
        if let Some((_, local, entry)) = ends.min_by(|left, right| left.0.total_cmp(&right.0)) {
            place(&mut free[local], usize::from(entry.gpus), entry.runtime);
            lists[local].push(entry);
        }
    }
}
