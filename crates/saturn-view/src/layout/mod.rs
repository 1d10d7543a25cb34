//! Numbers as text, and text in the columns of a terminal.
//!
//! `units` writes seconds, bytes and shares for people. `paint` adds colour, where the terminal
//! wants colour. `text` cuts, pads and wraps text, and lays out tables and bars.
//!
//! Invariants: widths are columns of a terminal, so a wide character counts twice and a colour code
//! not at all. Text that comes in is safe to print already.
//!
//! May use: nothing of the other rooms.

pub(crate) mod paint;
pub mod text;
pub mod units;
