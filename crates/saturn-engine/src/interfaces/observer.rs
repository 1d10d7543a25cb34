//! The interface to people: a console, a tail of the log, a page.
//!
//! An observer decides nothing. It is told each record, and now and then that time passes. It runs
//! on a thread of its own, so it delays nothing, however long it takes. Records are never left out;
//! progress between them may be.

use crate::facts::record::Record;
use crate::state::run::State;

/// Watches a run.
pub trait Observer: Send {
    /// A record was stored in the journal; `state` is the state after it.
    fn record(&mut self, state: &State, record: &Record, now_s: f64);

    /// Time has passed; `state` has the progress of the moment. A few times a second.
    fn tick(&mut self, state: &State, now_s: f64);

    /// A message about the machine that runs the tasks. It is not in the journal.
    fn note(&mut self, text: &str, now_s: f64);
}
