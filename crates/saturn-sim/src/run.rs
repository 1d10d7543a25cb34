//! One seed from beginning to end, and what came of it.

use crate::faults::Hits;
use crate::judge::judge;
use crate::saboteur::Bug;
use crate::scenario::{MAX_S, scenario};
use crate::simulation::Violation;
use crate::story;

/// What came of a seed.
#[derive(Debug)]
pub struct Verdict {
    /// Rules that were broken.
    pub violations: Vec<Violation>,
    /// Kinds of fault that occurred, with how often.
    pub hits: Hits,
    /// Seconds on the run's clock.
    pub simulated_s: f64,
    /// Events that the engine took in.
    pub num_events: u64,
    /// The end of the history, where a rule was broken.
    pub story: String,
}

/// Runs the scenario of a seed, and judges its history.
pub fn run(seed: u64) -> Verdict {
    run_with(seed, None)
}

/// The same with a bug between engine and world.
pub fn run_with(seed: u64, bug: Option<Bug>) -> Verdict {
    let mut simulation = scenario(seed);
    if let Some(bug) = bug {
        simulation.plant(bug);
    }
    // As the run begins: a resume may limit the devices' memory otherwise.
    let config = simulation.state().config.clone();
    simulation.run(MAX_S);
    let (num_facts, found) = judge(&simulation.world.history, &config);
    simulation.violations.extend(found);
    simulation.world.history.facts.truncate(num_facts);
    let story = if simulation.violations.is_empty() {
        String::new()
    } else {
        story::short(&simulation, seed)
    };
    Verdict {
        violations: simulation.violations,
        simulated_s: simulation.world.now_s(),
        hits: simulation.world.hits,
        num_events: simulation.num_events,
        story,
    }
}
