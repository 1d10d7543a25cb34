//! Which loads fit a node: which tasks one node can run within a limit.
//!
//! Tasks with the same modes are of one *shape*; a running task has a shape of its own. A *load* is so
//! many tasks of each shape; a task that runs on the node may also stay as it is. Whether a load fits
//! is decided for each load alone ([`strip`](crate::proof::strip)). Every part of a load that fits, fits
//! too. So the loads that fit are found by adding one task after the other. A load that fits within a
//! limit fits within all longer limits, so what is known of other limits need not be decided again.

use std::collections::BTreeMap;

use crate::course::clock::Deadline;
use crate::problem::model::{Model, Stay};
use crate::proof::decide::{SLACK, area_of_staying, least_area};
use crate::proof::strip::{Decision, Strip};

/// More tasks than this are beyond the decision of a node.
const MAX_TASKS_OF_LOAD: usize = 24;

/// The tasks by shape, and what loads are made of.
pub(crate) struct Shapes {
    /// The tasks of each shape.
    pub(crate) tasks: Vec<Vec<usize>>,
    pub(crate) parts: Vec<Part>,
}

/// What a load is made of: tasks of a shape, placed anew or, where one runs, as it is.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) shape: usize,
    pub(crate) stays: bool,
}

impl Shapes {
    pub(crate) fn of(model: &Model) -> Self {
        let is_running = |task: usize| model.tasks[task].stay.is_some();
        let mut tasks: Vec<Vec<usize>> = Vec::new();
        for task in 0..model.tasks.len() {
            let is_same = |shape: &&mut Vec<usize>| {
                !is_running(task)
                    && !is_running(shape[0])
                    && model.tasks[shape[0]].has_modes_of(&model.tasks[task])
            };
            match tasks.iter_mut().find(is_same) {
                Some(shape) => shape.push(task),
                None => tasks.push(vec![task]),
            }
        }
        let new = (0..tasks.len()).map(|shape| Part { shape, stays: false });
        let running = (0..tasks.len()).filter(|shape| is_running(tasks[*shape][0]));
        let parts = new.chain(running.map(|shape| Part { shape, stays: true })).collect();
        Self { tasks, parts }
    }

    /// The tasks of a load that are placed anew, each with its shape, and the tasks that stay.
    fn of_load(&self, load: &Load) -> (Vec<(usize, usize)>, Vec<usize>) {
        let (mut new, mut staying) = (Vec::new(), Vec::new());
        for (part, num) in self.parts.iter().zip(load) {
            let tasks = &self.tasks[part.shape][..usize::from(*num)];
            if part.stays {
                staying.extend(tasks);
            } else {
                new.extend(tasks.iter().map(|task| (*task, part.shape)));
            }
        }
        (new, staying)
    }

    /// The least area of a task of each part on a node, or infinity.
    pub(crate) fn areas(&self, model: &Model, node: usize, limit: f64) -> Vec<f64> {
        let area = |part: &Part| {
            let task = self.tasks[part.shape][0];
            let of = &model.tasks[task];
            match of.stay.as_ref().and_then(Stay::home) {
                _ if !part.stays => least_area(model, task, node, limit),
                Some(home) if home == node => area_of_staying(of, limit),
                _ => f64::INFINITY,
            }
        };
        self.parts.iter().map(area).collect()
    }

    /// Whether a load has all tasks of a shape.
    fn has_all(&self, load: &Load, shape: usize) -> bool {
        let of_shape = self.parts.iter().zip(load).filter(|(part, _)| part.shape == shape);
        of_shape.map(|(_, num)| usize::from(*num)).sum::<usize>() == self.tasks[shape].len()
    }
}

/// The number of tasks of each part.
pub(crate) type Load = Vec<u8>;

/// The gangs of a load that are placed anew, by order of placement: each one's shape and mode.
pub(crate) type Order = Vec<(usize, usize)>;

/// The loads that fit a node.
pub(crate) type Fitting = BTreeMap<Load, Fit>;

