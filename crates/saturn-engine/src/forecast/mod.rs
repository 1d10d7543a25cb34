//! When each task starts and ends if a plan is followed.
//!
//! `follow` follows a plan; `host_memory` says how places wait for host memory, and `quotas` how they wait
//! until their owners hold fewer devices.
//!
//! The forecast counts on the rules of `following`, and must be changed with them.
//!
//! Invariants: a forecast reads the state and changes nothing. Every plan is judged by this one
//! forecast.
//!
//! May use: `facts`, `state` and `knowledge`.

pub(crate) mod follow;
pub(crate) mod host_memory;
mod quotas;
