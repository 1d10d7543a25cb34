//! How far a search over lists has come: its course and the best lists so far.

use crate::bounds::area::AreaBound;
use crate::course::rounds::{Course, Limits};
use crate::lists::list::{Lists, makespan};
use crate::lists::settle::{Incumbent, settled};
use crate::problem::model::Model;

/// A problem for lists, the course of its search, and the best lists so far.
pub(crate) struct Progress<'a> {
    pub(crate) model: &'a Model,
    pub(crate) bound: &'a AreaBound,
    pub(crate) course: Course,
    pub(crate) best: Incumbent,
}

impl Progress<'_> {
    /// Whether no lists are better.
    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        limits.are_met_by(self.best.value)
    }

    pub(crate) fn take(&mut self, found: Incumbent) {
        if found.value < self.best.value {
            self.best = found;
        }
    }

    /// Takes lists that a whole round left.
    pub(crate) fn offer(&mut self, lists: &Lists) {
        if makespan(self.model, lists) < self.best.value {
            let found = settled(self.model, lists.clone());
            self.take(found);
        }
    }
}
