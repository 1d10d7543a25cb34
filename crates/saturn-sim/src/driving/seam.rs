//! The seam between engine and world, at which others may look on, or do harm.

use std::fmt::Debug;

use saturn_engine::{Action, Decision, Event, Record, State};

use crate::world::cluster::World;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the rule.
    pub rule: &'static str,
    /// How it was broken.
    pub what: String,
}

/// What a watcher answers if a rule is broken.
pub(crate) fn broken(rule: &'static str, what: String) -> Result<(), Violation> {
    Err(Violation { rule, what })
}

/// Looks on at each event.
pub(crate) trait Watcher: Debug {
    /// The engine is about to be told an event.
    fn told(&mut self, event: &Event, now_s: f64);

    /// Takes in a record that was stored.
    fn stored(&mut self, record: &Record, now_s: f64);

    /// The driver has stood still until now.
    fn stood_still(&mut self, now_s: f64);

    /// Takes in an action that is performed.
    fn performed(&mut self, action: &Action, now_s: f64);

    /// The broken rule, if any. `is_turn`: the engine has also looked at tasks that may start.
    fn check(&mut self, state: &State, world: &World, is_turn: bool) -> Result<(), Violation>;
}

/// A bug between engine and world.
pub(crate) trait Sabotage: Debug {
    /// The events that the engine is told in place of one.
    fn told(&self, event: Event, state: &State) -> Vec<Event>;

    /// Alters a decision on its way out. `state` is the engine's after the decision.
    fn decided(&self, decision: &mut Decision, state: &State);

    /// Whether actions are performed before the records are stored.
    fn acts_first(&self) -> bool;

    /// Whether the last record is lost with the driver.
    fn tears_journal(&self) -> bool;
}
