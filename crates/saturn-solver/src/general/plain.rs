//! Plans by lists. If nothing couples the nodes, they are plans of the whole problem. Otherwise
//! they are plans of the problem without some facts, as starts of the general search.
//!
//! The search over lists plays a thousand times more gangs a second than the general search. It
//! knows when devices first become free and which tasks run already, so it keeps arrivals of nodes
//! and gangs that stay. The search for makespans knows no releases, departures and deadlines; the
//! search for weighted completion does. Neither knows precedence. Tasks that need several nodes go
//! first, the longest first, on the nodes that become free first, behind the running tasks, which
//! then stay. The plan is played anew with all facts, mostly in its order of starts.

use saturn_core::{Objective, Plan, Problem};

use crate::bounds::area::AreaBound;
use crate::completion::build::Guide;
use crate::completion::queue::{Aim, Duty, Queue};
use crate::completion::search as completion;
use crate::course::clock::Deadline;
use crate::course::rounds::{Course, Limits};
use crate::general::instance::Instance;
use crate::general::play::{Choice, Genome, Placed, Player};
use crate::lists::list::Lists;
use crate::lists::search;
use crate::lists::warm::lists;
use crate::problem::baselines::Pace;
use crate::problem::model::Model;
use crate::problem::modes::WideMode;
use crate::problem::timeline::place_after;

/// With fewer tasks that have a choice the general search needs no such start.
const FEW: usize = 8;
/// Tasks without a narrow mode within these times the bound run as wide gangs.
const TARGETS: [f64; 3] = [1.02, 1.1, 1.3];

/// The inputs of the search over lists.
pub(crate) struct Ask<'a> {
    pub(crate) bound: &'a AreaBound,
    /// For weighted completion: the dual's advice on good plans.
    pub(crate) guide: Option<&'a Guide>,
    pub(crate) course: Course,
    /// A plan of the whole problem to start from, and the problem of that plan.
    pub(crate) warm: Option<(&'a Problem, &'a Plan)>,
    pub(crate) deadline: Deadline<'a>,
}

/// A search over lists of a part of the problem.
pub(crate) enum Search<'a> {
    Makespan(Box<search::Search<'a>>),
    Completion(Box<completion::Search<'a>>),
}

impl<'a> Search<'a> {
    pub(crate) fn new(rest: &'a Rest, queue: &'a Queue<'a>, ask: &Ask<'a>) -> Self {
        let Ask { bound, guide, deadline, .. } = *ask;
        let (model, course) = (&rest.model, ask.course.clone());
        if let Some(guide) = guide {
            let warm = ask.warm.and_then(|(problem, plan)| lists(problem, model, plan));
            let search = completion::Search::new(queue, guide, course, warm, deadline);
            Self::Completion(Box::new(search))
        } else {
            let search = search::Search::new(model, bound, course, Vec::new(), deadline);
            Self::Makespan(Box::new(search))
        }
    }

    pub(crate) fn advance(&mut self, limits: &Limits) {
        match self {
            Self::Makespan(search) => search.advance(limits),
            Self::Completion(search) => search.advance(limits),
        }
    }

    pub(crate) fn num_moves(&self) -> u64 {
        match self {
            Self::Makespan(search) => search.num_moves(),
            Self::Completion(search) => search.course.num_moves(),
        }
    }

    /// Whether no lists are better.
    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        match self {
            Self::Makespan(search) => search.is_optimal(limits),
            Self::Completion(search) => search.is_optimal(limits),
        }
    }

    pub(crate) fn lists(&self) -> &Lists {
        match self {
            Self::Makespan(search) => search.lists(),
            Self::Completion(search) => search.lists(),
        }
    }
}

/// The parts of the problem for lists, in one or several ways. Empty for a problem of few tasks in
/// narrow modes alone.
pub(crate) fn rests(instance: &Instance, low: f64, is_whole: bool) -> Vec<Rest> {
    let mut sets: Vec<Vec<(usize, Choice)>> = Vec::new();
    for target in TARGETS {
        let wide = wide_first(instance, low * target);
        if !sets.contains(&wide) {
            sets.push(wide);
        }
    }
    let num_free = instance.tasks.iter().filter(|task| !task.is_fixed).count();
    if num_free < FEW && sets.iter().all(Vec::is_empty) && !is_whole {
        return Vec::new();
    }
    let hurries = (instance.objective == Objective::Makespan).then_some(low);
    sets.iter().filter_map(|wide| Rest::new(instance, wide, hurries)).collect()
}

