//! Room for trials that wait for training to end: which training is stopped for them.
//!
//! A trial that is expected to save more than the stops cost may stop any training that can go on
//! later. The first trial of a person who holds nothing may stop training of people who hold more
//! than their shares (`shares`). All stops are at checkpoints.
//!
//! It does not launch the trials: the devices are kept for them until they are free (`trials`).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::facts::ids::{AttemptId, NodeId};
use crate::facts::record::StopReason;
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::measuring::shares::{Holdings, is_training};
use crate::state::vacancies::Vacancies;

/// Stops training for a trial that is expected to save more than the stops cost.
///
/// It takes the node where the fewest devices have to be freed, and stops the attempts that were
/// launched last there. For a wide trial all attempts on its nodes are stopped. An attempt that
/// ends soon is awaited instead.
pub(crate) fn make_room(
    ledger: &mut Ledger,
    vacancies: &mut Vacancies,
    (gpu_type, gpus): (&str, u32),
    now_s: f64,
) {
    if vacancies.is_wide(gpu_type, gpus) {
        return make_room_across(ledger, vacancies, gpu_type, gpus, now_s);
    }
    let Some(vacancy) = vacancies.nearest(gpu_type, gpus) else { return };
    let mut training: Vec<(AttemptId, u32)> = ledger
        .state
        .attempts
        .iter()
        .filter(|(_, attempt)| {
            is_training(attempt)
                && !ledger.state.is_to_stay(attempt)
                && attempt.gang.iter().all(|part| part.node == vacancy.node.0)
        })
        .map(|(id, attempt)| (*id, attempt.strategy.gpus))
        .collect();
    if vacancy.soon() + training.iter().map(|(_, held)| held).sum::<u32>() < gpus {
        return; // what must stay holds too many
    }
    training.sort_by_key(|(id, _)| Reverse(*id));
    for (attempt, held) in training {
        if vacancy.soon() >= gpus {
            break;
        }
        vacancy.lent += held;
        stop_or_await_end(ledger, attempt, StopReason::Trial, now_s);
    }
}

/// Stops an attempt for a trial, unless it ends sooner than it could be stopped and launched again.
fn stop_or_await_end(ledger: &mut Ledger, id: AttemptId, reason: StopReason, now_s: f64) {
    let attempt = &ledger.state.attempts[&id];
    let left_s = ledger.state.time_left_s(attempt, attempt.until_step, now_s);
    if left_s > ledger.state.interruption_s(attempt) {
        ledger.stop(id, reason, now_s);
    }
}

fn make_room_across(
    ledger: &mut Ledger,
    vacancies: &mut Vacancies,
    gpu_type: &str,
    gpus: u32,
    now_s: f64,
) {
    let Some(parts) = vacancies.spread(gpu_type, gpus, |vacancy| vacancy.devices) else { return };
    let nodes: BTreeSet<NodeId> = parts.iter().map(|(node, _)| *node).collect();
    let training: Vec<AttemptId> = ledger
        .state
        .attempts
        .iter()
        .filter(|(_, attempt)| {
            is_training(attempt)
                && attempt.gang.iter().any(|part| nodes.contains(&NodeId(part.node)))
        })
        .map(|(id, _)| *id)
        .collect();
    if training.iter().any(|id| ledger.state.is_to_stay(&ledger.state.attempts[id])) {
        return;
    }
    for attempt in training {
        for part in &ledger.state.attempts[&attempt].gang {
            vacancies.lend(NodeId(part.node), u32::try_from(part.devices.len()).unwrap_or(0));
        }
        stop_or_await_end(ledger, attempt, StopReason::Trial, now_s);
    }
}

/// Stops training for an owed trial, on the node where the fewest attempts must be stopped.
pub(crate) fn make_room_for_share(
    ledger: &mut Ledger,
    vacancies: &mut Vacancies,
    (gpu_type, gpus): (&str, u32),
    now_s: f64,
) {
    let Some(holdings) = Holdings::of(&ledger.state) else { return };
    let nodes = vacancies.of_type(gpu_type).filter(|one| one.devices >= gpus);
    let stops = nodes.filter_map(|one| {
        let lacking = gpus.saturating_sub(one.soon());
        Some((one.node, holdings.to_stop(&ledger.state, one.node, lacking)?))
    });
    let Some((node, stops)) = stops.min_by_key(|(node, stops)| (stops.len(), *node)) else {
        // A task that was moved just before may be stopped later.
        let later_s = ledger.state.attempts.values().filter(|one| is_training(one));
        let later_s = later_s.filter_map(|one| ledger.state.rests_until_s(one.task));
        if let Some(at_s) = later_s.filter(|at_s| *at_s > now_s).min_by(f64::total_cmp) {
            ledger.timers.set(at_s, Timer::Trials);
        }
        return;
    };
    for attempt in stops {
        vacancies.lend(node, ledger.state.attempts[&attempt].strategy.gpus);
        stop_or_await_end(ledger, attempt, StopReason::FirstTrial, now_s);
    }
}
