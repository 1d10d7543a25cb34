//! The interface to machines: a launcher starts, stops and kills gangs, and tells what became of
//! them.
//!
//! The engine names attempts, tasks and devices. A launcher turns these into processes, and keeps
//! their ids, paths and sockets to itself. The runtime has the launchers of the local machine and
//! of a cluster; the simulator has that of a virtual cluster.

use std::cmp::Reverse;

use saturn_core::{Node, Strategy};
use serde::{Deserialize, Serialize};

use crate::facts::config::{Level, TaskSpec, TechniqueRef};
use crate::facts::event::{Action, Event};
use crate::facts::failure::FailureKind;
use crate::facts::ids::{AttemptId, NodeId, TaskId};
use crate::facts::record::{AttemptEnd, Purpose};
use crate::state::run::State;

/// A gang to start: everything that a launcher must know, so that it need not know the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// Number of the attempt.
    pub attempt: AttemptId,
    /// Which task.
    pub task: TaskId,
    /// The task's specification.
    pub spec: TaskSpec,
    /// The attempt's purpose.
    pub purpose: Purpose,
    /// Technique, device count and knobs.
    pub strategy: Strategy,
    /// What its ranks do, and with what.
    pub work: Work,
    /// How many ranks the gang has.
    pub num_ranks: u32,
    /// The parts of its gang, most devices first: ranks are numbered in this order. An inspection
    /// has no devices; the launcher runs it where it likes.
    pub parts: Vec<GangPart>,
    /// The task's total number of steps; `None` unless the attempt trains.
    pub steps: Option<u64>,
    /// Finished steps at which it is to stop at a checkpoint, where that is before the last.
    pub until_step: Option<u64>,
    /// How much each device may hold, bytes; `None`: only its own size limits it.
    pub device_memory_bytes: Option<u64>,
    /// Steps of a trial that are not timed.
    pub warmup_steps: u32,
    /// At least how many steps of a trial are timed.
    pub timed_steps: u32,
    /// At most how many steps of a trial are timed.
    pub max_timed_steps: u32,
    /// Time between two checkpoints, seconds; `None`: as follows from what they cost and from
    /// `failure_every_s`.
    pub checkpoint_every_s: Option<f64>,
    /// The run's mean time between failures of attempts that are not their task's fault, seconds.
    pub failure_every_s: f64,
}

/// What the ranks of an attempt do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Say what can run at all.
    Inspect {
        /// The techniques that are asked, as a worker finds them.
        techniques: Vec<TechniqueRef>,
        /// The device counts for which they are asked.
        widths: Vec<Widths>,
    },
    /// Run under this technique, as a worker finds it.
    Run(TechniqueRef),
}

/// Device counts on a type of device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Widths {
    /// The type.
    pub gpu_type: String,
    /// The counts, ascending.
    pub gpus: Vec<u32>,
    /// Devices of each node of the type, most first: a gang that none of them holds takes several.
    pub node_gpus: Vec<u32>,
}

/// The devices of a gang on one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GangPart {
    /// The node.
    pub node: Node,
    /// Numbers of its devices.
    pub devices: Vec<u32>,
}

/// Why a gang could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchError {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// One line.
    pub error: String,
}

impl LaunchOrder {
    /// The order for [`Action::Launch`]; `None` for every other action. It fails where the run has
    /// no technique of that name.
    pub fn of(state: &State, action: &Action) -> Option<Result<Self, LaunchError>> {
        let Action::Launch { attempt, task, purpose, strategy, gang, steps, until_step } = action
        else {
            return None;
        };
        let config = &state.config;
        let work = if *purpose == Purpose::Inspection {
            let managed = config.techniques.iter().filter(|one| one.level == Level::Managed);
            Work::Inspect { techniques: managed.cloned().collect(), widths: asked_widths(state) }
        } else if let Some(technique) = config.technique(&strategy.technique) {
            Work::Run(technique.clone())
        } else {
            let error = format!("technique `{}` is not in the run", strategy.technique);
            return Some(Err(LaunchError { kind: FailureKind::NotApplicable, error }));
        };
        let mut parts: Vec<GangPart> = gang
            .iter()
            .map(|placement| GangPart {
                node: state.cluster.nodes[NodeId(placement.node).0].clone(),
                devices: placement.devices.clone(),
            })
            .collect();
        // Gangs with equal parts have the same shape each time.
        parts.sort_by_key(|part| Reverse(part.devices.len()));
        Some(Ok(Self {
            attempt: *attempt,
            task: *task,
            spec: state.task(*task).spec.clone(),
            purpose: *purpose,
            strategy: strategy.clone(),
            work,
            num_ranks: config.num_ranks(strategy),
            parts,
            steps: *steps,
            until_step: *until_step,
            device_memory_bytes: config.device_memory_bytes,
            warmup_steps: config.policy.warmup_steps,
            timed_steps: config.policy.timed_steps,
            max_timed_steps: config.policy.max_timed_steps,
            checkpoint_every_s: config.policy.checkpoint_every_s,
            failure_every_s: state.failure_every_s(),
        }))
    }
}

/// The device counts about which an inspection asks the techniques.
fn asked_widths(state: &State) -> Vec<Widths> {
    let asked = state.breadths.iter().map(|one| Widths {
        gpu_type: one.gpu_type.clone(),
        gpus: one.counts(),
        node_gpus: one.nodes.clone(),
    });
    asked.collect()
}

/// What a launcher has to tell.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of it are events")]
pub enum News {
    /// Something for the engine: a report, an exit, a launch that failed after all, a node.
    Event(Event),
    /// A message about the machine, for the person who watches the run.
    Note(String),
}

/// Starts and stops gangs. Calls of a launcher return at once: no call waits for a process.
pub trait Launcher {
    /// Whether a gang that is launched now starts without delay. While this is false at the
    /// beginning of a run, the run's clock stands still.
    fn is_ready(&self) -> bool {
        true
    }

    /// Starts all processes of a gang, or none. It may still fail later, by
    /// [`Event::LaunchFailed`].
    fn launch(&mut self, order: LaunchOrder) -> Result<(), LaunchError>;

    /// Asks all ranks to stop together at a checkpoint.
    fn stop(&mut self, attempt: AttemptId);

    /// Tells all ranks at which finished step to stop at a checkpoint; `None` for the task's last.
    fn until(&mut self, attempt: AttemptId, step: Option<u64>);

    /// Tells all ranks of a trial to go on as training, up to the task's last step. The ranks wait
    /// for this answer.
    fn go_on(&mut self, attempt: AttemptId, steps: u64);

    /// Kills all processes of a gang, those too that are yet to come.
    fn kill(&mut self, attempt: AttemptId);

    /// The end of an attempt is on record: data that only its end needed may be deleted.
    fn ended(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        let _ = (attempt, end);
    }

    /// The next thing to tell, if there is one.
    fn poll(&mut self) -> Option<News>;
}
