//! A problem with all of its facts as numbers, for the general search, its bounds and the exact
//! program.
//!
//! The pruned [`Model`] knows devices and runtimes. Beside it stand releases, precedence,
//! deadlines, weights, the windows and prices of nodes, the nodes that a task may use, and tasks
//! that run already. Dropping dominated modes stays right with all of these: a mode that holds no
//! more devices for no longer can replace the other mode anywhere.
//!
//! A *way* is a manner to run a task: to *stay* as it is, or a mode on a place. If the task runs
//! already, every way but staying lasts the switch cost longer.

use std::collections::BTreeSet;

use saturn_core::{Objective, Problem, ProblemTask, seconds_late};

use crate::completion::build::Guide;
use crate::general::shared::{MANY_PLACES, Shared, Window};
use crate::problem::model::{Model, Stay};
use crate::problem::modes::{Mode, WideMode};

/// A node's price and window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NodeFacts {
    /// The price of a second during which it holds anything.
    pub(crate) price: f64,
    /// When it arrives, seconds.
    pub(crate) from: f64,
    /// When it leaves, seconds; may be infinite.
    pub(crate) until: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct TaskFacts {
    pub(crate) release: f64,
    /// Tasks that must have ended before it starts, and tasks that wait for it.
    pub(crate) after: Vec<usize>,
    pub(crate) before: Vec<usize>,
    pub(crate) weight: f64,
    /// When it must have ended, seconds; may be infinite.
    pub(crate) due: f64,
    /// When it should have ended, seconds, and the price of a second after that; infinite and 0
    /// without a soft deadline.
    pub(crate) wished: f64,
    pub(crate) late_price: f64,
    /// Whether staying is the only way.
    pub(crate) is_fixed: bool,
    /// The nodes that it may use; `None` if it may use all.
    pub(crate) nodes: Option<Vec<usize>>,
    /// No plan starts it earlier.
    pub(crate) head: f64,
    /// No plan ends it earlier; infinite if it has no way.
    pub(crate) earliest_end: f64,
    /// No plan that keeps the deadlines ends it later.
    pub(crate) latest_end: f64,
    /// The shortest time that any way takes.
    pub(crate) shortest: f64,
    /// Least time from its end to the end of the last task that waits for it.
    pub(crate) tail: f64,
}

impl TaskFacts {
    /// The price of ending then.
    #[inline]
    pub(crate) fn tardiness(&self, end: f64) -> f64 {
        self.late_price * seconds_late(self.wished, end)
    }
}

/// The shape of a way, as bounds need it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Way {
    pub(crate) kind: usize,
    /// Devices held at least.
    pub(crate) held: u32,
    pub(crate) runtime: f64,
    /// When it can start at the earliest.
    pub(crate) from: f64,
    /// When it must have ended for its nodes to be there.
    pub(crate) until: f64,
    /// The least price of a second of it, in its share of its nodes.
    pub(crate) share: f64,
    /// The price of a second of it alone, on whole nodes.
    pub(crate) alone: f64,
}

#[derive(Debug)]
pub(crate) struct Instance<'a> {
    pub(crate) model: &'a Model,
    pub(crate) objective: Objective,
    pub(crate) nodes: Vec<NodeFacts>,
    pub(crate) tasks: Vec<TaskFacts>,
    /// Every task after its predecessors.
    pub(crate) order: Vec<usize>,
    /// The worth of a second of a device of each node in the search, 1 on average. Otherwise work
    /// would flow from slow nodes, where it is many seconds, to fast nodes, where it is few.
    pub(crate) worth: Vec<f64>,
    /// The first node of each set of nodes that are alike.
    classes: Vec<usize>,
    /// For weighted completion, what its bound says of good plans; set once that is known.
    pub(crate) guide: Option<Guide>,
    /// Windows for all tasks, if there are too many tasks and nodes to look at each way of each task.
    /// Ways are relaxed then.
    shared: Option<Shared>,
}

