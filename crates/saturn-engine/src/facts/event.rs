//! Events, which the engine takes in, and actions, which it asks for.

use std::collections::BTreeMap;

use saturn_core::{
    Cluster, Gang, Inspection, Knobs, Node, Objective, Plan, Problem, Strategy, TrialOutcome,
    measure,
};
use serde::{Deserialize, Serialize};

use crate::facts::config::TaskSpec;
use crate::facts::evaluation::{BestEvaluation, Evaluation};
use crate::facts::failure::FailureKind;
use crate::facts::ids::{AttemptId, DeviceId, TaskId};
use crate::facts::judgement::NamedJudgement;
use crate::facts::machines::{MachineMemory, Machines};
use crate::facts::record::Purpose;
use crate::facts::sharing::Sharing;

/// What a rank says while it lives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RankReport {
    /// Model and data are loaded; training goes on after `step` finished steps.
    Started {
        /// Finished steps.
        step: u64,
        /// Seconds from launch until now.
        setup_s: f64,
    },
    /// A heartbeat during long work between steps: building, loading or skipping data.
    Alive,
    /// Training goes on.
    Progress {
        /// Finished steps.
        step: u64,
        /// Loss of the last step, where known.
        #[serde(default, with = "measure::optional")]
        loss: Option<f64>,
        /// Recent seconds a step, where known.
        step_s: Option<f64>,
    },
    /// A checkpoint is complete and in place.
    Checkpoint {
        /// Finished steps in it.
        step: u64,
        /// Seconds that saving took.
        save_s: f64,
        /// Seconds that training stood still for it.
        blocked_s: f64,
        /// Loss of that step, where known.
        #[serde(default, with = "measure::optional")]
        loss: Option<f64>,
    },
    /// The model was evaluated. A resumed attempt repeats its checkpoint's last evaluation.
    Evaluated {
        /// What was found.
        #[serde(flatten)]
        evaluation: Evaluation,
        /// The best evaluation so far, if the task names a metric and a mode.
        #[serde(default)]
        best: Option<BestEvaluation>,
        /// Seconds that the evaluation took; `None` if an earlier attempt made it.
        #[serde(default)]
        evaluation_s: Option<f64>,
    },
    /// The result of an inspection.
    Inspected {
        /// The whole result.
        inspection: Box<Inspection>,
    },
    /// A trial's result.
    Trial {
        /// Knobs that the technique chose.
        #[serde(default)]
        knobs: Knobs,
        /// What came of it.
        outcome: TrialOutcome,
        /// Finished steps, if the trial's steps are the task's own. The trial then waits for
        /// [`Action::GoOn`] or [`Action::Stop`].
        #[serde(default)]
        step: Option<u64>,
    },
    /// The task is trained and its last checkpoint is in place. All its steps are done, or its own
    /// code ended the training early.
    Finished {
        /// Finished steps.
        step: u64,
        /// Loss of the last step.
        #[serde(default, with = "measure::optional")]
        loss: Option<f64>,
    },
    /// A stop was honoured; the checkpoint is in place.
    Stopped {
        /// Finished steps.
        step: u64,
    },
    /// A rank fails.
    Failed {
        /// What kind.
        kind: FailureKind,
        /// One line.
        error: String,
        /// Its traceback.
        #[serde(default)]
        traceback: String,
    },
    /// A message for the person who watches the run.
    Note {
        /// The message.
        text: String,
    },
}

/// A solver's answer to [`Action::Solve`].
#[derive(Debug, Clone, PartialEq)]
pub struct SolveAnswer {
    /// A plan of the problem that was asked, checked.
    pub plan: Plan,
    /// Makespan of current practice on the same problem (all devices to one task at a time, its
    /// best technique), seconds.
    pub current_practice_s: Option<f64>,
    /// Whether current practice uses a strategy that was only estimated, never measured.
    pub practice_is_estimate: bool,
    /// A plan of [`SolveOrder::optimistic`], where that was asked and solved.
    pub optimistic: Option<Plan>,
}

/// A task to add, as a person describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewTask {
    /// The task, without its predecessors.
    #[serde(flatten)]
    pub spec: TaskSpec,
    /// Names of tasks that must be done before this task starts. They are tasks of the run, or come
    /// earlier in the same list.
    #[serde(default)]
    pub after: Vec<String>,
}

