//! A run for Perfetto (`trace.json`): `file` makes slices and arrows of records, `events` is the
//! format.
//!
//! May use: `layout`, `facts` and `phrases`.

pub(crate) mod events;
pub(crate) mod file;
