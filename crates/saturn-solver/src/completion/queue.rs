//! A problem as the lists see it, and the value of its plans.

use std::cmp::Ordering;

use saturn_core::seconds_late;

use crate::lists::list::{Entry, Lists};
use crate::lists::settle::settle;
use crate::problem::model::Model;
use crate::problem::tardiness::compare_tardiness;
use crate::problem::timeline::{lateness, place_after};

/// The requirements of a task beside devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Duty {
    /// The weight of a second of its end.
    pub(crate) weight: f64,
    /// It starts no earlier, seconds.
    pub(crate) release: f64,
    /// It must have ended by then, seconds; may be infinite.
    pub(crate) due: f64,
    /// It should have ended by then, seconds, at a price of each second after that; infinite and 0
    /// without a soft deadline.
    pub(crate) wished: f64,
    pub(crate) late_price: f64,
}

/// What makes lists good.
#[derive(Debug, Clone)]
pub(crate) enum Aim {
    /// Gangs end early, each by its task's weight.
    Ends,
    /// Gangs end by a time.
    By(Target),
}

/// A time by which all gangs should end.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) end: f64,
    /// What a device-second costs, in device-seconds after that time.
    pub(crate) load: f64,
    /// By node: the worth of a device-second.
    pub(crate) worth: Vec<f64>,
}

impl Target {
    /// What a gang costs.
    #[inline]
    fn cost(&self, node: usize, entry: &Entry, end: f64) -> f64 {
        let late = f64::from(entry.gpus) * lateness(end, self.end);
        self.worth[node] * (late + self.load * entry.area())
    }
}

/// A problem each of whose tasks has a narrow mode or stays. Nodes arrive as `Model::ready` says.
#[derive(Debug)]
pub(crate) struct Queue<'a> {
    pub(crate) model: &'a Model,
    /// By task.
    pub(crate) duties: Vec<Duty>,
    /// By node: when it leaves, seconds; may be infinite.
    pub(crate) until: Vec<f64>,
    pub(crate) aim: Aim,
    /// No plan is less tardy.
    pub(crate) least_tardiness: f64,
    /// The mean price of a second after a soft deadline; 1 without any.
    pub(crate) late_price: f64,
}

/// Lateness up to this, relative to the end, is rounding. It is less than a plan may miss its times
/// by, so a plan that is not late here is valid.
const ROUNDING: f64 = 1e-12;
/// Sums of missed seconds that differ by less, relative, are equal.
const EQUAL: f64 = 1e-9;

impl Queue<'_> {
    /// The mean weight of a task.
    pub(crate) fn mean_weight(&self) -> f64 {
        self.duties.iter().map(|duty| duty.weight).sum::<f64>() / self.duties.len().max(1) as f64
    }

    /// Seconds by which a task on a node that leaves at `until` ends too late.
    #[inline]
    pub(crate) fn lateness(&self, task: usize, until: f64, end: f64) -> f64 {
        let late = end - self.duties[task].due.min(until);
        if late > ROUNDING * (1.0 + end) { late } else { 0.0 }
    }

    /// What a gang adds to the merit of its node's list, and the fines for what it misses.
    #[inline]
    pub(crate) fn judged(&self, fine: Fine, node: usize, entry: &Entry, end: f64) -> (Merit, f64) {
        let task = entry.task as usize;
        let duty = self.duties[task];
        let missed = self.lateness(task, self.until[node], end);
        let tardiness = duty.late_price * seconds_late(duty.wished, end);
        let mut fined = 0.0;
        if missed > 0.0 {
            fined += fine.fee + fine.rate * missed;
        }
        if tardiness > 0.0 {
            fined += fine.fee + fine.rate * tardiness / self.late_price;
        }
        let value = match &self.aim {
            Aim::Ends => duty.weight * end,
            Aim::By(target) => target.cost(node, entry, end),
        };
        (Merit { missed, tardiness, value }, fined)
    }

    /// The merit of lists.
    pub(crate) fn merit(&self, lists: &Lists) -> Merit {
        let mut merit = Merit::default();
        for (node, list) in lists.iter().enumerate() {
            merit += self.merit_of(node, list);
        }
        merit
    }

    /// The merit of the list of one node.
    pub(crate) fn merit_of(&self, node: usize, list: &[Entry]) -> Merit {
        let mut free = self.model.ready[node].clone();
        let mut merit = Merit::default();
        for entry in list {
            let task = entry.task as usize;
            let duty = self.duties[task];
            let start =
                place_after(&mut free, usize::from(entry.gpus), duty.release, entry.runtime);
            let end = start + entry.runtime;
            merit += self.judged(Fine::NONE, node, entry, end).0;
        }
        merit
    }

    /// The lists, with every running task that was moved for nothing put back, and their merit.
    pub(crate) fn settled(&self, mut lists: Lists) -> (Merit, Lists) {
        let all = |changes: &[(usize, Vec<Entry>)]| {
            let mut merit = Merit::default();
            for (node, list) in changes {
                merit += self.merit_of(*node, list);
            }
            merit
        };
        settle(self.model, &mut lists, |before, after| !all(before).beats(all(after)));
        (self.merit(&lists), lists)
    }
}

/// The merit of a plan, or of a part of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Merit {
    /// Seconds by which gangs end too late, summed; exactly 0 if none does.
    pub(crate) missed: f64,
    /// The price of missing soft deadlines; exactly 0 if none is missed.
    pub(crate) tardiness: f64,
    /// The sum of weight times end.
    pub(crate) value: f64,
}

impl Merit {
    /// Whether this plan is better than another: less late; or as late and less tardy; or as tardy
    /// and worth less.
    pub(crate) fn beats(self, other: Self) -> bool {
        if self.missed < other.missed * (1.0 - EQUAL) {
            return true;
        }
        if self.missed > other.missed * (1.0 + EQUAL) {
            return false;
        }
        match compare_tardiness(self.tardiness, other.tardiness) {
            Ordering::Less => true,
            Ordering::Equal => self.value < other.value * (1.0 - 1e-12),
            Ordering::Greater => false,
        }
    }
}

impl std::ops::AddAssign for Merit {
    fn add_assign(&mut self, other: Self) {
        self.missed += other.missed;
        self.tardiness += other.tardiness;
        self.value += other.value;
    }
}

/// The price of ending too late in an annealing, in the units of the objective. A soft deadline costs
/// as much, in proportion to its own price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fine {
    /// Once for each gang: small misses must not be worth while.
    pub(crate) fee: f64,
    /// For each second.
    pub(crate) rate: f64,
}

impl Fine {
    /// Where only the merit is asked for.
    pub(crate) const NONE: Self = Self { fee: 0.0, rate: 0.0 };
}
