//! What a seed alone decides, before anything is drawn: the random numbers of each part of a scenario,
//! how large its run is and where it is, and how likely a fault may be.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::world::faults::Fault;

/// When the trouble ends, seconds.
pub(super) const CALM_S: f64 = 400.0;

/// The random numbers of one part of a scenario. Each part has its own number and its own stream.
pub(super) fn stream(seed: u64, part: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(!seed ^ part)
}

/// Whether this seed's run is on one machine. A resumed run may find another number of devices
/// there.
pub(super) fn is_on_one_machine(seed: u64) -> bool {
    seed % 11 == 4
}

/// Whether this seed's run is large.
pub(super) fn is_large(seed: u64) -> bool {
    seed % 200 == 37
}

/// The highest probability of a fault, where it may occur.
pub(super) fn most(fault: Fault) -> f64 {
    match fault {
        Fault::DriverDies => 0.005,
        Fault::DriverDiesBeforeJournal | Fault::DriverDiesAfterJournal => 0.03,
        Fault::SavedAfterDeath | Fault::EchoFirst | Fault::RanksOutlive => 1.0,
        Fault::WrongEstimate | Fault::NoisySteps | Fault::PoorPlan => 0.8,
        Fault::SolveFails
        | Fault::SolveTimesOut
        | Fault::SolveInfeasible
        | Fault::WrongPlan
        | Fault::SlowSolve
        | Fault::OtherMemory
        | Fault::OtherPool => 0.5,
        Fault::TaskError | Fault::LateOutOfMemory | Fault::TrialFails => 0.15,
        _ => 0.3,
    }
}
