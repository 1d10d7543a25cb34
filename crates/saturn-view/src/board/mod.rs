//! What a live page shows of a run: the plan in force, what each device does now and will do next,
//! who waits, and why.
//!
//! - `plan` is the plan in force as data.
//! - `data` is a run at a moment, as a live page draws it.
//!
//! May use: `layout`, `facts`, `phrases`, `status` and `explain`.

pub(crate) mod data;
pub(crate) mod plan;
