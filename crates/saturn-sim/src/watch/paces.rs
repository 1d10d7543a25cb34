//! What training tells of its pace.
//!
//! Training that was clocked for long enough puts its seconds a step on record: they correct what
//! the trial said. Written from what the engine promises, for runs whose attempts take as long as
//! their trials say: there every step counts, unless the engine takes a node for slow, or an
//! inspection takes a core's time from it.
//!
//! Does not do: say whether the figure is right.

use std::collections::BTreeMap;

use saturn_engine::{AttemptEnd, AttemptId, DeviceKind, Event, Purpose, RankReport, Record, State};

use crate::driving::seam::{Violation, broken};

/// So many steps between the first and the last that are heard of are enough: twice as many as the
/// engine asks for, since an evaluation or a checkpoint may hide some.
const ENOUGH_STEPS: u64 = 20;

/// The steps that were heard of each open attempt.
#[derive(Debug, Default)]
pub(super) struct Paces {
    open: BTreeMap<AttemptId, Clocked>,
    wrong: Option<String>,
}

/// An attempt, as far as it was heard.
#[derive(Debug)]
struct Clocked {
    trains: bool,
    /// It need not tell: ranks on several nodes lose their shape when a wider node comes, steps on a
    /// node that the engine takes for slow don't count, and a driver that stood still, or that took
    /// over, doesn't know when steps were done of which it hears first.
    is_exempt: bool,
    /// The first and the last step that were heard of, each with the time, seconds. On CPU slots,
    /// only since an inspection ran beside it.
    steps: Option<[(u64, f64); 2]>,
}

impl Paces {
    /// The driver is told an event.
    pub(super) fn told(&mut self, event: &Event, now_s: f64) {
        match event {
            Event::Reported { attempt, report: RankReport::Progress { step, .. }, .. } => {
                if let Some(one) = self.open.get_mut(attempt) {
                    one.steps.get_or_insert([(*step, now_s); 2])[1] = (*step, now_s);
                }
            }
            Event::StoodStill { .. } => self.exempt_all(),
            _ => {}
        }
    }

    pub(super) fn stored(&mut self, record: &Record) {
        match record {
            Record::Launched { attempt, purpose, gang, .. } => {
                let (trains, is_exempt) = (*purpose == Purpose::Train, gang.len() > 1);
                self.open.insert(*attempt, Clocked { trains, is_exempt, steps: None });
            }
            Record::WentOn { attempt, .. } => {
                if let Some(one) = self.open.get_mut(attempt) {
                    (one.trains, one.steps) = (true, None);
                }
            }
            Record::Resumed { .. } => self.exempt_all(),
            Record::Ended { attempt, end, step_s, .. } => {
                let Some(one) = self.open.remove(attempt) else { return };
                let is_well = matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped);
                // Words that waited somewhere come all at once.
                let is_told = one.steps.is_some_and(|[(from, from_s), (to, to_s)]| {
                    to >= from + ENOUGH_STEPS && to_s > from_s
                });
                if is_well && one.trains && !one.is_exempt && is_told && step_s.is_none() {
                    self.wrong.get_or_insert_with(|| format!("{attempt}, {end:?}: {one:?}"));
                }
            }
            _ => {}
        }
    }

    fn exempt_all(&mut self) {
        for one in self.open.values_mut() {
            one.is_exempt = true;
        }
    }

    /// `is_exact`: attempts take as long as their trials say.
    pub(super) fn check(&mut self, state: &State, is_exact: bool) -> Result<(), Violation> {
        if state.nodes.iter().any(|node| node.slowness.is_some()) {
            self.exempt_all();
        }
        if state.config.device_kind == DeviceKind::Cpu
            && state.attempts.values().any(|one| one.purpose == Purpose::Inspection)
        {
            for one in self.open.values_mut() {
                one.steps = None;
            }
        }
        match self.wrong.take().filter(|_| is_exact) {
            Some(what) => broken("training tells how long its steps took", what),
            None => Ok(()),
        }
    }
}
