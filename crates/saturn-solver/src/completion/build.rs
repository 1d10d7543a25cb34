//! Lists built in one go, by the prices of devices over time.

use crate::bounds::ascent::Ascent;
use crate::bounds::prices::Prices;
use crate::completion::queue::{Fine, Queue};
use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::lists::list::{Entry, Lists};
use crate::problem::modes::Mode;
use crate::problem::timeline::place_after;

/// The dual's advice on good plans: the prices of devices, and about when each task runs.
#[derive(Debug, Clone)]
pub(crate) struct Guide {
    prices: Prices,
    /// By task, seconds.
    starts: Vec<f64>,
    ends: Vec<f64>,
    /// No plan is worth less than this.
    bound: f64,
}

impl Guide {
    pub(crate) fn new(ascent: &Ascent) -> Self {
        let (starts, ends) = ascent.spans();
        let (starts, ends) = (starts.to_vec(), ends.to_vec());
        Self { prices: ascent.prices().clone(), starts, ends, bound: ascent.value().max(0.0) }
    }

    pub(super) fn bound(&self) -> f64 {
        self.bound
    }

    /// A point between about when a task starts (0) and ends (1), seconds.
    pub(crate) fn moment(&self, task: usize, point: f64) -> f64 {
        self.starts[task] + point * (self.ends[task] - self.starts[task])
    }

    /// The price of a device of a kind from one time to another, and that of the task's cap.
    pub(crate) fn paid(&self, kind: usize, cap: Option<usize>, (from, to): (f64, f64)) -> f64 {
        let of_resource = |resource: usize| {
            self.prices.integral(resource, to) - self.prices.integral(resource, from)
        };
        of_resource(kind) + cap.map_or(0.0, of_resource)
    }
}

/// The settings with which lists are built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe {
    /// Tasks come in the order of this point between their start and their end in the guide, from 0
    /// to 1.
    pub(super) point: f64,
    /// The prices count this many times.
    pub(super) thrift: f64,
    /// Whether movable running tasks stay.
    pub(super) stays: bool,
    /// The randomness of the order: the point of a task is off by up to this part of it.
    pub(super) jitter: f64,
    /// Whether tasks with a soft deadline come first, by their deadlines: the guide knows none.
    pub(super) is_by_deadline: bool,
}

/// Where a mode starts first on the nodes of a kind.
#[derive(Debug, Clone, Copy)]
struct Site {
    node: usize,
    start: f64,
    /// Seconds by which the node has left before the gang ends.
    missed: f64,
    /// Device-seconds that idle before it.
    idle: f64,
}

/// Appends one task after the other, each at the place of least cost. The cost is its weighted end,
/// its fine, the price of the devices that it holds or leaves idle before it, and that of its owner's
/// cap. `None` if the
/// deadline comes first.
pub(super) fn build(
    queue: &Queue,
    guide: &Guide,
    fine: Fine,
    recipe: Recipe,
    deadline: Deadline,
    random: &mut Random,
) -> Option<Lists> {
    let model = queue.model;
    let mut lists: Lists = vec![Vec::new(); model.nodes.len()];
    let mut free = model.ready.clone();
    let mut order: Vec<(f64, f64, usize)> = Vec::with_capacity(model.tasks.len());
    for (task, spec) in model.tasks.iter().enumerate() {
        let stay = spec.stay.as_ref().filter(|_| recipe.stays || spec.is_fixed());
        if let Some((stay, home)) = stay.and_then(|stay| Some((stay, stay.home()?))) {
            let entry = Entry::staying(task, stay);
            place_after(&mut free[home], usize::from(entry.gpus), 0.0, entry.runtime);
            lists[home].push(entry);
        } else {
            let noise = 1.0 + recipe.jitter * (2.0 * random.unit() - 1.0);
            let wished = queue.duties[task].wished;
            // Of equal deadlines, as with a tail, the guide decides.
            let by = if recipe.is_by_deadline { wished } else { 0.0 };
            order.push((by, guide.moment(task, recipe.point) * noise, task));
        }
    }
    order.sort_by(|left, right| {
        left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1)).then(left.2.cmp(&right.2))
    });
    let mut by_kind: Vec<Vec<usize>> = vec![Vec::new(); model.num_kinds];
    for (node, spec) in model.nodes.iter().enumerate() {
        by_kind[spec.kind].push(node);
    }
    for (_, _, task) in order {
        if deadline.is_over() {
            return None;
        }
        let mut best: Option<(f64, usize, Entry)> = None;
        for (kind, nodes) in by_kind.iter().enumerate() {
            for (index, mode) in model.tasks[task].modes[kind].iter().enumerate() {
                let Some(site) = site(queue, &free, nodes, task, mode) else { continue };
                let entry = Entry::new(task, index, mode);
                let cost = cost(queue, guide, fine, recipe, &free[site.node], (kind, &entry), site);
                if best.is_none_or(|(least, ..)| cost < least) {
                    best = Some((cost, site.node, entry));
                }
            }
        }
        // A task without a mode on any node that it may use stays, as all such tasks do.
        if let Some((_, node, entry)) = best {
            let release = queue.duties[task].release;
            place_after(&mut free[node], usize::from(entry.gpus), release, entry.runtime);
            lists[node].push(entry);
        } else if let Some(stay) = &model.tasks[task].stay
            && let Some(home) = stay.home()
        {
            lists[home].insert(0, Entry::staying(task, stay));
            replay(queue, home, &lists[home], &mut free[home]);
        }
    }
    Some(lists)
}

