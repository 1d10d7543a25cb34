//! How long a search goes on, and with which random numbers.
//!
//! - [`clock`]: the caller's clock, deadlines and interrupts; no other part reads a clock
//! - [`random`]: the random numbers of a seed
//! - [`rounds`]: a search in rounds, which limits may cut short but never change
//! - [`beside`]: two pieces of work side by side, each of which may end the other
//!
//! May use: nothing.

pub(crate) mod beside;
pub(crate) mod clock;
pub(crate) mod random;
pub(crate) mod rounds;
