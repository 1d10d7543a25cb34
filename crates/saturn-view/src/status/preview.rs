//! What a submission would do: when its tasks would end, and whom they would delay.
//!
//! Both come from the forecast by which the run tells expected ends: of the plan in force, and of
//! the plan that the run would adopt with the new tasks.

use saturn_core::names::escape_terminal;
use saturn_engine::{Rehearsal, State, TaskId};
use serde::{Deserialize, Serialize};

use crate::facts::expect::Expected;
use crate::facts::history::History;
use crate::layout::units::{clock, count, duration};

/// The version of [`Preview`]. Within one version, fields are added and never removed or changed.
const VERSION: u32 = 1;
/// Ends that differ by less are the same, seconds.
const SAME_S: f64 = 1.0;
/// The most tasks of each kind that the text names.
const MAX_NAMED: usize = 12;

/// A task that would be submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewEnd {
    /// Its name.
    pub name: String,
    /// When it would end; null if that is not known before it is measured.
    pub end_s: Option<f64>,
    /// The earliest and the latest end within the error band.
    pub end_band_s: Option<(f64, f64)>,
    /// The time by which it should end.
    pub deadline_s: Option<f64>,
    /// Whether it would end after its deadline; null without a deadline, and if its end is not
    /// known.
    pub is_late: Option<bool>,
    /// By when its person can count on its end, in a run that people share; left out elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_s: Option<f64>,
}

/// A task of the run that would end at another time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherEnd {
    /// Its name.
    pub name: String,
    /// When it ends by the plan in force.
    pub end_before_s: f64,
    /// When it would end.
    pub end_after_s: f64,
    /// Whether it would end after its deadline and does not now. In a run that people share: later
    /// than its person can count on.
    pub becomes_late: bool,
    /// The login name of the person whose it is; left out if that is the person whose process drives
    /// the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// What a submission would do. All times are seconds on the run's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    /// 1.
    pub version: u32,
    /// The time on the run's clock for which this holds.
    pub now_s: f64,
    /// The tasks of the submission, in order.
    pub tasks: Vec<NewEnd>,
    /// The tasks of the run that would end later, the longest delay first.
    pub later: Vec<OtherEnd>,
    /// The tasks of the run that would end sooner, since a better plan was found on the way.
    pub sooner: Vec<OtherEnd>,
    /// How many tasks of the run have no expected end, before or after. They may be delayed too.
    pub unknown: usize,
    /// Whether the plan keeps the deadlines of all tasks that it has. In a run that people share:
    /// whether each task ends by the time that its person can count on.
    pub keeps_deadlines: bool,
    /// Whether people share the run; left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
}

impl Preview {
    /// The effect of a submission on a run in this state.
    pub fn of(state: &State, history: &History, rehearsal: &Rehearsal, now_s: f64) -> Self {
        let after = rehearsal.state();
        let (before, expected) =
            (Expected::of(state, history, now_s), Expected::of(after, history, now_s));
        let due_s = |task: TaskId| after.task(task).spec.wishes.deadline_s;
        let is_shared = after.config.policy.sharing.is_some();
        // Where people share the run, a deadline is between its person and the person's other tasks.
        let is_late = |task: TaskId, end_s: f64| {
            let due_s = if is_shared { after.task(task).guaranteed_s() } else { due_s(task) };
            due_s.is_some_and(|due_s| end_s > due_s)
        };
        let end_s = |expected: &Expected, task| expected.times(task).map(|(_, end_s)| end_s);
        let new_end = |task: &TaskId| {
            let end_s = end_s(&expected, *task);
            NewEnd {
                name: after.name(*task).to_owned(),
                end_s,
                end_band_s: expected.end_band(*task),
                deadline_s: due_s(*task),
                is_late: end_s.zip(due_s(*task)).map(|(end_s, due_s)| end_s > due_s),
                guaranteed_s: after.task(*task).guaranteed_s(),
            }
        };
        let mut changed = Vec::new();
        let mut unknown = 0;
        for task in state.task_ids().filter(|task| !state.has_ended(*task)) {
            let both = end_s(&before, task).zip(end_s(&expected, task));
            let Some((end_before_s, end_after_s)) = both else {
                unknown += 1;
                continue;
            };
            changed.push(OtherEnd {
                name: state.name(task).to_owned(),
                end_before_s,
                end_after_s,
                becomes_late: is_late(task, end_after_s) && !is_late(task, end_before_s),
                owner: state.task(task).spec.owner.as_ref().map(|owner| owner.name.clone()),
            });
        }
        let of_sign = |sign: f64| {
            let is_asked = |one: &&OtherEnd| sign * one.delay_s() >= SAME_S;
            let mut found: Vec<OtherEnd> = changed.iter().filter(is_asked).cloned().collect();
            found.sort_by(|a, b| (sign * b.delay_s()).total_cmp(&(sign * a.delay_s())));
            found
        };
        let mut open = after.task_ids().filter(|task| !after.has_ended(*task));
        let is_expected_late =
            |task: TaskId| end_s(&expected, task).is_some_and(|end_s| is_late(task, end_s));
        Self {
            version: VERSION,
            now_s,
            tasks: rehearsal.new_tasks().iter().map(new_end).collect(),
            later: of_sign(1.0),
            sooner: of_sign(-1.0),
            unknown,
            keeps_deadlines: !open.any(is_expected_late),
            is_shared,
        }
    }