/// Sets `free` to the times after a list.
fn replay(queue: &Queue, node: usize, list: &[Entry], free: &mut [f64]) {
    free.copy_from_slice(&queue.model.ready[node]);
    for entry in list {
        let release = queue.duties[entry.task as usize].release;
        place_after(free, usize::from(entry.gpus), release, entry.runtime);
    }
}

/// The node on which a mode is least late; among equals, the node where it starts first, then where
/// it idles least.
fn site(
    queue: &Queue,
    free: &[Vec<f64>],
    nodes: &[usize],
    task: usize,
    mode: &Mode,
) -> Option<Site> {
    let gpus = mode.gpus as usize;
    let release = queue.duties[task].release;
    let spec = &queue.model.tasks[task];
    let mut best: Option<Site> = None;
    for &node in nodes {
        let Some(ready) = free[node].get(gpus - 1) else { continue };
        let start = ready.max(release);
        let missed = (start + mode.runtime - queue.until[node]).max(0.0);
        let is_worse = |best: &Site| (missed, start) > (best.missed, best.start);
        if best.as_ref().is_some_and(is_worse) || !spec.may_use(node) {
            continue;
        }
        let idle = taken(&free[node], gpus, start).iter().map(|time| start - time).sum();
        let site = Site { node, start, missed, idle };
        if best.is_none_or(|best| (missed, start, idle) < (best.missed, best.start, best.idle)) {
            best = Some(site);
        }
    }
    best
}

/// When the devices became free that a gang takes that starts at `start`.
fn taken(free: &[f64], gpus: usize, start: f64) -> &[f64] {
    let behind = gpus + free[gpus..].iter().take_while(|time| **time <= start).count();
    &free[behind - gpus..behind]
}

fn cost(
    queue: &Queue,
    guide: &Guide,
    fine: Fine,
    recipe: Recipe,
    free: &[f64],
    (kind, entry): (usize, &Entry),
    site: Site,
) -> f64 {
    let end = site.start + entry.runtime;
    let paid = guide.prices.integral(kind, end) * f64::from(entry.gpus);
    let taken = taken(free, usize::from(entry.gpus), site.start).iter();
    let before: f64 = taken.map(|time| guide.prices.integral(kind, *time)).sum();
    let of_cap = queue.model.cap_resource(entry.task as usize).map_or(0.0, |cap| {
        let up_to = |time: f64| guide.prices.integral(cap, time);
        (up_to(end) - up_to(site.start)) * f64::from(entry.gpus)
    });
    let (merit, fined) = queue.judged(fine, site.node, entry, end);
    merit.value + fined + recipe.thrift * (paid - before + of_cap)
}
