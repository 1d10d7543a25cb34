//! One seed from beginning to end, and its verdict.

use std::fmt::{self, Write};

use crate::driving::seam::Violation;
use crate::fuzz::saboteur::Bug;
use crate::fuzz::scenario::{MAX_S, scenario};
use crate::fuzz::story;
use crate::judge::reader::judge;
use crate::world::faults::Hits;

/// The verdict on a seed.
#[derive(Debug)]
pub struct Verdict {
    /// Broken rules.
    pub violations: Vec<Violation>,
    /// Kinds of fault that occurred, and how often.
    pub hits: Hits,
    /// Seconds on the run's clock.
    pub simulated_s: f64,
    /// Events that the engine took in.
    pub num_events: u64,
    /// The end of the history, if a rule was broken.
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
    // The limit at the beginning: a resume may limit the devices' memory otherwise.
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

/// A digest of the whole history of a seed: every event, record and action with its time, and the
/// end of the run. Engines with equal decisions have equal digests.
pub fn digest(seed: u64) -> u64 {
    let mut simulation = scenario(seed);
    let end = simulation.run(MAX_S);
    let mut digest = Digest::default();
    for fact in &simulation.world.history.facts {
        // A digest takes in every text.
        let _ = write!(digest, "{fact:?}");
    }
    let _ = write!(digest, "{end:?}{:?}", simulation.violations);
    digest.0
}

/// FNV-1a, 64 bits, of all that is written to it.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