/// A load that fits a node.
pub(crate) struct Fit {
    /// An order in which the node can run it.
    pub(crate) order: Order,
    /// Whether no load that fits has one task more.
    pub(crate) is_largest: bool,
}

/// The loads that fit a node of one class within a limit.
pub(crate) struct Loads<'a> {
    pub(crate) model: &'a Model,
    pub(crate) shapes: &'a Shapes,
    pub(crate) node: usize,
    pub(crate) limit: f64,
    pub(crate) deadline: Deadline<'a>,
    /// The least area of a task of each part.
    pub(crate) areas: Vec<f64>,
    /// Those that fit within a limit that is no longer, and no shorter.
    pub(crate) shorter: Option<&'a Fitting>,
    pub(crate) longer: Option<&'a Fitting>,
    /// More loads than this are too many.
    pub(crate) most: usize,
}

/// Why not all loads were found.
pub(crate) enum Stopped {
    /// There are too many.
    TooMany,
    /// The deadline came first, or a load is too large to be decided.
    Undecided,
}

impl Loads<'_> {
    /// All loads that fit, found from the smallest on.
    pub(crate) fn all(&self) -> Result<Fitting, Stopped> {
        let mut fitting = Fitting::new();
        let mut level = vec![vec![0; self.shapes.parts.len()]];
        while !level.is_empty() {
            let mut larger = Vec::new();
            for load in &level {
                let last = load.iter().rposition(|num| *num > 0).unwrap_or(0);
                for part in last..load.len() {
                    if self.shapes.has_all(load, self.shapes.parts[part].shape) {
                        continue;
                    }
                    let mut load = load.clone();
                    load[part] += 1;
                    if !smaller(&load).all(|part| fitting.contains_key(&part)) {
                        continue;
                    }
                    let Some(order) = self.order(&load)? else { continue };
                    if fitting.len() == self.most {
                        return Err(Stopped::TooMany);
                    }
                    for part in smaller(&load) {
                        fitting.entry(part).and_modify(|fit| fit.is_largest = false);
                    }
                    fitting.insert(load.clone(), Fit { order, is_largest: true });
                    larger.push(load);
                }
            }
            level = larger;
        }
        Ok(fitting)
    }

    /// An order in which the node can run a load within the limit; `None` if it can't.
    fn order(&self, load: &Load) -> Result<Option<Order>, Stopped> {
        if let Some(fit) = self.shorter.and_then(|loads| loads.get(load)) {
            return Ok(Some(fit.order.clone()));
        }
        if self.longer.is_some_and(|loads| !loads.contains_key(load)) {
            return Ok(None);
        }
        let of_parts = load.iter().zip(&self.areas).filter(|(num, _)| **num > 0);
        let area: f64 = of_parts.map(|(num, area)| f64::from(*num) * area).sum();
        let gpus = f64::from(self.model.nodes[self.node].gpus);
        if area > self.limit * gpus * (1.0 + SLACK) {
            return Ok(None);
        }
        let (new, staying) = self.shapes.of_load(load);
        if new.len() > MAX_TASKS_OF_LOAD || self.deadline.is_over() {
            return Err(Stopped::Undecided);
        }
        let tasks: Vec<usize> = new.iter().map(|(task, _)| *task).collect();
        let strip = Strip::new(self.model, self.node, &tasks, &staying, self.limit);
        match strip.decide(self.deadline, &mut u64::MAX.clone()) {
            Decision::Fits(order) => {
                Ok(Some(order.into_iter().map(|(index, mode)| (new[index].1, mode)).collect()))
            }
            Decision::Impossible => Ok(None),
            Decision::Unknown => Err(Stopped::Undecided),
        }
    }
}

/// The loads of one task less, but for the load of no task.
fn smaller(load: &Load) -> impl Iterator<Item = Load> + '_ {
    let is_one = load.iter().sum::<u8>() == 1;
    (0..load.len()).filter(move |part| !is_one && load[*part] > 0).map(|part| {
        let mut smaller = load.clone();
        smaller[part] -= 1;
        smaller
    })
}
