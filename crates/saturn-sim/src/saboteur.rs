//! Bugs that are planted between engine and world, to see that they are found.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {}
