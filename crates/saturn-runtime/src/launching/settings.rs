//! The settings for launching a run's workers.

use std::collections::BTreeSet;
use std::path::PathBuf;

use saturn_engine::Machines;
use saturn_store::Platform;
use serde::{Deserialize, Serialize};

use crate::devices::hardware::Hardware;
use crate::devices::outside::is_to_be_left;
use crate::keeping::shelf::{Shelf, StoreSettings};

/// The settings for launching workers, which the journal keeps for a resume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LaunchSettings {
    /// The user's interpreter.
    pub(crate) python: String,
    /// The user's `sys.path`.
    pub(crate) python_path: Vec<String>,
    /// The user's working directory.
    pub(crate) cwd: PathBuf,
    /// Modules that the warm parent imports besides torch.
    pub(crate) preload: Vec<String>,
    /// How many devices the user asked for; `None`: all that are free.
    pub(crate) devices: Option<u32>,
    /// The directory of device locks, if not the usual one.
    #[serde(default)]
    pub(crate) locks_dir: Option<PathBuf>,
    /// A name of this run that no other run ever had. Workers carry it in their environment.
    #[serde(default)]
    pub(crate) run_id: String,
    /// Where the run's directory was when a process last began to drive the run. A copy of the run is
    /// another run, with a name of its own. `None` in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run_dir: Option<PathBuf>,
    /// How the run uses the store; `None`: not at all.
    #[serde(default)]
    pub(crate) store: Option<StoreSettings>,
    /// How much of a machine's memory the user lets all attempts together take, bytes. `None`: as
    /// much as is available when a process starts or resumes the run.
    #[serde(default)]
    pub(crate) host_memory_bytes: Option<u64>,
    /// For how long the run's ranks train on without a driver, seconds; `None`: they end with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outlives_s: Option<f64>,
    /// The door at which other people of this machine reach the run; `None`: it is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) door: Option<PathBuf>,
    /// The UUIDs of the GPUs that a person has named for the run in `CUDA_VISIBLE_DEVICES`, when it
    /// began or was resumed. It uses them beside whoever is on them, also under a driver that was
    /// started without the variable.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) shared_gpus: BTreeSet<String>,
    /// The hardware and software that the run's trials are valid for, if known.
    #[serde(default)]
    pub(crate) platform: Option<Platform>,
}

impl LaunchSettings {
    /// The machines that this process has for the run.
    pub(crate) fn machines(&self, hardware: &Hardware, is_cluster: bool) -> Machines {
        Machines {
            device_kind: hardware.kind,
            host_memory_bytes: self.host_memory_bytes,
            host_memory_by_node: hardware.host_memory_by_node(),
            pool_may_grow: is_cluster,
            hardware: hardware.in_words(),
        }
    }

    /// Notes that this process' GPUs were named for the run, if they were. Returns whether some had not
    /// been before.
    pub(crate) fn share(&mut self, hardware: &Hardware) -> bool {
        let before = self.shared_gpus.len();
        if !is_to_be_left() {
            self.shared_gpus.extend(hardware.gpus().cloned());
        }
        self.shared_gpus.len() > before
    }

    /// The run's view of the store, if it uses the store.
    pub(crate) fn shelf(&self) -> Option<Shelf> {
        Shelf::open(self.store.as_ref()?, self.platform.clone()?, &self.run_id)
    }
}
