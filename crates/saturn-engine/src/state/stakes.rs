//! The weight and the deadline of each task's end in a plan.
//!
//! In a run of one person these are the person's own wishes. Where several people share a run, nobody
//! can wish at the others' expense. A person's weight is the size of the person's share, halved with
//! each fair use of the pool that the person has had (the factor of Slurm's multifactor priority). It
//! is divided among the person's tasks by their priorities: so priorities order a person's own tasks,
//! and work that is cut into more tasks weighs no more. The deadline of a task is when it would end if
//! its owner were alone on the owner's share (`planning/alone`); the owner's own deadlines count in
//! that plan. It is finish-time fairness (Mahajan et al., Themis, NSDI 2020) as a deadline.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;

use crate::facts::ids::TaskId;
use crate::facts::sharing::{Sharing, Uid};
use crate::state::people::{Person, priority_factor};
use crate::state::run::State;
use crate::state::task::TaskState;

/// By how much later than alone a task may end, as a part of the time from its submission to its end
/// alone. Of 0, 0.05, 0.15 and 0.3 it is the smallest with which tasks ended sooner on average than
/// with 0. To compare another value: change it, and run `make bench-sharing`.
const SLACK: f64 = 0.05;
/// The least and the largest weight that the solver takes.
pub(crate) const WEIGHTS: (f64, f64) = (1e-6, 1e6);

/// The weights and the deadlines of the tasks' ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stakes {
    /// If people share the run: the weight of a task of priority 0, by person.
    of_people: Option<BTreeMap<Uid, f64>>,
}

impl Stakes {
    pub(crate) fn of(state: &State, now_s: f64) -> Self {
        let sharing = state.config.policy.sharing.as_ref();
        Self { of_people: sharing.map(|sharing| of_people(state, sharing, now_s)) }
    }

    /// Whether people share the run: then the ends of tasks have weights.
    pub(crate) fn are_shared(&self) -> bool {
        self.of_people.is_some()
    }

    /// The weight of a task's end among other tasks' ends.
    pub(crate) fn weight(&self, state: &State, task: TaskId) -> f64 {
        let of = state.task(task);
        let factor = priority_factor(of.spec.wishes.priority);
        let Some(people) = &self.of_people else { return factor };
        let weight = people.get(&of.uid()).map_or(0.0, |unit| unit * factor);
        weight.clamp(WEIGHTS.0, WEIGHTS.1)
    }

    /// The time from which a task is late, seconds on the run's clock, and the price of each second
    /// after it.
    pub(crate) fn soft_deadline(&self, state: &State, task: TaskId) -> Option<(f64, f64)> {
        let of = state.task(task);
        if !self.are_shared() {
            return of.spec.wishes.soft_deadline();
        }
        Some((of.guaranteed_s()?, self.weight(state, task)))
    }

    /// The time by which every plan must end a task, if any plan can, seconds on the run's clock.
    pub(crate) fn latest_s(&self, state: &State, task: TaskId) -> Option<f64> {
        if self.are_shared() {
            return None;
        }
        state.task(task).spec.wishes.latest_s()
    }
}

impl TaskState {
    /// The time by which a task is to end in a pool that people share, seconds on the run's clock:
    /// when it would end if its owner were alone on a share, and a little later. `None` until that is
    /// planned.
    pub fn guaranteed_s(&self) -> Option<f64> {
        let by_s = self.guarantee.as_ref()?.by_s;
        Some(by_s + SLACK * (by_s - self.added_s).max(0.0))
    }
}

/// For each person, the weight of a task of priority 0. The mean weight of all tasks is about 1.
fn of_people(state: &State, sharing: &Sharing, now_s: f64) -> BTreeMap<Uid, f64> {
    let shares = state.shares(sharing);
    let used_s = state.used_s(sharing, now_s);
    let num_devices = state.cluster.nodes.iter().map(|node| f64::from(node.gpus)).sum::<f64>();
    // Device-seconds of a pool that is always full, as they count.
    let most_s = num_devices.max(1.0) * sharing.half_life_s / LN_2;
    let num_tasks: u32 = state.people.values().map(Person::num_ready).sum();
    let unit = |(uid, share): (&Uid, &f64)| {
        let used = used_s.get(uid).copied().unwrap_or(0.0) / (share * most_s);
        let factors = state.people.get(uid).map_or(1.0, Person::factors);
        (*uid, share * (-used).exp2() * f64::from(num_tasks) / factors)
    };
    shares.iter().map(unit).collect()
}
