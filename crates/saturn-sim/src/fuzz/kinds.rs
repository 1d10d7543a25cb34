//! Kinds of runs that differ from all others as a whole, drawn from random numbers of their own:
//! searches.

use rand::RngExt;
use saturn_engine::{Mode, RunConfig};

use crate::driving::simulation::Simulation;
use crate::fuzz::seed::stream;
use crate::world::faults::Fault;

/// Makes some runs searches.
pub(super) fn draw_search(seed: u64, config: &mut RunConfig) {
    if stream(seed, 30).random_bool(0.05) {
        config.mode = Mode::Search;
    }
}

/// Counts that a run is a search.
pub(super) fn note_search(simulation: &mut Simulation) {
    if simulation.state().config.mode == Mode::Search {
        simulation.world.hit(Fault::Search);
    }
}