impl<'a> Instance<'a> {
    /// `prices` are those of the area bound.
    pub(crate) fn new(
        problem: &Problem,
        model: &'a Model,
        objective: Objective,
        prices: &[f64],
    ) -> Self {
        let nodes: Vec<NodeFacts> = problem
            .cluster
            .nodes
            .iter()
            .map(|node| NodeFacts {
                price: node.price_per_hour / 3600.0,
                from: node.available_from_s,
                until: node.until_s(),
            })
            .collect();
        let classes = classes(model, &nodes);
        let tasks = problem.tasks.iter().zip(&model.tasks);
        let tasks: Vec<TaskFacts> =
            tasks.map(|(task, of)| facts(problem, task, of.places.as_deref())).collect();
        let num_places = |task: &TaskFacts| task.nodes.as_ref().map_or(classes.len(), Vec::len);
        let has_many = tasks.iter().map(num_places).sum::<usize>() > MANY_PLACES;
        let shared = has_many.then(|| Shared::new(model, &nodes));
        let worth = model.nodes.iter().map(|node| prices[node.kind]).collect();
        let mut instance = Self {
            model,
            objective,
            nodes,
            tasks,
            order: Vec::new(),
            worth,
            classes,
            guide: None,
            shared,
        };
        instance.link(problem);
        instance.set_windows();
        instance
    }

    /// Resolves precedence, and sorts the tasks by it.
    fn link(&mut self, problem: &Problem) {
        let index: std::collections::BTreeMap<&str, usize> = problem
            .tasks
            .iter()
            .enumerate()
            .map(|(index, one)| (one.name.as_str(), index))
            .collect();
        for (task, spec) in problem.tasks.iter().enumerate() {
            for other in spec.after.iter().filter_map(|name| index.get(name.as_str())) {
                if !self.tasks[task].after.contains(other) {
                    self.tasks[task].after.push(*other);
                    self.tasks[*other].before.push(task);
                }
            }
        }
        let mut num_open: Vec<usize> = self.tasks.iter().map(|task| task.after.len()).collect();
        self.order = (0..self.tasks.len()).filter(|task| num_open[*task] == 0).collect();
        let mut next = 0;
        while let Some(&task) = self.order.get(next) {
            next += 1;
            for &waiting in &self.tasks[task].before {
                num_open[waiting] -= 1;
                if num_open[waiting] == 0 {
                    self.order.push(waiting);
                }
            }
        }
    }

    /// Computes heads, tails, and the times that follow from them.
    fn set_windows(&mut self) {
        for position in 0..self.order.len() {
            let task = self.order[position];
            let ready = self.tasks[task].after.iter().map(|other| self.tasks[*other].earliest_end);
            let head = ready.fold(self.tasks[task].release, f64::max);
            self.tasks[task].head = head;
            let (mut end, mut shortest) = (f64::INFINITY, f64::INFINITY);
            self.each_way(task, |way| {
                let ends = way.from.max(head) + way.runtime;
                if ends <= way.until * (1.0 + SLACK) {
                    end = end.min(ends);
                    shortest = shortest.min(way.runtime);
                }
            });
            self.tasks[task].earliest_end = end;
            self.tasks[task].shortest = shortest;
        }
        for position in (0..self.order.len()).rev() {
            let task = self.order[position];
            let (mut tail, mut latest) = (0.0f64, self.tasks[task].due);
            for other in &self.tasks[task].before {
                let other = &self.tasks[*other];
                tail = tail.max(other.shortest + other.tail);
                // If both times are large and nearly equal, the rounding error of their difference
                // is large beside the difference. So the slack is a part of the large time.
                latest = latest.min(other.latest_end * (1.0 + SLACK) - other.shortest);
            }
            self.tasks[task].tail = tail;
            self.tasks[task].latest_end = latest;
        }
    }

    /// Whether lists can't say the problem: host memory binds, or one node's plan may depend on another
    /// node's, by precedence, by an owner's cap or by gangs on several nodes.
    pub(crate) fn is_beyond_lists(&self) -> bool {
        self.model.host_binds
            || self.model.caps.bind()
            || !self.model.is_separable()
            || self.tasks.iter().any(|task| !task.after.is_empty())
    }

    /// Whether there is something to wait for, or to be in time for.
    pub(crate) fn has_times(&self) -> bool {
        let has_window = |node: &NodeFacts| node.from > 0.0 || node.until.is_finite();
        let is_timed = |task: &TaskFacts| {
            let has_end = task.due.is_finite() || task.wished.is_finite();
            task.release > 0.0 || !task.after.is_empty() || has_end
        };
        self.nodes.iter().any(has_window) || self.tasks.iter().any(is_timed)
    }