    /// The effect as lines for people. The last line has no line end.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        let known: Vec<&NewEnd> = self.tasks.iter().filter(|task| task.end_s.is_some()).collect();
        let num_known = known.len();
        lines.extend(known.into_iter().take(MAX_NAMED).map(|task| self.of_new(task)));
        if num_known > MAX_NAMED {
            lines.push(format!("… and {}", count(num_known - MAX_NAMED, "more task")));
        }
        let num_unknown = self.tasks.len() - num_known;
        if num_unknown > 0 {
            let what = count(num_unknown, "task");
            lines.push(format!("{what}: the end is not known before the task is measured"));
        }
        lines.extend(self.later.iter().take(MAX_NAMED).map(|one| {
            let late = match (one.becomes_late, self.is_shared) {
                (true, true) => ", later than its person can count on",
                (true, false) => ", after its due time",
                (false, _) => "",
            };
            let whose = one.owner.as_deref().map(|owner| format!(" of {}", escape_terminal(owner)));
            let whose = whose.unwrap_or_default();
            let (before, after) = (self.left(one.end_before_s), self.left(one.end_after_s));
            let name = escape_terminal(&one.name);
            let delay = duration(one.delay_s());
            format!(
                "delays `{name}`{whose} by {delay}: it ends in {after} and not in {before}{late}"
            )
        }));
        if self.later.len() > MAX_NAMED {
            let more = count(self.later.len() - MAX_NAMED, "more task");
            lines.push(format!("… and delays {more} by less"));
        }
        if self.later.is_empty() && num_known > 0 {
            lines.push("delays no task whose end is known".to_owned());
        }
        if self.is_shared && !self.later.is_empty() && self.keeps_deadlines {
            lines.push("nobody's task ends later than its person can count on".to_owned());
        }
        if !self.sooner.is_empty() {
            let sooner = count(self.sooner.len(), "task");
            lines.push(format!("{sooner} would end sooner, by the plan that was found"));
        }
        if self.unknown > 0 {
            let have = if self.unknown == 1 { "has" } else { "have" };
            let unknown = count(self.unknown, "task");
            lines.push(format!("{unknown} of the run {have} no known end, and may be delayed too"));
        }
        lines.join("\n")
    }

    /// Why a due time of the new tasks can't be kept, by this plan; `None` if each is kept or its
    /// end is not known.
    pub fn why_late(&self) -> Option<String> {
        let own = self.tasks.iter().find(|task| task.is_late == Some(true));
        let own = own.and_then(|task| {
            let (end, due) = (self.left(task.end_s?), self.left(task.deadline_s?));
            let name = escape_terminal(&task.name);
            Some(format!("`{name}` would end in {end}, and it is due in {due}"))
        });
        own.or_else(|| {
            let others = self.tasks.iter().any(|task| task.deadline_s.is_some());
            let is_refused = others && !self.is_shared;
            let other = self.later.iter().find(|one| one.becomes_late && is_refused)?;
            let name = escape_terminal(&other.name);
            Some(format!("`{name}`, which the run has already, would miss its own due time"))
        })
    }

    fn of_new(&self, task: &NewEnd) -> String {
        let name = escape_terminal(&task.name);
        let (early_s, late_s) = task.end_band_s.unwrap_or_default();
        let end_s = task.end_s.unwrap_or_default();
        let (early, late) = (self.left(early_s), self.left(late_s));
        let due = match (task.is_late, task.deadline_s) {
            (Some(is_late), Some(due_s)) => {
                let due = self.left(due_s);
                let word = if is_late { "too late for" } else { "in time for" };
                format!("; {word} the due time in {due}")
            }
            _ => String::new(),
        };
        let counted = task.guaranteed_s.map(|by_s| {
            let by = self.left(by_s);
            if end_s > by_s {
                format!("; later than you can count on, which is in {by}")
            } else {
                format!("; you can count on its end within {by}")
            }
        });
        let due = due + &counted.unwrap_or_default();
        let (end, at) = (self.left(end_s), clock(end_s));
        format!("`{name}` would end in {end} ({early} to {late}), at {at} of the run{due}")
    }

    fn left(&self, at_s: f64) -> String {
        duration((at_s - self.now_s).max(0.0))
    }
}

impl OtherEnd {
    /// By how much it would end later; negative: sooner.
    pub fn delay_s(&self) -> f64 {
        self.end_after_s - self.end_before_s
    }
}
