//! The fate of a gang, drawn at its launch: what goes wrong.

use rand::RngExt;
use saturn_core::{Inspection, TrialOutcome};
use saturn_engine::{FailureKind, LaunchError, Purpose};

use crate::workloads::workload::TECHNIQUES;
use crate::world::cluster::World;
use crate::world::faults::Fault;
use crate::world::gang::{Failure, Fate, Order};

/// Longest time after its launch at which a gang fails, seconds.
const MAX_FAILS_AFTER_S: f64 = 60.0;

/// Draws a gang's fate, or the reason why it can't be launched.
pub(crate) fn draw(
    world: &mut World,
    order: &Order,
    group: &str,
    gpu_type: &str,
    is_bad: bool,
) -> Result<Fate, LaunchError> {
    let mut fate = Fate::default();
    if world.odds.is_empty() && !is_bad {
        if order.purpose == Purpose::Inspection {
            fate.inspection = Some(world.truth.inspection(group, &order.asked));
        } else {
            let found = world.found.as_ref().unwrap_or(&world.truth);
            fate.outcome = Some(found.outcome(group, &order.strategy, gpu_type));
        }
        return Ok(fate);
    }
    if world.is_hit(Fault::LaunchFails) {
        let error = "no more processes".to_owned();
        return Err(LaunchError { kind: FailureKind::Saturn, error });
    }
    if world.is_hit(Fault::LaunchNoSpace) {
        let error = "no space left on device".to_owned();
        return Err(LaunchError { kind: FailureKind::NoSpace, error });
    }
    fate.failure = if order.purpose == Purpose::Inspection {
        inspection_failure(world, group)
    } else {
        failure(world, order, is_bad)
    };
    if world.rolls(Fault::Straggler) {
        let after_s = world.rng.random_range(0.0..MAX_FAILS_AFTER_S);
        fate.slow = Some((after_s, world.rng.random_range(1.5..4.0)));
    }
    if world.is_hit(Fault::SlowSave) {
        fate.save_factor = Some(world.rng.random_range(3.0..20.0));
    }
    fate.loses_progress = world.is_hit(Fault::LostProgress);
    fate.loses_checkpoints = world.is_hit(Fault::LostCheckpoints);
    fate.loses_last_word = world.is_hit(Fault::LostLastWord);
    fate.doubles_words = world.is_hit(Fault::DoubledWords);
    if world.is_hit(Fault::LateWords) {
        fate.word_delay_s = world.rng.random_range(0.1..5.0);
    }
    if world.rolls(Fault::LateStop) {
        fate.stop_delay_s = world.rng.random_range(0.5..20.0);
    }
    if world.rolls(Fault::Unkillable) {
        fate.outlives_kill_s = world.rng.random_range(5.0..60.0);
    } else if world.rolls(Fault::Immortal) {
        fate.outlives_kill_s = f64::INFINITY;
    }
    fate.teardown_fails = world.rolls(Fault::TeardownFails);
    match order.purpose {
        Purpose::Inspection => fate.inspection = Some(inspection(world, order, group)),
        Purpose::Trial => fate.outcome = Some(trial_outcome(world, order, group, gpu_type)),
        Purpose::Train => {}
    }
    Ok(fate)
}

/// How an inspection fails in the middle of its work.
fn inspection_failure(world: &mut World, group: &str) -> Option<(f64, Failure)> {
    if !world.rolls(Fault::InspectionFails) {
        return None;
    }
    let load_s = world.truth.groups.get(group).map_or(1.0, |group| group.load_s);
    let after_s = world.rng.random_range(0.0..load_s);
    let echo_first = false;
    let failure = match world.rng.random_range(0..5) {
        0 => Failure::Ends { code: -11, echo_first },
        1 => Failure::Ends { code: -9, echo_first },
        2 => Failure::Says { kind: FailureKind::Task, echo_first },
        3 => Failure::Says { kind: FailureKind::Error, echo_first },
        _ => Failure::Hang,
    };
    Some((after_s, failure))
}

fn failure(world: &mut World, order: &Order, is_bad: bool) -> Option<(f64, Failure)> {
    let after_s = world.rng.random_range(0.1..MAX_FAILS_AFTER_S);
    let echo_first = world.rolls(Fault::EchoFirst);
    if is_bad {
        return Some((after_s.min(3.0), Failure::Ends { code: -11, echo_first }));
    }
    let kinds = [
        (Fault::RankCrash, Failure::Ends { code: -11, echo_first }),
        (Fault::RankExit, Failure::Ends { code: 1, echo_first }),
        (Fault::RankKilled, Failure::Ends { code: -9, echo_first }),
        (Fault::MachineError, Failure::Says { kind: FailureKind::Machine, echo_first }),
        (Fault::NoSpace, Failure::Says { kind: FailureKind::NoSpace, echo_first }),
        (Fault::Hang, Failure::Hang),
        (Fault::EchoOnly, Failure::EchoOnly),
        (Fault::TaskError, Failure::Says { kind: FailureKind::Task, echo_first }),
        (Fault::LateOutOfMemory, Failure::Says { kind: FailureKind::OutOfMemory, echo_first }),
    ];
    for (fault, failure) in kinds {
        // A silent black box may be at work: only its user ends it.
        let is_black_box = order.strategy.technique == TECHNIQUES[2];
        let can_be = match failure {
            Failure::EchoOnly => order.num_ranks > 1,
            Failure::Hang => !is_black_box,
            _ => true,
        };
        if can_be && world.rolls(fault) {
            return Some((after_s, failure));
        }
    }
    None
}

fn inspection(world: &mut World, order: &Order, group: &str) -> Inspection {
    let mut inspection = world.truth.inspection(group, &order.asked);
    if world.is_hit(Fault::PartInspected) {
        let technique = TECHNIQUES[world.rng.random_range(0..TECHNIQUES.len())];
        inspection.verdicts.retain(|verdict| verdict.technique != technique);
    }
    inspection
}

fn trial_outcome(world: &mut World, order: &Order, group: &str, gpu_type: &str) -> TrialOutcome {
    if world.is_hit(Fault::TrialFails) {
        let error = "RuntimeError: shapes differ".to_owned();
        return TrialOutcome::Failed { error, traceback: "Traceback …".to_owned() };
    }
    let mut outcome = world.truth.outcome(group, &order.strategy, gpu_type);
    if let TrialOutcome::Measured { step_s, setup_s, .. } = &mut outcome
        && world.is_hit(Fault::WrongEstimate)
    {
        *step_s *= world.rng.random_range(0.5..2.0);
        *setup_s *= world.rng.random_range(0.5..2.0);
    }
    outcome
}

impl World {
    /// Draws whether a fault will occur. The fault is counted when it occurs.
    fn rolls(&mut self, fault: Fault) -> bool {
        let odds = self.odds.get(&fault).copied().unwrap_or(0.0);
        odds > 0.0 && self.rng.random::<f64>() < odds
    }
}