    /// For each task, which tasks must have ended before it starts, directly or through others.
    pub(crate) fn predecessors(&self) -> Vec<Vec<bool>> {
        let mut all = vec![vec![false; self.tasks.len()]; self.tasks.len()];
        for &task in &self.order {
            for &before in &self.tasks[task].after {
                let theirs = std::mem::take(&mut all[before]);
                for (own, their) in all[task].iter_mut().zip(&theirs) {
                    *own |= their;
                }
                all[before] = theirs;
                all[task][before] = true;
            }
        }
        all
    }

    /// Whether two tasks can take each other's place in any plan.
    pub(crate) fn are_alike(&self, left: usize, right: usize) -> bool {
        let (left_modes, right_modes) = (&self.model.tasks[left], &self.model.tasks[right]);
        let counts_alike = self.model.caps.of(left) == self.model.caps.of(right);
        let (left, right) = (&self.tasks[left], &self.tasks[right]);
        let may_stay = left_modes.stay.is_some() || right_modes.stay.is_some();
        !may_stay
            && counts_alike
            && left_modes.has_modes_of(right_modes)
            && (left.release, left.weight, left.due) == (right.release, right.weight, right.due)
            && (left.wished, left.late_price) == (right.wished, right.late_price)
            && left.nodes == right.nodes
            && left.after == right.after
            && left.before == right.before
    }

    /// The nodes that `task` may use.
    pub(crate) fn nodes_of(&self, task: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        let some = self.tasks[task].nodes.as_ref();
        let all = if some.is_some() { 0 } else { self.nodes.len() };
        (0..all).chain(some.into_iter().flatten().copied())
    }

    /// Whether the nodes that `task` may use have enough devices for a wide mode.
    pub(crate) fn has_nodes_for(&self, task: usize, mode: &WideMode) -> bool {
        let of_kind = self.nodes_of(task).filter(|node| self.model.can_hold_part(*node, mode));
        of_kind.map(|node| self.model.nodes[node].gpus).sum::<u32>() >= mode.gpus
    }

    /// The staying of `task`, if it may stay where it runs.
    pub(crate) fn stay(&self, task: usize) -> Option<&Stay> {
        self.model.tasks[task].stay.as_ref()
    }

    /// Whether `task` can stay where it runs, as far as its nodes go.
    pub(crate) fn may_stay(&self, task: usize) -> bool {
        self.stay(task).is_some()
    }

    /// Whether the ways of tasks are relaxed: their windows are merged, and their places don't count.
    pub(crate) fn has_relaxed_ways(&self) -> bool {
        self.shared.is_some()
    }

    /// Tells `visit` the shape of every way of `task`, once for each class of nodes. Relaxed ways are
    /// told once for each mode.
    pub(crate) fn each_way(&self, task: usize, visit: impl FnMut(Way)) {
        self.each_way_in(task, 1, visit);
    }

    /// The same with up to `parts` relaxed ways for each mode.
    pub(crate) fn each_way_in(&self, task: usize, parts: usize, mut visit: impl FnMut(Way)) {
        let facts = &self.tasks[task];
        if let Some(stay) = self.stay(task) {
            let parts = || stay.parts().map(|(node, gpus)| (node, f64::from(gpus)));
            visit(Way {
                kind: stay.kind,
                held: stay.held(),
                runtime: stay.runtime,
                from: 0.0,
                // It has started. It ends then, or not in time if its nodes leave before.
                until: parts().map(|(node, _)| self.nodes[node].until).fold(stay.runtime, f64::min),
                share: parts().map(|(node, gpus)| self.device_price(node) * gpus).sum(),
                alone: parts().map(|(node, _)| self.nodes[node].price).sum(),
            });
        }
        if let Some(shared) = &self.shared {
            return self.each_relaxed_way(shared, task, parts, visit);
        }
        let some = facts.nodes.as_deref().unwrap_or(&self.classes);
        for &node in some {
            for mode in self.model.modes_on(task, node) {
                visit(self.narrow_way(node, mode));
            }
        }
        for mode in &self.model.tasks[task].wide {
            if let Some(way) = self.wide_way(task, mode, some) {
                visit(way);
            }
        }
    }

