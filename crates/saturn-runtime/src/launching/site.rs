//! Where the processes of a run find its files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a run's processes on this machine find its files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Site {
    /// The run directory.
    pub(crate) run_dir: PathBuf,
    /// The lock file that every process of the run holds.
    pub(crate) workers_lock: PathBuf,
    /// The directory for logs of the parents of ranks.
    pub(crate) parent_logs: PathBuf,
}
