//! How each record changes the state.
//!
//! Invariants: the durable state changes here alone. Applying never fails: a record that names something
//! unknown, as in a damaged journal, changes nothing. Equal records give equal states.
//!
//! May use: `facts`, `state` and `knowledge`.

pub(crate) mod apply;
pub(crate) mod attempts;
pub(crate) mod devices;
pub(crate) mod places;
pub(crate) mod tasks;
pub(crate) mod trials;
pub(crate) mod wanted;
pub(crate) mod widths;
