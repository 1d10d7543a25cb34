//! Devices that stand idle beside tasks that could start on them.
//!
//! A plan may leave a device idle for a while, where a task is done sooner if it waits for another
//! device. So a rule can only say when the engine must at least have thought again: the solver is
//! asked at each interval, and soon after a task has ended that the plan counted on for longer. And
//! no plan is good under which a task waits for much longer than it would have needed on the idle
//! devices, or under which nothing runs at all.
//!
//! Trials may keep devices, and host memory may be short. While either may be, only one of the rules
//! is checked: that something runs.

use std::collections::BTreeMap;

use saturn_core::TrialOutcome;
use saturn_engine::{Action, AttemptEnd, FailureKind, Purpose, Record, State, TaskId, TaskStatus};

use crate::driving::seam::{Violation, broken};
use crate::watch::host_memory::is_host_memory_limited;
use crate::watch::quotas::is_beyond;

/// The engine rests after a solve for so many times as long as the solve took.
const RESTS: f64 = 10.0;
/// Seconds that the engine rests after a solve that gave nothing; twice as long after each further
/// one in a row.
const REST_AFTER_NOTHING_S: f64 = 10.0;
/// Times the first wait before a retry, for which a group rests at most.
const MOST_RESTS: f64 = 64.0;
/// Seconds within which what is due now is done.
const AT_ONCE_S: f64 = 1.0;
/// Seconds for which nothing may run while something could: the engine may wait for an answer of
/// the solver.
const NOTHING_RUNS_S: f64 = 120.0;
/// A task may wait beside idle devices for so many times as long as it would need there, so many
/// intervals, and so many seconds.
const TIMES: f64 = 3.0;
const INTERVALS: f64 = 2.0;
const MORE_S: f64 = 120.0;

/// What could start on idle devices, since when, and when the engine thought again.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// Tasks that could start, each with the time since when it could without a pause.
    waiting: BTreeMap<TaskId, f64>,
    /// Since when nothing has run while a task could start.
    standstill_s: Option<f64>,
    /// Tasks that have ended in this turn, since the solver was asked last.
    ended: Vec<TaskId>,
    /// When a task ended before its last step while others waited; `None` once the solver was asked
    /// after that.
    unplanned_s: Option<f64>,
    /// When the solver was asked last.
    asked_s: f64,
    is_asked: bool,
    /// The engine may rest until then.
    rest_until_s: f64,
    /// A group's inspections may rest until then, and its tasks are not planned before one.
    looks_rest_until_s: f64,
    /// Solves in a row that gave nothing.
    num_failed: i32,
    has_failed: bool,
    /// What was done too late.
    late: Option<String>,
}

impl Idleness {
    /// Takes in a record, in the state before it.
    pub(super) fn stored(&mut self, record: &Record, before: &State, now_s: f64) {
        match record {
            // A new driver does not remember when it was to rest.
            Record::Resumed { .. } => {
                *self = Self { asked_s: now_s, rest_until_s: now_s, ..Self::default() };
            }
            Record::Solved { solve_s, .. } => {
                if !std::mem::take(&mut self.has_failed) {
                    self.num_failed = 0;
                }
                self.is_asked = false;
                self.rest_until_s = now_s + RESTS * solve_s.unwrap_or(0.0);
            }
            Record::NotSolved { .. } => {
                let rest_s = REST_AFTER_NOTHING_S * 2.0_f64.powi(self.num_failed.min(10));
                self.rest_until_s = self.rest_until_s.max(now_s + rest_s);
                (self.num_failed, self.has_failed) = (self.num_failed + 1, true);
            }
            // Where Saturn's own processes fail, a group's inspections rest for a while.
            Record::Ended { end: AttemptEnd::Failed { failure }, .. }
                if failure.kind == FailureKind::Saturn =>
            {
                let rest_s = before.config.policy.backoff_s * MOST_RESTS;
                self.looks_rest_until_s = now_s + rest_s;
            }
            Record::TaskEnded { task, .. } => self.ended.push(*task),
            _ => {}
        }
    }

    /// The driver stood still: nothing was to be done meanwhile.
    pub(super) fn stood_still(&mut self, now_s: f64) {
        self.waiting.clear();
        (self.asked_s, self.standstill_s) = (now_s, None);
        self.unplanned_s = self.unplanned_s.map(|_| now_s);
    }

    /// Takes in an action.
    pub(super) fn performed(&mut self, action: &Action, now_s: f64) {
        if matches!(action, Action::Solve { .. }) {
            self.note_late(now_s);
            (self.asked_s, self.is_asked) = (now_s, true);
            self.unplanned_s = None;
            self.ended.clear();
        }
    }

    /// Whether the solver was to be asked before, because a task had ended.
    fn note_late(&mut self, now_s: f64) {
        let Some(since_s) = self.unplanned_s.filter(|_| !self.is_asked) else { return };
        let rest_until_s = self.rest_until_s.max(self.looks_rest_until_s);
        let due_s = since_s.max(rest_until_s) + AT_ONCE_S;
        let waiting: Vec<_> = self.waiting.iter().filter(|(_, from_s)| **from_s < due_s).collect();
        if now_s > due_s && !waiting.is_empty() {
            self.late = Some(format!(
                "a task ended at {since_s:.1} s, {waiting:?} could start on idle devices, and the \
                 solver was not asked until {now_s:.1} s"
            ));
        }
    }

