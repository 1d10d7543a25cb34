//! How each record changes the state.
//!
//! [`State::apply`](crate::State::apply) takes one record and changes the state, in the file that
//! the record is about: `tasks`, `devices`, `attempts`, `trials`. Three files work out at once what
//! follows from a change. `wanted` opens and closes trials. `widths` forgets outcomes that a wider
//! node puts in doubt. `places` closes the places of the plan that can't be followed any more.
//! `slowness` sees in reports of progress which nodes are slow. `occupancy` keeps up what each node
//! has free. `kept_up` compares what is kept up with what is found anew, for tests.
//!
//! Invariants: the durable state changes here alone. Applying never fails: a record that names
//! something unknown, as in a damaged journal, changes nothing. Equal records give equal states.
//!
//! May use: `facts`, `state` and `knowledge`.

pub(crate) mod apply;
pub(crate) mod attempts;
pub(crate) mod devices;
pub(crate) mod kept_up;
pub(crate) mod occupancy;
pub(crate) mod places;
pub(crate) mod slowness;
pub(crate) mod tasks;
pub(crate) mod trials;
pub(crate) mod wanted;
pub(crate) mod widths;
