//! The devices of this machine, and which run holds which of them.
//!
//! - `machine` finds the devices (`gpus` by NVML, `others` that NVML does not know) and gives a run
//!   its `pool` of them. `hardware` describes a pool in words that other machines can compare.
//! - `outside` finds programs other than Saturn's on GPUs.
//! - `claims` has a lock for each device of a user's runs. `across_users` has a lock for each GPU that
//!   the runs of all users see.
//! - `host_memory` reads what the machine's memory and the limits of this process are.
//!
//! Invariants: two runs of a user never hold the same device, and runs of two users no GPU. Looking
//! at devices initialises no CUDA context.
//!
//! May use: `system`.

mod across_users;
pub(crate) mod claims;
pub(crate) mod gpus;
pub(crate) mod hardware;
pub(crate) mod host_memory;
pub(crate) mod machine;
pub(crate) mod others;
pub(crate) mod outside;
pub(crate) mod pool;
