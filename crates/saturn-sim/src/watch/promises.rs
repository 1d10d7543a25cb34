//! What a plan promises comes.
//!
//! A plan says when each task starts and ends. In a run that nothing disturbs, attempts take as long
//! as their trials say, nothing goes wrong and nothing happens from outside. Whoever reads the last
//! plan there may rely on its times, also where tasks wait for host memory. Plans don't know how long
//! trials take: a plan promises nothing if something is measured when it is made, or after that.
//! Where host memory is short, a plan that stops tasks promises nothing either: a task may get the
//! memory of one that stops before the forecast lets it, and start sooner (seeds 25 and 861).

use std::collections::BTreeSet;
use std::sync::Arc;

use saturn_core::Gang;
use saturn_engine::{AttemptId, Purpose, Record, RunPlan, TaskId};

use crate::driving::seam::{Violation, broken};

/// Times that differ by less are the same, seconds.
const TOLERANCE_S: f64 = 1e-6;

/// The last plan, and what came otherwise than it says.
#[derive(Debug, Default)]
pub(super) struct Promises {
    plan: Option<Arc<RunPlan>>,
    /// Inspections and trials that have not ended.
    measuring: BTreeSet<AttemptId>,
    /// Something is measured beside the plan.
    is_void: bool,
    /// Tasks are stopped for the plan.
    stops: bool,
    otherwise: Option<String>,
    has_ended: bool,
}

impl Promises {
    pub(super) fn stored(&mut self, record: &Record, now_s: f64) {
        match record {
            Record::Planned { plan } => {
                self.plan = Some(Arc::clone(plan));
                self.is_void = !self.measuring.is_empty();
                self.stops = false;
                self.otherwise = None;
            }
            Record::Launched { task, purpose: Purpose::Train, gang, until_step, .. } => {
                self.started(*task, gang, *until_step, now_s);
            }
            Record::Stopping { .. } => self.stops = true,
            Record::Launched { attempt, .. } => {
                self.measuring.insert(*attempt);
                self.is_void = true;
            }
            Record::Ended { attempt, .. } => {
                self.measuring.remove(attempt);
            }
            Record::TaskEnded { task, .. } => self.ended(*task, now_s),
            Record::RunEnded { .. } => self.has_ended = true,
            _ => {}
        }
    }

    fn started(&mut self, task: TaskId, gang: &Gang, until_step: Option<u64>, now_s: f64) {
        let promised_s = self.plan.as_ref().and_then(|plan| {
            let mut places = plan.places_of(task);
            let place = places.find(|one| *one.gang == *gang && one.until_step == until_step);
            place.map(|one| one.start_s)
        });
        self.note(&format!("{task:?} starts"), promised_s, now_s);
    }

    fn ended(&mut self, task: TaskId, now_s: f64) {
        let promised_s = self.plan.as_ref().and_then(|plan| {
            let ends_s = plan.places_of(task).map(|one| one.end_s);
            ends_s.max_by(f64::total_cmp)
        });
        self.note(&format!("{task:?} ends"), promised_s, now_s);
    }

    fn note(&mut self, what: &str, promised_s: Option<f64>, now_s: f64) {
        let is_kept = promised_s.is_some_and(|at_s| (at_s - now_s).abs() < TOLERANCE_S);
        if !is_kept && self.otherwise.is_none() {
            self.otherwise = Some(format!("{what} at {now_s:.6} s, promised for {promised_s:?} s"));
        }
    }

    /// `is_undisturbed`: nothing happens to the run from outside, and nothing goes wrong. `is_short`:
    /// its nodes have only so much host memory.
    pub(super) fn check(&mut self, is_undisturbed: bool, is_short: bool) -> Result<(), Violation> {
        let is_void = self.is_void || self.stops && is_short;
        match self.otherwise.take_if(|_| self.has_ended && is_undisturbed && !is_void) {
            Some(what) => broken("what a plan promises comes where nothing disturbs it", what),
            None => Ok(()),
        }
    }
}
