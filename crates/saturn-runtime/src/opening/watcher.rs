//! The people who watch a run.

use saturn_engine::Observer;
use saturn_view::Console;

/// The people who watch a run, and how they ask it to stop.
pub struct Watcher<'a> {
    /// Shows what happens.
    pub console: Console,
    /// Further observers, which run on the console's thread.
    pub observers: Vec<Box<dyn Observer>>,
    /// Whether Ctrl-C was pressed since the last call.
    pub is_interrupted: &'a mut dyn FnMut() -> bool,
}

impl<'a> Watcher<'a> {
    /// A watcher with a console and no further observers.
    pub fn new(console: Console, is_interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        Self { console, observers: Vec::new(), is_interrupted }
    }
}
