//! The kinds of faults, how likely each is in a world, and how often each occurred.

use std::collections::BTreeMap;

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A rank dies of a signal.
    RankCrash,
    /// A rank exits without a word.
    RankExit,
    /// A rank is killed from outside.
    RankKilled,
    /// Memory runs out in mid-training, though the trial fitted.
    LateOutOfMemory,
    /// The task's own code raises.
    TaskError,
    /// The machine fails under a rank.
    MachineError,
    /// A gang falls silent.
    Hang,
    /// A rank fails, and its peers' echo is heard first.
    EchoFirst,
    /// Ranks lose each other, and no cause is ever heard.
    EchoOnly,
    /// A rank fails while it tears down after the gang has done its work.
    TeardownFails,
    /// A gang runs slower from some moment on.
    Straggler,
    /// A checkpoint takes much longer than measured.
    SlowSave,
    /// A process outlives its kill for long.
    Unkillable,
    /// A process outlives its kill for ever.
    Immortal,
    /// The agent of a person dies, with all processes of that person's tasks.
    AgentDies,
    /// A gang can't be started.
    LaunchFails,
    /// A gang can't be started for want of disk space.
    LaunchNoSpace,
    /// The disk is full in mid-training.
    NoSpace,
    /// A gang's reports of progress are lost.
    LostProgress,
    /// A gang's reports of checkpoints are lost.
    LostCheckpoints,
    /// A gang's last report is lost.
    LostLastWord,
    /// A gang's reports come late, even after its ranks' ends.
    LateWords,
    /// Each of a gang's reports comes twice.
    DoubledWords,
    /// A report comes of an attempt that ended long ago.
    WordFromThePast,
    /// Ranks hear of a stop late.
    LateStop,
    /// A trial raises.
    TrialFails,
    /// An inspection gives no verdict on some techniques.
    PartInspected,
    /// An inspection is lost: its process dies, hangs or is killed, or the task's own code raises.
    InspectionFails,
    /// A trial's measurement is wrong.
    WrongEstimate,
    /// Each attempt's steps take another time than the true time.
    NoisySteps,
    /// The driver dies before it has taken in an event.
    DriverDies,
    /// The driver dies after deciding, with nothing stored.
    DriverDiesBeforeJournal,
    /// The driver dies with the records stored and nothing done.
    DriverDiesAfterJournal,
    /// The driver dies while a gang saves, and the gang finishes the checkpoint all the same.
    SavedAfterDeath,
    /// A node goes with everything on it.
    NodeLost,
    /// A node comes back.
    NodeBack,
    /// A node comes back with another number of devices.
    NodeBackOther,
    /// A new node joins.
    NodeJoins,
    /// Processes on a device fail.
    BadDevice,
    /// The pool has changed when a new driver takes over.
    OtherPool,
    /// The limit of a device's memory has changed when a new driver takes over.
    OtherMemory,
    /// A solve takes long.
    SlowSolve,
    /// A solve fails.
    SolveFails,
    /// A solve runs out of time before it has a plan.
    SolveTimesOut,
    /// A solver says that there is no plan.
    SolveInfeasible,
    /// A solver's plan names things that don't exist.
    WrongPlan,
    /// A plan comes from a poor baseline.
    PoorPlan,
    /// A task comes late.
    TaskAdded,
    /// A task is cancelled.
    TaskCancelled,
    /// A task is paused, and taken up again later.
    TaskPaused,
    /// A person changes a task's priority, deadline or release.
    Wished,
    /// A person sends an impossible command.
    WrongCommand,
    /// A person takes devices back.
    TakenBack,
    /// The run is stopped at checkpoints, and goes on later.
    Interrupted,
    /// The run is stopped at once, and goes on later.
    InterruptedTwice,
    /// The run is stopped without waiting for anything, and goes on later.
    InterruptedThrice,
    /// A gang waits after its launch, for the parent that starts its ranks or the store where they
    /// meet.
    HeldBack,
    /// A gang that waits so is told to stop.
    StoppedUnstarted,
    /// A gang that waits so is killed, or its node goes.
    KilledUnstarted,
    /// The newest checkpoint can't be loaded, and the one before is taken.
    DamagedCheckpoint,
    /// A task's functions are called before the tasks that it comes after are done, and raise for
    /// want of what those make.
    CalledEarly,
    /// A search's stopper holds tasks at a rung, or lets half of them go on.
    Halved,
    /// The driver stands still for a while, and hears nothing.
    StoodStill,
    /// A node is cut off for a while before the run knows of it.
    CutOff,
    /// Steps on a node take longer for a while.
    SlowNode,
    /// Gangs on a node slow each other down.
    Neighbours,
    /// Tasks evaluate their models.
    Evaluating,
    /// Plans with switches are taken as soon as they gain anything.
    EagerSwitches,
    /// Ranks go on without their driver, and the next driver takes them on.
    RanksOutlive,
    /// A node's reports wait on their way, and then come all at once.
    Backlog,
    /// A node can start no rank for a while.
    NoParents,
    /// A node comes a while after the run has begun.
    LateNode,
    /// The pool has up to 128 devices, and the run up to 300 tasks.
    Large,
    /// A rank that dies leaves the last words of a process without memory.
    LastWords,
    /// A node has gone when a new driver takes over.
    GoneMeanwhile,
    /// Every launch of a task fails in Saturn's own processes.
    AlwaysFails,
    /// More tasks than the nodes' host memory allows at the same time.
    ShortOfMemory,
    /// Programs other than Saturn use devices for a while.
    UsedOutside,
    /// The run is a search: it measures, and trains nothing.
    Search,
    /// Nothing happens to the run from outside, and nothing goes wrong.
    Undisturbed,
    /// Processes that were killed outlive the driver that killed them.
    Undead,
    /// A person shares devices with programs other than Saturn.
    Shared,
    /// A task's own code ends it before its last step.
    EndsItself,
    /// Nobody knows how many steps a pass over the data has.
    Endless,
}

