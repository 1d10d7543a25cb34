//! Which patterns fit a node: which tasks one node can run within a limit.
//!
//! Tasks with the same modes are of one *group*; a running task has a group of its own. A *pattern* is
//! a number of tasks of each group; a task that runs on the node may also stay as it is. Each pattern is
//! decided alone ([`strip`](crate::proof::strip)). If a pattern fits, it also fits without one of its
//! tasks. So larger patterns are made from the patterns that fit, by adding one task. A pattern that
//! fits within a limit fits within all longer limits, so the patterns of other limits save decisions.

use std::collections::BTreeMap;

use crate::course::clock::Deadline;
use crate::problem::model::{Model, Stay};
use crate::proof::decide::{MAX_TASKS, SLACK, area_of_staying, least_area};
use crate::proof::strip::{Decision, Strip};

/// The tasks by group, and the parts of patterns.
pub(crate) struct Groups {
    /// The tasks of each group.
    pub(crate) tasks: Vec<Vec<usize>>,
    pub(crate) parts: Vec<Part>,
}

/// A part of a pattern: tasks of a group that are placed anew, or the running task of a group, which stays.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) group: usize,
    pub(crate) stays: bool,
}

impl Groups {
    pub(crate) fn of(model: &Model) -> Self {
        let is_running = |task: usize| model.tasks[task].stay.is_some();
        let mut tasks: Vec<Vec<usize>> = Vec::new();
        for task in 0..model.tasks.len() {
            let is_same = |group: &&mut Vec<usize>| {
                !is_running(task)
                    && !is_running(group[0])
                    && model.tasks[group[0]].has_modes_of(&model.tasks[task])
            };
            match tasks.iter_mut().find(is_same) {
                Some(group) => group.push(task),
                None => tasks.push(vec![task]),
            }
        }
        let new = (0..tasks.len()).map(|group| Part { group, stays: false });
        let running = (0..tasks.len()).filter(|group| is_running(tasks[*group][0]));
        let parts = new.chain(running.map(|group| Part { group, stays: true })).collect();
        Self { tasks, parts }
    }

    /// The tasks of a pattern that are placed anew, each with its group, and the tasks that stay.
    fn of_pattern(&self, pattern: &Pattern) -> (Vec<(usize, usize)>, Vec<usize>) {
        let (mut new, mut staying) = (Vec::new(), Vec::new());
        for (part, num) in self.parts.iter().zip(pattern) {
            let tasks = &self.tasks[part.group][..usize::from(*num)];
            if part.stays {
                staying.extend(tasks);
            } else {
                new.extend(tasks.iter().map(|task| (*task, part.group)));
            }
        }
        (new, staying)
    }

    /// The least area of a task of each part on a node, or infinity.
    pub(crate) fn areas(&self, model: &Model, node: usize, limit: f64) -> Vec<f64> {
        let area = |part: &Part| {
            let task = self.tasks[part.group][0];
            let of = &model.tasks[task];
            match of.stay.as_ref().and_then(Stay::home) {
                _ if !part.stays => least_area(model, task, node, limit),
                Some(home) if home == node => area_of_staying(of, limit),
                _ => f64::INFINITY,
            }
        };
        self.parts.iter().map(area).collect()
    }

    /// Whether a pattern has all tasks of a group.
    fn has_all(&self, pattern: &Pattern, group: usize) -> bool {
        let of_group = self.parts.iter().zip(pattern).filter(|(part, _)| part.group == group);
        of_group.map(|(_, num)| usize::from(*num)).sum::<usize>() == self.tasks[group].len()
    }
}

/// The number of tasks of each part.
pub(crate) type Pattern = Vec<u8>;

/// The gangs of a pattern that are placed anew, by order of placement: each one's group and mode.
pub(crate) type Order = Vec<(usize, usize)>;

/// The patterns that fit a node.
pub(crate) type Fitting = BTreeMap<Pattern, Fit>;

/// A pattern that fits a node.
pub(crate) struct Fit {
    /// An order in which the node can run it.
    pub(crate) order: Order,
    /// Whether no pattern that fits has one task more.
    pub(crate) is_largest: bool,
}

