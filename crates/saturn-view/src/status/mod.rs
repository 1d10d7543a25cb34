//! Where a run and its tasks stand at a moment: `data` for scripts, `text` for people.
//! `people` are those who share a run. `preview` says where they would stand after a submission.
//!
//! Invariants: the data hold everything that the text says. Within a version, fields are added and
//! never removed or changed.
//!
//! May use: `layout`, `facts` and `phrases`.

pub(crate) mod data;
pub(crate) mod people;
pub(crate) mod preview;
pub(crate) mod text;