impl Fault {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::RankCrash,
        Self::RankExit,
        Self::RankKilled,
        Self::LateOutOfMemory,
        Self::TaskError,
        Self::MachineError,
        Self::Hang,
        Self::EchoFirst,
        Self::EchoOnly,
        Self::TeardownFails,
        Self::Straggler,
        Self::SlowSave,
        Self::Unkillable,
        Self::Immortal,
        Self::LaunchFails,
        Self::LaunchNoSpace,
        Self::NoSpace,
        Self::LostProgress,
        Self::LostCheckpoints,
        Self::LostLastWord,
        Self::LateWords,
        Self::DoubledWords,
        Self::WordFromThePast,
        Self::LateStop,
        Self::TrialFails,
        Self::PartInspected,
        Self::InspectionFails,
        Self::WrongEstimate,
        Self::NoisySteps,
        Self::DriverDies,
        Self::DriverDiesBeforeJournal,
        Self::DriverDiesAfterJournal,
        Self::SavedAfterDeath,
        Self::NodeLost,
        Self::NodeBack,
        Self::NodeBackOther,
        Self::NodeJoins,
        Self::BadDevice,
        Self::OtherPool,
        Self::OtherMemory,
        Self::SlowSolve,
        Self::SolveFails,
        Self::SolveTimesOut,
        Self::SolveInfeasible,
        Self::WrongPlan,
        Self::PoorPlan,
        Self::TaskAdded,
        Self::TaskCancelled,
        Self::TaskPaused,
        Self::Wished,
        Self::WrongCommand,
        Self::TakenBack,
        Self::Interrupted,
        Self::InterruptedTwice,
        Self::InterruptedThrice,
        Self::HeldBack,
        Self::StoppedUnstarted,
        Self::KilledUnstarted,
        Self::DamagedCheckpoint,
        Self::CalledEarly,
        Self::Halved,
        Self::StoodStill,
        Self::CutOff,
        Self::SlowNode,
        Self::Neighbours,
        Self::Evaluating,
        Self::EagerSwitches,
        Self::RanksOutlive,
        Self::Backlog,
        Self::NoParents,
        Self::LateNode,
        Self::Large,
        Self::LastWords,
        Self::GoneMeanwhile,
        Self::AlwaysFails,
        Self::ShortOfMemory,
        Self::UsedOutside,
        Self::Search,
        Self::Undisturbed,
        Self::Undead,
        Self::Shared,
        Self::EndsItself,
        Self::Endless,
    ];

    /// Whether a scenario draws it apart, from random numbers of its own. Then the scenarios without
    /// it stay as they were before there was such a fault.
    pub(crate) fn is_drawn_apart(self) -> bool {
        self >= Self::HeldBack
    }
}

/// How likely each fault is where it may occur; absent faults never occur.
pub type Odds = BTreeMap<Fault, f64>;

/// How often each fault occurred.
pub type Hits = BTreeMap<Fault, u64>;
