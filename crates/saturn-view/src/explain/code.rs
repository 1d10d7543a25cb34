//! The codes of reasons, each with its meaning.
//!
//! A code never changes its meaning, but there may be new codes. `docs/reference.md` lists all of
//! them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares the codes: for each a variant, its word in files, and its meaning.
macro_rules! codes {
    ($($variant:ident $word:literal $meaning:literal,)*) => {
        /// The code of a reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the reference.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name of the code in files and scripts.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The meaning of the code.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

codes! {
    // Where a task stands.
    Trains "trains" "it trains",
    Starts "starts" "it was launched and loads",
    Stops "stops" "it trains its last steps before a stop that was asked for",
    IsKilled "is_killed" "its processes are being killed",
    Paused "paused" "its user paused it",
    Held "held" "the stopper holds it, and may have it go on",
    WaitsStopped "waits_stopped" "the run is stopping, or was stopped",
    WaitsPredecessor "waits_predecessor" "tasks that it comes after are not done",
    WaitsRelease "waits_release" "its user wants no training before a time that is to come",
    WaitsRetry "waits_retry" "it failed, and is tried again after a wait",
    WaitsSpace "waits_space" "a checkpoint did not fit the disk, in a trial or in training; the task is launched again when there is more room, and after a minute at the latest",
    WaitsInspection "waits_inspection" "its model, or one like it, is looked at",
    WaitsTrials "waits_trials" "its strategies are being measured",
    WaitsTrialDevices "waits_trial_devices" "its strategies are to be measured, and the devices for that are taken",
    WaitsPlan "waits_plan" "it is measured, and the next plan will have a place for it",
    WaitsRoom "waits_room" "no node has the devices that any strategy of it needs",
    WaitsDevices "waits_devices" "others hold the devices of its place",
    WaitsTurn "waits_turn" "the devices of its place are kept for others that come before it",
    Ready "ready" "nothing keeps it: it starts now",
    OnlyMeasured "only_measured" "this run measures, and trains nothing",
    Done "done" "it is trained: all its steps, or those after which its own code ended it",
    Diverged "diverged" "it is trained, and its last loss is no finite number",
    FailedNoStrategy "failed_no_strategy" "no strategy can run it",
    FailedOwnCode "failed_own_code" "its own functions raised",
    FailedTooOften "failed_too_often" "it failed too often in a row",
    CancelledPredecessor "cancelled_predecessor" "a task that it comes after will never be done",
    Cancelled "cancelled" "it is not wanted any more",
    Stopped "stopped" "the stopper ended it",
    // Strategies of a task.
    Chosen "chosen" "the strategy that it has",
    Worse "worse" "it takes longer, and no less of the devices' time",
    Longer "longer" "it takes longer than the chosen strategy, but fewer device-seconds (seconds × devices)",
    MoreDeviceTime "more_device_time" "it takes less time than the chosen strategy, but more device-seconds",
    BetterNow "better_now" "by what is known now it takes less of both; the next plan may choose it",
    OtherType "other_type" "it takes less of both, on devices of another type",
    NotApplicable "not_applicable" "its technique says that it can't run the task",
    OutOfMemory "out_of_memory" "its trial ran out of memory",
    TrialFailed "trial_failed" "its trial failed",
    Excluded "excluded" "it failed in training in a way that excludes it for this task",
    NotTried "not_tried" "it has not been measured",
    NotAllowed "not_allowed" "the task does not allow that technique, those knobs or that many devices",
    NoDevices "no_devices" "the pool has too few devices of that type",
    // Moves of a task.
    MovedReplan "moved_replan" "a new plan gave it another strategy or other devices",
    MovedSwitch "moved_switch" "the plan gave it another strategy or other devices in mid-run",
    MovedSetAside "moved_set_aside" "its devices were set aside",
    MovedTrial "moved_trial" "a trial that may save more time needed its devices",
    MovedHold "moved_hold" "the stopper held it, and it went on elsewhere",
    MovedPause "moved_pause" "it was paused, and went on elsewhere",
    MovedStop "moved_stop" "the run was stopped, and went on elsewhere",
    MovedFailure "moved_failure" "it failed, and went on elsewhere",
    MovedLost "moved_lost" "its node or its driver went away under it",
    // The run as a whole.
    RunGoesOn "run_goes_on" "tasks train",
    RunMeasures "run_measures" "trials run, and no task trains yet",
    RunPlans "run_plans" "tasks are measured and wait for a plan or for their time",
    RunNoRoom "run_no_room" "no task can run on the devices that there are",
    RunAllHeld "run_all_held" "every task that has not ended is held by the stopper, or paused",
    RunAllPaused "run_all_paused" "every task that has not ended is paused",
    RunIdle "run_idle" "every task has ended, and more may come",
    RunStops "run_stops" "the run is stopping",
    RunInterrupted "run_interrupted" "the run was stopped, and can be resumed",
    RunDied "run_died" "the process that drove the run is gone without a word; the run can be resumed",
    RunComplete "run_complete" "the run has ended",
    PlanSolved "plan_solved" "the plan in force is the solver's",
    PlanExtended "plan_extended" "the plan in force is an earlier one with new tasks put behind it",
    PlanNone "plan_none" "no plan has been made",
    ReplanGain "replan_gain" "what the last new plan promised to gain",
    ReplanKept "replan_kept" "the plan was kept: no other saves enough to switch to it",
    SolverFailed "solver_failed" "the solver last gave nothing that can be used",
    DeviceSetAside "device_set_aside" "a device is not used",
    NodeGone "node_gone" "a node has gone",
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = Self::ALL.iter().find(|code| code.word() == word);
        known.copied().ok_or_else(|| D::Error::custom(format!("`{word}` is no reason code")))
    }
}