/// What a person asks of a run in progress. Tasks and nodes go by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command", deny_unknown_fields)]
pub enum Command {
    /// Add tasks: all of them, or none where one is refused.
    Submit {
        /// The tasks.
        tasks: Vec<NewTask>,
    },
    /// No more tasks will come: the run ends when every task has ended.
    Close,
    /// End a task that is not wanted any more.
    Cancel {
        /// The task's name.
        task: String,
        /// The login name of the person who ends another person's task. The driver sets it, whatever
        /// a client sends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Stop a task at a checkpoint until it is taken up again.
    Pause {
        /// The task's name.
        task: String,
    },
    /// Take a paused task up again.
    Unpause {
        /// The task's name.
        task: String,
    },
    /// Change a task's priority, deadline, release or predecessors. Absent fields stay as they are.
    Wish {
        /// The task's name.
        task: String,
        /// The new priority: a task of higher priority ends sooner.
        #[serde(default)]
        priority: Option<i32>,
        /// The new deadline, seconds on the run's clock.
        #[serde(default)]
        deadline_s: Option<f64>,
        /// Removes the deadline.
        #[serde(default)]
        no_deadline: bool,
        /// The task does not train before this time, seconds on the run's clock.
        #[serde(default)]
        release_s: Option<f64>,
        /// Names of tasks that must be done before it starts.
        #[serde(default)]
        after: Option<Vec<String>>,
    },
    /// Use devices again that were set aside.
    TakeBack {
        /// Their node.
        node: String,
        /// The numbers of the devices; empty for all devices of the node.
        #[serde(default)]
        devices: Vec<u32>,
    },
    /// Hold tasks, end them or have them go on, as the run's stopper judges.
    Judge {
        /// The rulings, in the order in which the stopper saw the values that they are about.
        judgements: Vec<NamedJudgement>,
    },
    /// Tell the people who watch.
    Note {
        /// The task that it is about; `None` where it is about the run.
        #[serde(default)]
        task: Option<String>,
        /// The word.
        text: String,
    },
    /// Stop the run: at checkpoints, or at once.
    Stop {
        /// At once.
        #[serde(default)]
        at_once: bool,
    },
}

/// An attempt that is over, and has processes that can't be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undead {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its task.
    pub task: TaskId,
    /// The devices that it had.
    pub devices: Vec<DeviceId>,
    /// How many of its ranks live.
    pub num_ranks: u32,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The run begins, on these nodes. Nothing is launched before the next event.
    Begin {
        /// The nodes there are.
        cluster: Cluster,
    },
    /// A new process drives a run rebuilt from its journal, on this pool. Nothing is launched
    /// before the next event.
    Resume {
        /// The nodes there are now.
        cluster: Cluster,
        /// How much each device may hold from now on, bytes; `None`: only its own size limits it.
        device_memory_bytes: Option<u64>,
        /// What the machines are now.
        machines: Machines,
        /// Attempts of [`Engine::adoptable`](crate::Engine::adoptable) that live: their ranks went
        /// on without a driver. No process of any other attempt lives, but for those that
        /// [`Event::Undead`] tells of next.
        living: Vec<AttemptId>,
    },
    /// Processes of attempts that are over live on: an earlier driver killed them, and they have not
    /// ended. This event follows [`Event::Resume`] at once. When such a process ends, a
    /// [`Event::RankExited`] says so, as for every rank.
    Undead {
        /// The attempts that have such processes.
        attempts: Vec<Undead>,
    },
    /// A node joins the pool, or comes back to it.
    NodeJoined {
        /// The node. If the run knows its name, the node has come back.
        spec: Node,
        /// The host memory of its machine; `None`: as before, or no limit.
        host_memory_bytes: Option<MachineMemory>,
    },
    /// A node has gone, with everything on it.
    NodeLeft {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A gang could not be started; none of its processes lives.
    LaunchFailed {
        /// Which attempt.
        attempt: AttemptId,
        /// What kind of failure it is.
        kind: FailureKind,
        /// Why.
        error: String,
    },
    /// A rank says something.
    Reported {
        /// Its attempt.
        attempt: AttemptId,
        /// Its rank.
        rank: u32,
        /// What it says.
        report: RankReport,
    },
    /// A rank's process has ended and was reaped.
    RankExited {
        /// Its attempt.
        attempt: AttemptId,
        /// Its rank.
        rank: u32,
        /// Exit code, or minus the signal's number.
        code: i32,
        /// The end of its log.
        last_words: String,
    },
    /// A solve has ended.
    Solved {
        /// The number in [`Action::Solve`].
        request: u64,
        /// The plan, or why there is none.
        answer: Result<SolveAnswer, String>,
    },
    /// A person gives a command. If the engine refuses it, the decision says why.
    Command {
        /// The command.
        command: Command,
    },
    /// The person wants to stop. The first interrupt stops at checkpoints, the second at once. The
    /// third does not wait for processes that can't be killed.
    Interrupt,
    /// The process that starts the ranks of a person's tasks has gone, or was never there.
    OwnerLeft {
        /// The person's number on the machine.
        uid: u32,
    },
    /// That process has come.
    OwnerCame {
        /// The person's number on the machine.
        uid: u32,
    },
    /// From here on several people share the run, by these rules.
    Shared {
        /// The rules.
        sharing: Sharing,
    },
    /// A disk that was full when an attempt ended has more room than it had then.
    SpaceFreed,
    /// These are the devices that programs other than Saturn use now, each with who uses it.
    UsedOutside {
        /// All of them, on this machine.
        devices: BTreeMap<DeviceId, String>,
    },
    /// The launcher is ready: from now on a launch takes effect at once.
    DriverStarted {
        /// Seconds that its start took, while the run's clock stood still.
        startup_s: f64,
    },
    /// The driver stood still, as after a full disk or a stopped terminal. What was said meanwhile is
    /// told after this.
    StoodStill {
        /// For how long, seconds.
        for_s: f64,
    },
    /// Time has passed.
    Tick,
}

/// A solve to do.
#[derive(Debug, Clone, PartialEq)]
pub struct SolveOrder {
    /// What to solve.
    pub problem: Problem,
    /// The same problem with unmeasured strategies added, each as fast as its estimate allows. An
    /// added strategy that the plan of this problem uses is worth a trial.
    pub optimistic: Option<Problem>,
    /// As `optimistic`, but the added candidates are as fast as their estimates say. Current
    /// practice would have measured these strategies, so its makespan comes from this problem.
    pub expected: Option<Problem>,
    /// The objective, which is minimised.
    pub objective: Objective,
    /// Seconds that it may take.
    pub time_limit_s: f64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Switches that may be planned for each task that states their cost.
    pub max_switches: usize,
    /// The part by which a plan with switches must end earlier than the best plan without switches.
    pub min_switch_gain: f64,
    /// The part by which a plan that moves running tasks must end earlier than the best plan that
    /// moves none.
    pub min_move_gain: f64,
    /// The seconds by which a plan that moves running tasks must end earlier.
    pub min_move_gain_s: f64,
    /// What is left of the plan in force, as a plan of the problem, to start from.
    pub warm_start: Option<Plan>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Start all processes of a gang, or none.
    Launch {
        /// Number of the attempt.
        attempt: AttemptId,
        /// Task to run.
        task: TaskId,
        /// Whether the attempt inspects, tries or trains.
        purpose: Purpose,
        /// Technique, device count and knobs; [`no_strategy`](crate::no_strategy) in an
        /// inspection.
        strategy: Strategy,
        /// Devices; none in an inspection.
        gang: Gang,
        /// The task's total number of steps; `None` unless the attempt trains.
        steps: Option<u64>,
        /// Finished steps at which it is to stop at a checkpoint, where that is before the last.
        until_step: Option<u64>,
    },
    /// Ask all ranks to stop together at a checkpoint.
    Stop {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// Tell all ranks of a trial to go on as training. The ranks wait for this answer.
    GoOn {
        /// Which attempt.
        attempt: AttemptId,
        /// Steps that the task has in all.
        steps: u64,
    },
    /// Tell all ranks at which finished step to stop at a checkpoint, in place of what they were
    /// told before.
    Until {
        /// Which attempt.
        attempt: AttemptId,
        /// The step; `None` for the task's last.
        step: Option<u64>,
    },
    /// Kill all processes of a gang.
    Kill {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// Solve a planning problem and answer with [`Event::Solved`].
    Solve {
        /// Number for the answer.
        request: u64,
        /// What to solve, and how.
        order: Box<SolveOrder>,
    },
}
