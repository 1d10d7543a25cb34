//! Room for the first trials of people who hold nothing.
//!
//! Where people share a pool, the plan divides it among them. But a plan has places for measured
//! tasks only, and a trial waits for devices to become free. So a person who comes to a full pool
//! with tasks that nobody has measured would wait until others have done their training. For such a
//! person, training of people who hold more than their shares is stopped at checkpoints, until the
//! person's first trial has room. The stopped tasks go on when the plan has devices for them.
//!
//! Invariants: only those lose a device who hold more than their shares. No task is stopped that could
//! not be resumed, or was moved just before.
//!
//! It makes no room for a gang that is wider than a node.

use std::collections::BTreeMap;

use crate::facts::ids::{AttemptId, NodeId, TaskId};
use crate::facts::record::Purpose;
use crate::facts::sharing::Uid;
use crate::measuring::going_on::may_begin;
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::trial::TrialKey;

/// How many devices each person holds, and the person's share of the pool.
#[derive(Debug)]
pub(crate) struct Holdings {
    /// Devices that the person's attempts hold, whatever they do.
    held: BTreeMap<Uid, u32>,
    /// How many devices train the person's tasks, less the person's share of the devices. Attempts
    /// that are being stopped don't count. Below 0 for a person who holds less than the share.
    beyond: BTreeMap<Uid, f64>,
}

impl Holdings {
    /// `None` if nobody shares the run.
    pub(crate) fn of(state: &State) -> Option<Self> {
        let sharing = state.config.policy.sharing.as_ref()?;
        let num_devices = state.num_devices() as f64;
        let shares = state.shares(sharing).into_iter();
        let mut beyond: BTreeMap<Uid, f64> =
            shares.map(|(uid, share)| (uid, -share * num_devices)).collect();
        let mut held: BTreeMap<Uid, u32> = BTreeMap::new();
        for attempt in state.attempts.values() {
            let uid = state.task(attempt.task).uid();
            *held.entry(uid).or_default() += attempt.strategy.gpus;
            if is_training(attempt) {
                *beyond.entry(uid).or_default() += f64::from(attempt.strategy.gpus);
            }
        }
        Some(Self { held, beyond })
    }

    /// Whether a trial of a group is the next step for a person who holds nothing: no strategy of the
    /// group is known, and no open trial of the group takes fewer devices.
    pub(crate) fn are_owed(&self, state: &State, of: usize, key: &TrialKey, now_s: f64) -> bool {
        let group = &state.groups[of];
        if group.lesson.has_figures {
            return false;
        }
        let open = group.trials.keys().filter(|key| state.is_open_trial(of, key));
        let is_narrowest = open.map(|key| key.strategy.gpus).min() == Some(key.strategy.gpus);
        let holds_nothing = |task: TaskId| !self.held.contains_key(&state.task(task).uid());
        let is_such = |task: TaskId| holds_nothing(task) && may_begin(state, task, now_s);
        is_narrowest && group.tasks.iter().copied().any(is_such)
    }

    /// The attempts that are to be stopped on a node, in order, so that so many devices become free.
    /// Each time, the person who holds the most beyond the share loses an attempt: the attempt that
    /// was launched last. `None` if too few devices would become free.
    pub(crate) fn to_stop(
        &self,
        state: &State,
        node: NodeId,
        mut gpus: u32,
    ) -> Option<Vec<AttemptId>> {
        let mut beyond = self.beyond.clone();
        let may_stop = |attempt: &Attempt| {
            is_training(attempt)
                && !state.is_to_stay(attempt)
                && attempt.gang.iter().all(|part| part.node == node.0)
        };
        let of_node = state.attempts_on(node).into_iter();
        let mut left: Vec<(AttemptId, &Attempt)> = of_node
            .filter_map(|id| Some((id, state.attempts.get(&id)?)))
            .filter(|(_, attempt)| may_stop(attempt))
            .collect();
        let mut stops = Vec::new();
        while gpus > 0 {
            let beyond_of =
                |attempt: &Attempt| beyond.get(&state.task(attempt.task).uid()).copied();
            let (index, of_owner) = left
                .iter()
                .enumerate()
                .filter_map(|(index, (id, attempt))| Some((index, beyond_of(attempt)?, *id)))
                .max_by(|a, b| a.1.total_cmp(&b.1).then(a.2.cmp(&b.2)))
                .map(|(index, of_owner, _)| (index, of_owner))?;
            if of_owner <= 0.0 {
                return None;
            }
            let (id, attempt) = left.swap_remove(index);
            let held = attempt.strategy.gpus;
            *beyond.entry(state.task(attempt.task).uid()).or_default() -= f64::from(held);
            gpus = gpus.saturating_sub(held);
            stops.push(id);
        }
        Some(stops)
    }
}

/// Whether an attempt trains, and its devices are not to be free soon.
pub(crate) fn is_training(attempt: &Attempt) -> bool {
    attempt.purpose == Purpose::Train && attempt.stopping.is_none() && !attempt.is_dying()
}
