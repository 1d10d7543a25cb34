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
    Starts "starts" "it was launched, and loads its model and checkpoint",
    Stops "stops" "it was asked to stop, and trains its last steps before the stop",
    IsKilled "is_killed" "its processes are being killed",
    Paused "paused" "its user paused it",
    Guaranteed "guaranteed" "its person can count on its end by this time, since the person's share of the devices alone would give about that",
    OwnerAway "owner_away" "it is another person's, and the program that would start its processes as that person is not there",
    Held "held" "the stopper holds it, and may let it train again",
    WaitsStopped "waits_stopped" "the run is stopping, or was stopped",
    WaitsPredecessor "waits_predecessor" "it comes after tasks that are not done",
    WaitsRelease "waits_release" "its user wants no training before a later time",
    WaitsRetry "waits_retry" "it failed, and will be tried again after a wait",
    WaitsSpace "waits_space" "a checkpoint did not fit the disk, in a trial or in training; the task is launched again when there is more room, and after a minute at the latest",
    WaitsInspection "waits_inspection" "its model, or the same model of another task, is being inspected",
    WaitsTrials "waits_trials" "its strategies are being measured",
    WaitsTrialDevices "waits_trial_devices" "its strategies will be measured when other tasks leave devices",
    WaitsPlan "waits_plan" "it is measured, and waits for the next plan",
    WaitsRoom "waits_room" "no node has as many devices as any of its strategies needs",
    WaitsDevices "waits_devices" "other tasks hold the devices of its place in the plan",
    WaitsTurn "waits_turn" "the devices of its place are kept for tasks that come before it",
    WaitsQuota "waits_quota" "its person's tasks hold as many devices as they may hold at once",
    Ready "ready" "nothing keeps it from starting",
    OnlyMeasured "only_measured" "this run measures, and trains nothing",
    Done "done" "all its steps are trained, or its own code ended it earlier",
    Diverged "diverged" "it is trained, and its last loss is not a finite number",
    FailedNoStrategy "failed_no_strategy" "no strategy can run it",
    FailedOwnCode "failed_own_code" "its own functions raised an error",
    FailedTooOften "failed_too_often" "it failed too often in a row",
    CancelledPredecessor "cancelled_predecessor" "a task that it comes after will never be done",
    Cancelled "cancelled" "its user cancelled it",
    Stopped "stopped" "the stopper ended it",
    // Of a task that is done, and of the run that trained it.
    EstimateWrong "estimate_wrong" "it took much longer or shorter than its first plan said, and which figure was wrong",
    EstimateCost "estimate_cost" "with what is known now, another strategy on no more devices would have taken less time",
    // Strategies of a task.
    Chosen "chosen" "the task's present strategy",
    Worse "worse" "it takes longer than the chosen strategy, and no fewer device-seconds",
    Longer "longer" "it takes longer than the chosen strategy, but fewer device-seconds (seconds × devices)",
    MoreDeviceTime "more_device_time" "it takes less time than the chosen strategy, but more device-seconds",
    BetterNow "better_now" "it takes less time and fewer device-seconds; the next plan may choose it",
    OtherType "other_type" "it takes less time and fewer device-seconds, on devices of another type",
    NotApplicable "not_applicable" "its technique says that it can't run the task",
    OutOfMemory "out_of_memory" "its trial ran out of memory",
    TrialFailed "trial_failed" "its trial failed",
    Excluded "excluded" "this task failed under it, and does without it",
    NotTried "not_tried" "it has not been measured",
    NotAllowed "not_allowed" "the task does not allow that technique, those knobs or that number of devices, or its person may not hold so many",
    NoDevices "no_devices" "the pool has too few devices of that type",
    // Moves of a task.
    MovedReplan "moved_replan" "a new plan gave it another strategy or other devices",
    MovedSwitch "moved_switch" "the plan gave it another strategy or other devices in the middle of its training",
    MovedSetAside "moved_set_aside" "its devices were set aside",
    MovedTrial "moved_trial" "a trial that may save more time needed its devices",
    MovedFirstTrial "moved_first_trial" "another person, who had no device, needed its devices for a first trial",
    MovedHold "moved_hold" "the stopper held it, and it continued elsewhere",
    MovedPause "moved_pause" "it was paused, and continued elsewhere",
    MovedStop "moved_stop" "the run was stopped, and the task continued elsewhere",
    MovedFailure "moved_failure" "it failed, and continued elsewhere",
    MovedLost "moved_lost" "its node, or the process that drove the run, went away",
    // The run as a whole.
    RunGoesOn "run_goes_on" "tasks train",
    RunMeasures "run_measures" "trials run, and no task trains yet",
    RunPlans "run_plans" "tasks are measured and wait for a plan or for their time",
    RunNoRoom "run_no_room" "no task can run on the present devices",
    RunAllHeld "run_all_held" "every task that has not ended is held by the stopper, or paused",
    RunAllPaused "run_all_paused" "every task that has not ended is paused",
    RunIdle "run_idle" "every task has ended, and more may come",
    RunStops "run_stops" "the run is stopping",
    RunInterrupted "run_interrupted" "the run was stopped, and can be resumed",
    RunDied "run_died" "the process that drove the run died; the run can be resumed",
    RunComplete "run_complete" "the run has ended",
    PlanSolved "plan_solved" "the plan in force is the solver's",
    PlanExtended "plan_extended" "the plan in force is an earlier plan with new tasks put behind it",
    PlanNone "plan_none" "no plan has been made",
    ReplanGain "replan_gain" "the gain that the last new plan promised",
    ReplanKept "replan_kept" "the plan was kept: no other plan saves enough to switch to it",
    SolverFailed "solver_failed" "the last solve gave no usable plan",
    DeviceTime "device_time" "where the time of all devices went",
    DeviceLate "device_late" "no task trained on a device for more than 5 s at the start, and why",
    DeviceSetAside "device_set_aside" "a device is set aside",
    NodeGone "node_gone" "a node left the run",
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