/// The patterns that fit a node of one class within a limit.
pub(crate) struct Patterns<'a> {
    pub(crate) model: &'a Model,
    pub(crate) groups: &'a Groups,
    pub(crate) node: usize,
    pub(crate) limit: f64,
    pub(crate) deadline: Deadline<'a>,
    /// The least area of a task of each part.
    pub(crate) areas: Vec<f64>,
    /// The patterns that fit within a shorter limit, if they are known.
    pub(crate) shorter: Option<&'a Fitting>,
    /// The patterns that fit within a longer limit, if they are known.
    pub(crate) longer: Option<&'a Fitting>,
    /// More patterns than this are too many.
    pub(crate) most: usize,
}

/// Why not all patterns were found.
pub(crate) enum Stopped {
    /// There are too many.
    TooMany,
    /// The deadline came first, or a pattern is too large to be decided.
    Undecided,
}

impl Patterns<'_> {
    /// All patterns that fit, found from the smallest on.
    pub(crate) fn all(&self) -> Result<Fitting, Stopped> {
        let empty = vec![0; self.groups.parts.len()];
        let mut fitting = Fitting::new();
        fitting.insert(empty.clone(), Fit { order: Order::new(), is_largest: true });
        let mut level = vec![empty];
        while !level.is_empty() {
            let mut next = Vec::new();
            for pattern in level.iter().flat_map(|pattern| self.larger(pattern)) {
                if !smaller(&pattern).all(|smaller| fitting.contains_key(&smaller)) {
                    continue;
                }
                let Some(order) = self.order(&pattern)? else { continue };
                if fitting.len() >= self.most {
                    return Err(Stopped::TooMany);
                }
                for smaller in smaller(&pattern) {
                    fitting.entry(smaller).and_modify(|fit| fit.is_largest = false);
                }
                fitting.insert(pattern.clone(), Fit { order, is_largest: true });
                next.push(pattern);
            }
            level = next;
        }
        Ok(fitting)
    }

    /// The patterns with one task more, of the last part or of a part behind it. So each pattern is made
    /// once.
    fn larger<'b>(&'b self, pattern: &'b Pattern) -> impl Iterator<Item = Pattern> + 'b {
        let last = pattern.iter().rposition(|num| *num > 0).unwrap_or(0);
        let has_more =
            move |part: &usize| !self.groups.has_all(pattern, self.groups.parts[*part].group);
        (last..pattern.len()).filter(has_more).map(|part| {
            let mut larger = pattern.clone();
            larger[part] += 1;
            larger
        })
    }

    /// An order in which the node can run a pattern within the limit; `None` if it can't.
    fn order(&self, pattern: &Pattern) -> Result<Option<Order>, Stopped> {
        if let Some(fit) = self.shorter.and_then(|patterns| patterns.get(pattern)) {
            return Ok(Some(fit.order.clone()));
        }
        if self.longer.is_some_and(|patterns| !patterns.contains_key(pattern)) {
            return Ok(None);
        }
        let of_parts = pattern.iter().zip(&self.areas).filter(|(num, _)| **num > 0);
        let area: f64 = of_parts.map(|(num, area)| f64::from(*num) * area).sum();
        let gpus = f64::from(self.model.nodes[self.node].gpus);
        if area > self.limit * gpus * (1.0 + SLACK) {
            return Ok(None);
        }
        let (new, staying) = self.groups.of_pattern(pattern);
        if new.len() > MAX_TASKS || self.deadline.is_over() {
            return Err(Stopped::Undecided);
        }
        let tasks: Vec<usize> = new.iter().map(|(task, _)| *task).collect();
        let strip = Strip::new(self.model, self.node, &tasks, &staying, self.limit);
        let mut unlimited = u64::MAX;
        match strip.decide(self.deadline, &mut unlimited) {
            Decision::Fits(order) => {
                Ok(Some(order.into_iter().map(|(index, mode)| (new[index].1, mode)).collect()))
            }
            Decision::Impossible => Ok(None),
            Decision::Unknown => Err(Stopped::Undecided),
        }
    }
}

/// The patterns with one task less.
fn smaller(pattern: &Pattern) -> impl Iterator<Item = Pattern> + '_ {
    (0..pattern.len()).filter(|part| pattern[*part] > 0).map(|part| {
        let mut smaller = pattern.clone();
        smaller[part] -= 1;
        smaller
    })
}
