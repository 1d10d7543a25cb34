//! Where the time of a run's devices went, as data.

use saturn_engine::State;
use serde::{Deserialize, Serialize};

use crate::facts::device_time::LateDevice;
use crate::facts::device_use::DeviceUse;
use crate::facts::history::History;

/// A use of devices, and the seconds that it took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UseReport {
    /// What the devices did, or why they did nothing.
    #[serde(rename = "use")]
    pub what: DeviceUse,
    /// Seconds.
    pub seconds: f64,
}

/// A device on which nothing trained for more than 5 s at the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LateDeviceReport {
    /// Index of its node.
    pub node: usize,
    /// Its id on the node.
    pub device: u32,
    /// When a task trained on it first; null if none did.
    pub trained_s: Option<f64>,
    /// What it did until then, longest first.
    pub until_then: Vec<UseReport>,
}

/// Where the time of the devices went, from the first task's arrival to the end of the last training
/// attempt (of a run with tasks left: to its last record). Starts of the driver count.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceTimeReport {
    /// Device-seconds in all: the sum of `uses`.
    pub all_s: f64,
    /// The part of them in which steps and evaluations ran, device-seconds.
    pub trains_s: f64,
    /// The part of them in which a device stood idle while a task could have trained on it, or wider
    /// with it, device-seconds.
    pub missed_s: f64,
    /// Device-seconds by use, longest first.
    pub uses: Vec<UseReport>,
    /// Devices on which nothing trained for more than 5 s at the start.
    pub late: Vec<LateDeviceReport>,
}

impl DeviceTimeReport {
    pub(crate) fn of(state: &State, history: &History) -> Self {
        let spent = history.device_time.spent(state);
        let missed = DeviceUse::ALL.iter().filter(|one| one.is_missed());
        Self {
            all_s: spent.sum(),
            trains_s: spent.of(DeviceUse::Trains),
            missed_s: missed.fold(0.0, |sum, one| sum + spent.of(*one)),
            uses: uses(&spent.longest_first()),
            late: history.device_time.late().map(|one| late(&one)).collect(),
        }
    }
}

fn uses(found: &[(DeviceUse, f64)]) -> Vec<UseReport> {
    found.iter().map(|(what, seconds)| UseReport { what: *what, seconds: *seconds }).collect()
}

fn late(one: &LateDevice) -> LateDeviceReport {
    LateDeviceReport {
        node: one.device.node.0,
        device: one.device.device,
        trained_s: one.trained_s,
        until_then: uses(&one.causes),
    }
}