/// Chooses at once which tasks run wide, the longest first.
///
/// These are the tasks without a narrow mode, or without a narrow mode of runtime ≤ `target`. Each
/// takes its wide mode of least held area that meets the target, or its shortest.
fn wide_first(instance: &Instance, target: f64) -> Vec<(usize, Choice)> {
    let mut gangs: Vec<(f64, usize, Choice)> = Vec::new();
    for (task, modes) in instance.model.tasks.iter().enumerate() {
        let narrow = modes.modes.iter().flatten().map(|mode| mode.runtime);
        let shortest = narrow.chain(modes.stay.iter().map(|stay| stay.runtime));
        let shortest = shortest.fold(f64::INFINITY, f64::min);
        if shortest <= target {
            continue;
        }
        let key = |mode: &WideMode| {
            let area = f64::from(mode.held) * mode.runtime;
            if mode.runtime <= target { (0.0, area) } else { (mode.runtime, area) }
        };
        let usable = modes.wide.iter().enumerate();
        let usable = usable.filter(|(_, mode)| instance.has_nodes_for(task, mode));
        let best = usable.min_by(|left, right| {
            let (left, right) = (key(left.1), key(right.1));
            left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1))
        });
        if let Some((mode, wide)) = best
            && wide.runtime < shortest
        {
            gangs.push((wide.runtime, task, Choice::Wide { mode, lead: None }));
        }
    }
    gangs.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    gangs.into_iter().map(|(_, task, choice)| (task, choice)).collect()
}

/// The part of the problem for lists.
pub(crate) struct Rest {
    model: Model,
    /// The order of the tasks that are on no list.
    order: Vec<usize>,
    choices: Vec<Choice>,
}

impl Rest {
    /// The tasks behind the wide gangs; `None` if a task has no mode left.
    fn new(instance: &Instance, wide: &[(usize, Choice)], hurries: Option<f64>) -> Option<Self> {
        let mut model = instance.model.clone();
        let mut choices = vec![Choice::Wide { mode: 0, lead: None }; instance.tasks.len()];
        for (task, choice) in wide {
            choices[*task] = *choice;
            model.tasks[*task].modes.iter_mut().for_each(Vec::clear);
            model.tasks[*task].stay = None;
        }
        let is_wide: Vec<bool> = {
            let mut is_wide = vec![false; instance.tasks.len()];
            for (task, _) in wide {
                is_wide[*task] = true;
            }
            is_wide
        };
        for (index, task) in model.tasks.iter_mut().enumerate() {
            task.wide.clear();
            let is_left =
                |stay: &mut crate::problem::model::Stay| !wide.is_empty() || stay.home().is_none();
            if task.stay.take_if(is_left).is_some() {
                choices[index] = Choice::Stay;
                task.modes.iter_mut().for_each(Vec::clear);
            } else if task.shapes().next().is_none() && !is_wide[index] {
                return None;
            }
        }
        if let Some(low) = hurries {
            hurry(instance, &mut model, low);
        }
        let mut player = Player::new(instance, Pace::Packed);
        player.begin(&choices);
        for (task, choice) in wide {
            player.place(*task, *choice);
        }
        for (node, ready) in model.ready.iter_mut().enumerate() {
            player.calendars[node].free_times(ready);
        }
        let order = wide.iter().map(|(task, _)| *task).collect();
        Some(Self { model, order, choices })
    }

