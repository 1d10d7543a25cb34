//! What a run needs before it can begin: its request and its devices.
//!
//! - `request` reads what the Python face asks for.
//! - `run_devices` takes the devices of this machine, after `waiting` for other runs, or the devices
//!   of a cluster's agents.
//! - `shares` reads how large the shares are of people who share a run.
//! - `other_python` gives a run another interpreter.
//! - `watcher` is the people who watch the run. `outlook` plans tasks without running them.
//!
//! Invariants: a run that waits for devices holds none.
//!
//! May use: `outliving`, `cluster`, `probing`, `run_files`, `asking`, `launching`, `keeping`, `devices` and `system`.

pub(crate) mod other_python;
pub(crate) mod outlook;
pub(crate) mod request;
pub(crate) mod run_devices;
pub(crate) mod shares;
pub(crate) mod waiting;
pub(crate) mod watcher;