    /// Tells `visit` the relaxed ways of a task's modes.
    fn each_relaxed_way(
        &self,
        shared: &Shared,
        task: usize,
        parts: usize,
        mut visit: impl FnMut(Way),
    ) {
        let task = &self.model.tasks[task];
        for (kind, modes) in task.modes.iter().enumerate() {
            for mode in modes {
                for &Window { from, until, per_device, alone } in
                    shared.windows(kind, mode.gpus, parts)
                {
                    let share = per_device * f64::from(mode.gpus);
                    let (held, runtime) = (mode.gpus, mode.runtime);
                    visit(Way { kind, held, runtime, from, until, share, alone });
                }
            }
        }
        for mode in &task.wide {
            if let Some(Window { from, until, per_device, .. }) = shared.of_kind(mode.kind) {
                let (kind, held, runtime) = (mode.kind, mode.held, mode.runtime);
                let share = per_device * f64::from(held);
                visit(Way { kind, held, runtime, from, until, share, alone: share });
            }
        }
    }

    /// Price of a second of one device, where all devices of its node are held.
    pub(crate) fn device_price(&self, node: usize) -> f64 {
        self.nodes[node].price / f64::from(self.model.nodes[node].gpus)
    }

    fn narrow_way(&self, node: usize, mode: &Mode) -> Way {
        let NodeFacts { price, from, until } = self.nodes[node];
        Way {
            kind: self.model.nodes[node].kind,
            held: mode.gpus,
            runtime: mode.runtime,
            from,
            until,
            share: self.device_price(node) * f64::from(mode.gpus),
            alone: price,
        }
    }

    /// A wide mode on the best of the nodes that it may use: no gang of the mode does better.
    /// `None` if the nodes are too few.
    fn wide_way(&self, task: usize, mode: &WideMode, some: &[usize]) -> Option<Way> {
        let of_kind = || some.iter().copied().filter(|node| self.model.can_hold_part(*node, mode));
        if !self.has_nodes_for(task, mode) {
            return None;
        }
        let least =
            |value: &dyn Fn(usize) -> f64| of_kind().map(value).fold(f64::INFINITY, f64::min);
        let per_device = least(&|node| self.device_price(node));
        Some(Way {
            kind: mode.kind,
            held: mode.held,
            runtime: mode.runtime,
            from: least(&|node| self.nodes[node].from),
            until: of_kind().map(|node| self.nodes[node].until).fold(0.0, f64::max),
            share: per_device * f64::from(mode.held),
            alone: per_device * f64::from(mode.held),
        })
    }

    /// A time by which every plan with earliest starts has ended, and also some best plan under the
    /// objective.
    pub(crate) fn horizon(&self) -> f64 {
        let begin = self.nodes.iter().map(|node| node.from);
        let begin = begin.chain(self.tasks.iter().map(|task| task.release)).fold(0.0, f64::max);
        let longest = |task: usize| {
            let mut longest = 0.0f64;
            self.each_way(task, |way| longest = longest.max(way.runtime));
            longest
        };
        let serial: f64 = (0..self.tasks.len()).map(longest).sum();
        let due = self.tasks.iter().map(|task| task.due).fold(0.0, f64::max);
        (begin + serial).min(due)
    }
}

/// Comparisons of times allow this much, relative, in favour of "possible".
pub(crate) const SLACK: f64 = 1e-9;

/// The first node of each set of nodes that are alike, in order.
fn classes(model: &Model, nodes: &[NodeFacts]) -> Vec<usize> {
    let mut known = BTreeSet::new();
    let is_first = |index: &usize| {
        // Zeros of both signs are equal.
        let [price, from, until] = [nodes[*index].price, nodes[*index].from, nodes[*index].until]
            .map(|one| (one + 0.0).to_bits());
        let node = model.nodes[*index];
        known.insert((node.gpus, node.kind, node.host, price, from, until))
    };
    (0..nodes.len()).filter(is_first).collect()
}

fn facts(problem: &Problem, task: &ProblemTask, places: Option<&[bool]>) -> TaskFacts {
    let usable = |places: &[bool]| (0..places.len()).filter(|node| places[*node]).collect();
    TaskFacts {
        release: task.release_s,
        after: Vec::new(),
        before: Vec::new(),
        weight: task.weight,
        due: problem.due_s(task),
        wished: task.soft_deadline().map_or(f64::INFINITY, |(due_s, _)| due_s),
        late_price: task.soft_deadline().map_or(0.0, |(_, price)| price),
        is_fixed: task.running.as_ref().is_some_and(|running| !running.movable),
        nodes: places.map(usable),
        head: 0.0,
        earliest_end: f64::INFINITY,
        latest_end: f64::INFINITY,
        shortest: f64::INFINITY,
        tail: 0.0,
    }
}
