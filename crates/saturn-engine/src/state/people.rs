//! The people whose tasks a run has, and what each of them has used.
//!
//! Device time that was used long ago counts less: half of it after each half-life, as in Slurm's
//! multifactor priority. Training counts from its launch to its end. Trials don't count, as their
//! results are for everybody.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;

use crate::facts::config::TaskSpec;
use crate::facts::ids::TaskId;
use crate::facts::record::Purpose;
use crate::facts::sharing::{Sharing, Uid};
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::task::{TaskState, TaskStatus};

/// The weight of a task's end grows by this factor with each step of its priority.
const PRIORITY_FACTOR: f64 = 4.0;
/// Priorities beyond this count as this.
const MOST_PRIORITY: i32 = 16;

/// What a run knows of a person.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Person {
    /// How many of the person's open tasks may train, by priority.
    pub(crate) ready: BTreeMap<i32, u32>,
    /// Device-seconds that the ended attempts have used, as they count at `used_at_s`.
    pub(crate) used_s: f64,
    /// Seconds on the run's clock.
    pub(crate) used_at_s: f64,
}

impl Person {
    /// How many open tasks of the person may train.
    pub fn num_ready(&self) -> u32 {
        self.ready.values().sum()
    }

    /// The priority factors of these tasks together.
    pub(crate) fn factors(&self) -> f64 {
        let factor = |(priority, num): (&i32, &u32)| f64::from(*num) * priority_factor(*priority);
        self.ready.iter().map(factor).sum()
    }

    /// Counts a task of this priority in, or out.
    pub(crate) fn count(&mut self, priority: i32, comes: bool) {
        let num = self.ready.entry(priority).or_default();
        *num = if comes { *num + 1 } else { num.saturating_sub(1) };
        if *num == 0 {
            self.ready.remove(&priority);
        }
    }

    /// Counts the device time of an attempt that has ended.
    pub(crate) fn charge(&mut self, sharing: &Sharing, attempt: &Attempt, now_s: f64) {
        self.used_s = decayed(self.used_s, now_s - self.used_at_s, sharing.half_life_s)
            + held_s(sharing, attempt, now_s);
        self.used_at_s = now_s;
    }
}

/// By how much the end of a task of this priority weighs more than that of a task of priority 0.
pub(crate) fn priority_factor(priority: i32) -> f64 {
    PRIORITY_FACTOR.powi(priority.clamp(-MOST_PRIORITY, MOST_PRIORITY))
}

/// What is left of an amount after so many seconds.
fn decayed(amount: f64, seconds: f64, half_life_s: f64) -> f64 {
    amount * (-seconds.max(0.0) / half_life_s).exp2()
}

/// The device-seconds that an attempt has used since its launch, as they count now.
fn held_s(sharing: &Sharing, attempt: &Attempt, now_s: f64) -> f64 {
    let lasts_s = sharing.half_life_s / LN_2;
    let seconds = now_s - attempt.launched_s;
    f64::from(attempt.strategy.gpus) * (lasts_s - decayed(lasts_s, seconds, sharing.half_life_s))
}

impl TaskSpec {
    /// Whose the task is.
    pub fn uid(&self) -> Uid {
        self.owner.as_ref().map(|owner| owner.uid)
    }
}

impl TaskState {
    /// Whose it is.
    pub fn uid(&self) -> Uid {
        self.spec.uid()
    }

    /// Its priority among its owner's tasks; `None` if it may not train.
    pub(crate) fn ready(&self) -> Option<i32> {
        let is_open = !matches!(self.status, TaskStatus::Ended(_));
        (is_open && !self.must_not_train()).then_some(self.spec.wishes.priority)
    }
}

impl State {
    /// Device-seconds that each person has used, as they count at `now_s`.
    pub fn used_s(&self, sharing: &Sharing, now_s: f64) -> BTreeMap<Uid, f64> {
        let before = self.people.iter().map(|(uid, person)| {
            (*uid, decayed(person.used_s, now_s - person.used_at_s, sharing.half_life_s))
        });
        let mut used: BTreeMap<Uid, f64> = before.collect();
        for attempt in self.attempts.values().filter(|one| one.purpose == Purpose::Train) {
            let uid = self.task(attempt.task).uid();
            *used.entry(uid).or_default() += held_s(sharing, attempt, now_s);
        }
        used
    }

    /// The people whose tasks the run has had.
    pub fn people(&self) -> impl Iterator<Item = &Uid> {
        self.people.keys()
    }

    /// What the run knows of a person.
    pub fn person(&self, uid: Uid) -> Option<&Person> {
        self.people.get(&uid)
    }

    /// The parts of the pool, out of 1, that the people have who have tasks that may train.
    pub fn shares(&self, sharing: &Sharing) -> BTreeMap<Uid, f64> {
        let active = self.people.iter().filter(|(_, person)| person.num_ready() > 0);
        let sizes: BTreeMap<Uid, f64> =
            active.map(|(uid, _)| (*uid, self.share_size(sharing, *uid))).collect();
        let all: f64 = sizes.values().sum();
        sizes.into_iter().map(|(uid, size)| (uid, size / all)).collect()
    }

    /// How large a person's share is beside the shares of others.
    fn share_size(&self, sharing: &Sharing, uid: Uid) -> f64 {
        sharing.shares.get(self.login(sharing, uid)).copied().unwrap_or(1.0)
    }

    /// The login name of a person.
    pub fn login<'a>(&'a self, sharing: &'a Sharing, uid: Uid) -> &'a str {
        let Some(uid) = uid else { return &sharing.host };
        self.guest_login(uid).unwrap_or_default()
    }

    /// The login name of a person who does not drive the run; `None` of a person without tasks.
    pub fn guest_login(&self, uid: u32) -> Option<&str> {
        self.logins.get(&uid).map(String::as_str)
    }

    /// Whether a plan or a trial has moved a task so lately that it is to be left where it is.
    pub(crate) fn was_just_moved(&self, task: TaskId) -> bool {
        self.rests_until_s(task).is_some_and(|until_s| self.now_s < until_s)
    }

    /// Until when a task that was moved is to be left where it is, seconds on the run's clock. `None`
    /// if it was never moved, or if nobody shares the run.
    pub(crate) fn rests_until_s(&self, task: TaskId) -> Option<f64> {
        let sharing = self.config.policy.sharing.as_ref()?;
        Some(self.task(task).moved_s? + sharing.rest_s)
    }
}