    /// The part for lists as the search for weighted completion sees it.
    pub(crate) fn queue(&self, instance: &Instance) -> Queue<'_> {
        queue(instance, &self.model, Aim::Ends)
    }

    /// The gangs of the lists.
    pub(crate) fn placed(&self, instance: &Instance, lists: &Lists) -> Vec<Placed> {
        let mut placed = Vec::with_capacity(instance.tasks.len());
        for (node, list) in lists.iter().enumerate() {
            let mut free = self.model.ready[node].clone();
            for entry in list {
                let (task, lasts) = (entry.task as usize, entry.runtime);
                let head = instance.tasks[task].head;
                let start = place_after(&mut free, usize::from(entry.gpus), head, lasts);
                let spec = &self.model.tasks[task];
                let kind = self.model.nodes[node].kind;
                let strategy = entry.mode().map_or_else(
                    || spec.stay.as_ref().map_or(0, |stay| stay.strategy),
                    |mode| spec.modes[kind][mode].strategy as usize,
                );
                let (parts, stays) = (vec![(node, u32::from(entry.gpus))], entry.stays());
                placed.push(Placed { task, strategy, parts, host: 0, start, lasts, stays });
            }
        }
        placed
    }

    /// The wide gangs and then the lists as one order by start.
    pub(crate) fn genome(&self, instance: &Instance, lists: &Lists) -> Genome {
        let Self { model, .. } = self;
        let (mut order, mut choices) = (self.order.clone(), self.choices.clone());
        let is_left =
            |task: &usize| choices[*task] == Choice::Stay && !instance.tasks[*task].is_fixed;
        order.extend((0..instance.tasks.len()).filter(is_left));
        let mut listed: Vec<Option<Listed>> = vec![None; instance.tasks.len()];
        for (node, list) in lists.iter().enumerate() {
            let mut free = model.ready[node].clone();
            for entry in list {
                let task = entry.task as usize;
                let runtime = entry.runtime;
                let head = if instance.objective == Objective::Completion {
                    instance.tasks[task].head
                } else {
                    0.0
                };
                let start = place_after(&mut free, usize::from(entry.gpus), head, runtime);
                choices[task] = match entry.mode() {
                    None => Choice::Stay,
                    Some(mode) => {
                        Choice::Narrow { node, mode: unhurried(instance, model, task, node, mode) }
                    }
                };
                listed[task] = Some(Listed { start, runtime });
            }
        }
        // If the makespan counts, the tasks that wait for a task hurry it.
        let starts = || listed.iter().map(|one| one.map_or(0.0, |one| one.start)).collect();
        let keys = match instance.objective {
            Objective::Completion => starts(),
            _ => keys(instance, &listed),
        };
        let mut rest: Vec<usize> = (0..instance.tasks.len())
            .filter(|task| listed[*task].is_some() && !instance.tasks[*task].is_fixed)
            .collect();
        rest.sort_by(|left, right| keys[*left].total_cmp(&keys[*right]).then(left.cmp(right)));
        order.extend(rest);
        Genome { order, choices, backfills: true }
    }
}

/// Tasks as lists see them. A task is ready when all of its predecessors can have ended. It is due when
/// all tasks that wait for it can still end in time.
pub(crate) fn queue<'a>(instance: &Instance, model: &'a Model, aim: Aim) -> Queue<'a> {
    let duties = instance.tasks.iter().map(|task| Duty {
        weight: task.weight,
        release: task.head,
        due: task.latest_end,
        wished: task.wished,
        late_price: task.late_price,
    });
    Queue {
        model,
        duties: duties.collect(),
        until: instance.nodes.iter().map(|node| node.until).collect(),
        aim,
        least_tardiness: instance.least_tardiness(),
        late_price: instance.late_prices().0,
    }
}

/// Drops modes that are too long for the tasks before and after. On a chain of tasks each may take
/// its share of the time, and a task that starts late must end soon.
fn hurry(instance: &Instance, model: &mut Model, low: f64) {
    for (task, facts) in model.tasks.iter_mut().zip(&instance.tasks) {
        let least = facts.head + facts.shortest + facts.tail;
        let limit = if facts.after.is_empty() && facts.before.is_empty() {
            low - facts.head
        } else {
            facts.shortest * low / least
        };
        let shortest = task.shortest();
        if facts.head > 0.0 || facts.tail > 0.0 {
            let limit = limit.max(shortest);
            task.modes.iter_mut().for_each(|modes| modes.retain(|mode| mode.runtime <= limit));
        }
    }
}

/// The index among all modes of a mode that remains.
fn unhurried(instance: &Instance, model: &Model, task: usize, node: usize, mode: usize) -> usize {
    let kind = model.nodes[node].kind;
    let strategy = model.tasks[task].modes[kind][mode].strategy;
    let all = &instance.model.tasks[task].modes[kind];
    all.iter().position(|one| one.strategy == strategy).unwrap_or(mode)
}

/// Where a task is on its list, seconds.
#[derive(Debug, Clone, Copy)]
struct Listed {
    start: f64,
    runtime: f64,
}

/// The keys of the order. A task's key is its start on its list. The key is lowered so that tasks
/// that wait for it can end when the lists do, and raised to the task's earliest start.
fn keys(instance: &Instance, listed: &[Option<Listed>]) -> Vec<f64> {
    let runtime = |task: usize| listed[task].map_or(0.0, |one| one.runtime);
    let ends = listed.iter().flatten().map(|one| one.start + one.runtime);
    let end = ends.fold(0.0, f64::max);
    let mut tails = vec![0.0f64; listed.len()];
    for &task in instance.order.iter().rev() {
        let waiting = instance.tasks[task].before.iter();
        tails[task] = waiting.map(|other| runtime(*other) + tails[*other]).fold(0.0, f64::max);
    }
    let key = |(task, one): (usize, &Option<Listed>)| {
        let start = one.map_or(0.0, |one| one.start);
        let facts = &instance.tasks[task];
        let latest =
            if facts.before.is_empty() { start } else { end - tails[task] - runtime(task) };
        start.min(latest).max(facts.head)
    };
    listed.iter().enumerate().map(key).collect()
}
