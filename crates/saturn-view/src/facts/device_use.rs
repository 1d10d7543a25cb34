//! What the time of devices goes to: training, what training takes besides, and causes of standing
//! idle.

use serde::{Deserialize, Serialize};

/// Declares the uses: for each a variant, its word in files, and its meaning.
macro_rules! uses {
    ($($variant:ident $word:literal $meaning:literal,)*) => {
        /// What a device does, or why it does nothing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum DeviceUse {
            $(#[doc = $meaning] #[serde(rename = $word)] $variant,)*
        }

        impl DeviceUse {
            /// Every use, in the order of the reference.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name of the use in files.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The meaning of the use.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

uses! {
    // An attempt holds the device.
    Trains "trains" "steps and evaluations of training",
    Saves "saves" "training stood still for a checkpoint",
    Launches "launches" "a task was launched, and loaded its model and checkpoint",
    Ends "ends" "a task had written its last checkpoint, and its processes ended",
    Measured "measured" "a trial ran, until it ended or went on as training",
    // Nothing runs on it.
    StartsUp "starts_up" "the program that drives the run started: it prepared tasks and imported torch",
    StoodStill "stood_still" "the program that drives the run stood still (stopped, or waiting for a disk), and heard nothing of the device",
    SetAside "set_aside" "the device was set aside",
    Stopping "stopping" "the run was being stopped",
    Kept "kept" "it was kept for a task whose other devices were in use, or that still trained elsewhere",
    WaitsHostMemory "waits_host_memory" "a task was first in line, and its devices were free: it waited for host memory",
    WaitsPlan "waits_plan" "a task could have started: it waited for the next plan, or for its launch",
    WaitsTrial "waits_trial" "it was kept for a trial, or the tasks that could use it waited for a trial on other devices",
    WaitsInspection "waits_inspection" "the tasks that could use it waited for the inspection of their model",
    PlannedElsewhere "planned_elsewhere" "the plan had the tasks that waited train on other devices",
    WaitsQuota "waits_quota" "the people whose tasks waited held as many devices as their quotas allow",
    CouldWiden "could_widen" "no task waited, and a task that trained on fewer devices of its node would have been faster on more",
    WaitsPredecessor "waits_predecessor" "the tasks left come after tasks that were not done",
    WaitsTime "waits_time" "the tasks left waited for their release, for another try after a failure, or for space on the disk",
    Held "held" "the stopper held the tasks left",
    Paused "paused" "the tasks left were paused",
    NoFit "no_fit" "the tasks that waited can't run on a device of its type",
    AllTrain "all_train" "no task waited: all tasks left trained on other devices",
    NothingLeft "nothing_left" "every task had ended",
}

impl DeviceUse {
    /// The number of uses.
    pub(crate) const NUM: usize = Self::ALL.len();

    /// Whether the device stood idle while a task could have trained on it, or wider with it.
    pub fn is_missed(self) -> bool {
        matches!(
            self,
            Self::WaitsInspection
                | Self::WaitsTrial
                | Self::WaitsPlan
                | Self::Kept
                | Self::PlannedElsewhere
                | Self::CouldWiden
        )
    }
}

/// Seconds by use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parts([f64; DeviceUse::NUM]);

impl Default for Parts {
    fn default() -> Self {
        Self([0.0; DeviceUse::NUM])
    }
}

impl Parts {
    /// Adds seconds to a use.
    pub(crate) fn add(&mut self, to: DeviceUse, seconds: f64) {
        self.0[to as usize] += seconds;
    }

    /// Takes over from `other` the seconds of each use that has more seconds there.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = own.max(other);
        }
    }

    /// Seconds of a use.
    pub(crate) fn of(&self, one: DeviceUse) -> f64 {
        self.0[one as usize]
    }

    /// All seconds.
    pub(crate) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The uses that took time, longest first.
    pub(crate) fn longest_first(&self) -> Vec<(DeviceUse, f64)> {
        let all = DeviceUse::ALL.iter().map(|one| (*one, self.of(*one)));
        // Differences of times leave crumbs.
        let mut some: Vec<_> = all.filter(|(_, seconds)| *seconds > 1e-6).collect();
        some.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        some
    }
}
