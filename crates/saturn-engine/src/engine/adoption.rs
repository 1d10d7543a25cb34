//! Attempts that outlived their driver, and go on under the next.
//!
//! The ranks of a run may belong to an agent, a process of their own, and train on if the run's
//! driver dies. The next driver adopts those that train a task which is still to be trained, where
//! it is to be trained. What the last driver wanted of them may never have been told, so it is told
//! again. Every order may come twice.
//!
//! Trials and inspections are not adopted: they take seconds, and what they measured while nobody
//! planned around them is worth little.

use saturn_core::Cluster;

use crate::facts::event::Action;
use crate::facts::ids::{AttemptId, NodeId};
use crate::facts::record::Purpose;
use crate::health::standstill::clock_anew;
use crate::ledger::book::Ledger;
use crate::ledger::timers::{Timer, overdue_at_s};
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::task::TaskStatus;

/// The attempts that may go on under another driver, on a pool of these nodes, if they live.
pub(crate) fn adoptable(state: &State, cluster: &Cluster) -> Vec<AttemptId> {
    if state.interrupted.is_some() {
        // They were to stop, and perhaps at once.
        return Vec::new();
    }
    let may = |id: AttemptId, attempt: &Attempt| {
        attempt.purpose == Purpose::Train
            && state.task(attempt.task).status == TaskStatus::Running(id)
            && attempt.gang.iter().all(|part| {
                let node = NodeId(part.node);
                let is_there = state.present_nodes().any(|one| one == node);
                is_there && cluster.nodes.contains(&state.cluster.nodes[node.0])
            })
    };
    let live = state.attempts.iter().filter(|(id, attempt)| may(**id, attempt));
    live.map(|(id, _)| *id).collect()
}

/// Takes on an attempt that lives. It was silent for as long as nobody could hear it.
pub(crate) fn adopt(ledger: &mut Ledger, id: AttemptId, now_s: f64) {
    let Some(attempt) = ledger.state.attempts.get_mut(&id) else { return };
    attempt.heard_s = now_s;
    clock_anew(attempt, now_s);
    let (task, until) = (attempt.task, attempt.until_step);
    let (went_on, is_stopping) = (attempt.went_on.is_some(), attempt.stopping.is_some());
    if let Some(at_s) =
        ledger.state.attempts.get(&id).and_then(|one| overdue_at_s(&ledger.state, one))
    {
        ledger.timers.set(at_s, Timer::Attempt(id));
    }
    if let Some(steps) = ledger.state.task(task).steps.filter(|_| went_on) {
        ledger.act(Action::GoOn { attempt: id, steps });
    }
    ledger.act(Action::Until { attempt: id, step: until });
    if is_stopping {
        ledger.act(Action::Stop { attempt: id });
    }
}
