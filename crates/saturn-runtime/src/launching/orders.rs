//! Orders to the ranks of a gang, kept for ranks that can't hear them yet.
//!
//! A gang may wait for its parent or its store when it is told to stop. The engine asks only once, so
//! the order must reach the ranks whenever they come to life.

/// The newest orders to a gang.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Orders {
    /// The ranks must stop together at a checkpoint.
    pub(crate) stop: bool,
    /// The step to stop at; the inner `None` takes an earlier request back.
    #[expect(clippy::option_option, reason = "nothing was told, or the step that was, or its end")]
    pub(crate) until: Option<Option<u64>>,
}