    /// A turn is over. `is_poor`: the solver's answers may be poor plans, which leave devices idle.
    pub(super) fn check(
        &mut self,
        state: &State,
        is_poor: bool,
        now_s: f64,
    ) -> Result<(), Violation> {
        // Records do not tell of all steps, so the engine is asked.
        let is_early = |task: &TaskId| {
            let task = state.task(*task);
            task.steps.is_none_or(|steps| task.step < steps)
        };
        if std::mem::take(&mut self.ended).iter().any(is_early) {
            self.unplanned_s.get_or_insert(now_s);
        }
        self.note_late(now_s);
        if let Some(what) = self.late.take() {
            return broken("devices that a task leaves early are planned again", what);
        }
        let interval_s = state.config.policy.interval_s;
        let rest_until_s = self.rest_until_s.max(self.looks_rest_until_s);
        for (task, since_s) in &self.waiting {
            let due_s = (since_s.max(self.asked_s) + interval_s).max(rest_until_s) + AT_ONCE_S;
            if now_s > due_s && !self.is_asked {
                let what = format!(
                    "{task:?} could start since {since_s:.1} s, the solver was asked at {:.1} s",
                    self.asked_s
                );
                return broken("idle devices are planned at each interval", what);
            }
        }
        self.check_standstill(state, now_s)?;
        let could_start =
            if may_be_kept(state) { BTreeMap::new() } else { could_start(state, now_s) };
        if could_start.is_empty() {
            self.unplanned_s = None;
        }
        self.waiting.retain(|task, _| could_start.contains_key(task));
        for (task, needs_s) in &could_start {
            let since_s = *self.waiting.entry(*task).or_insert(now_s);
            let may_wait_s = TIMES * needs_s + INTERVALS * interval_s + MORE_S;
            if !is_poor && now_s - since_s.max(self.rest_until_s) > may_wait_s {
                let what = format!(
                    "{task:?} would need {needs_s:.1} s, and waits since {since_s:.1} s although it \
                     could start"
                );
                return broken("nothing waits beside idle devices for long", what);
            }
        }
        Ok(())
    }

    /// Something runs while something could, also where trials are open and host memory is limited:
    /// trials that wait for nothing but devices run then, and a gang that is alone on its nodes always
    /// has host memory.
    fn check_standstill(&mut self, state: &State, now_s: f64) -> Result<(), Violation> {
        let could_start =
            if state.attempts.is_empty() { could_start(state, now_s) } else { BTreeMap::new() };
        if could_start.is_empty() {
            self.standstill_s = None;
            return Ok(());
        }
        let since_s = *self.standstill_s.get_or_insert(now_s);
        // A poor plan may let all devices wait until the pool is planned again.
        let planned_s = self.asked_s + state.config.policy.interval_s + AT_ONCE_S;
        if now_s > (since_s.max(self.rest_until_s) + NOTHING_RUNS_S).max(planned_s) {
            let what = format!("{could_start:?} could start since {since_s:.1} s");
            return broken("something runs while something could", what);
        }
        Ok(())
    }
}

/// Whether trials may keep devices, or host memory may be short.
fn may_be_kept(state: &State) -> bool {
    is_host_memory_limited(state)
        || state.num_open_trials() > 0
        || state.attempts.values().any(|one| one.purpose != Purpose::Train)
}

/// The tasks that could start at once on idle devices of one node under a measured strategy, with
/// the seconds that they would need there at most. Worked out from trials, not asked of the engine.
fn could_start(state: &State, now_s: f64) -> BTreeMap<TaskId, f64> {
    if state.ended.is_some() || state.interrupted.is_some() {
        return BTreeMap::new();
    }
    let free: Vec<(&str, usize)> = state
        .present_nodes()
        .map(|node| {
            let devices = state.usable_devices(node);
            let free = devices
                .filter(|device| state.is_free(saturn_engine::DeviceId { node, device: *device }));
            (state.gpu_type(node), free.count())
        })
        .collect();
    let mut all = BTreeMap::new();
    for id in state.task_ids() {
        let task = state.task(id);
        let may = task.status == TaskStatus::Waiting
            && !task.must_not_train()
            && task.not_before_s.max(task.spec.wishes.release_s) < now_s
            && state.waits_for(id).next().is_none();
        let Some(steps) = task.steps.filter(|_| may) else { continue };
        let left = steps.saturating_sub(task.checkpoint_step);
        let needs_s = state.groups[task.group].trials.iter().filter_map(|(key, trial)| {
            let Some(TrialOutcome::Measured { step_s, setup_s, .. }) = &trial.outcome else {
                return None;
            };
            let is_excluded = task.excluded.iter().any(|(excluded, _)| *excluded == key.strategy);
            let fits = free.iter().any(|(gpu_type, num)| {
                *gpu_type == key.gpu_type && *num >= key.strategy.gpus as usize
            });
            let gpus = key.strategy.gpus as usize;
            if is_excluded
                || !task.spec.allows_key(&key.strategy)
                || !fits
                || is_beyond(state, id, gpus)
            {
                return None;
            }
            #[expect(clippy::cast_precision_loss, reason = "few steps")]
            let train_s = left as f64 * trial.trained_step_s.unwrap_or(*step_s).max(*step_s);
            Some(setup_s + train_s)
        });
        if let Some(needs_s) = needs_s.max_by(f64::total_cmp) {
            all.insert(id, needs_s);
        }
    }
    all
}
