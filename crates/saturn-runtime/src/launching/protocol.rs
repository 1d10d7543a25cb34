//! The lines that the runtime and its workers exchange: JSON, one value a line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saturn_core::Knobs;
use saturn_engine::{AttemptId, DeviceKind, TechniqueRef};
use serde::{Deserialize, Serialize};

/// A line to a parent of ranks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToParent<'a> {
    /// Start a rank.
    Launch(&'a RankLaunch),
}

/// A rank to start.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RankLaunch {
    #[serde(serialize_with = "as_key")]
    pub(crate) key: RankKey,
    pub(crate) spec: PathBuf,
    pub(crate) rank: u32,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) log: PathBuf,
}

/// A line from a parent of ranks.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum FromParent {
    /// The parent has imported everything.
    Ready {
        #[serde(rename = "ready")]
        _ready: bool,
        /// Why the parent must not fork, in words that follow its name: its imports have started or
        /// opened something that does not survive a fork.
        cannot_fork: Option<String>,
    },
    /// A rank was started.
    Launched { launched: LaunchedRank },
    /// A rank has ended and was reaped.
    Exited { exited: ExitedRank },
}

/// A rank that was started.
#[derive(Debug, Deserialize)]
pub(crate) struct LaunchedRank {
    pub(crate) key: String,
    pub(crate) pid: i32,
}

/// A rank that has ended.
#[derive(Debug, Deserialize)]
pub(crate) struct ExitedRank {
    pub(crate) key: String,
    pub(crate) code: i32,
    /// Why the rank could not be started; `None` for a rank that had a process.
    #[serde(default)]
    pub(crate) why: Option<String>,
}

/// The first line of a rank on its socket. Every later line is a [`saturn_engine::RankReport`].
#[derive(Debug, Deserialize)]
pub(crate) struct Hello {
    pub(crate) attempt: AttemptId,
    pub(crate) rank: u32,
}

/// A line to a rank, on its socket.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub(crate) enum ToRank {
    /// Stop at a checkpoint.
    Stop,
    /// Stop at a checkpoint after `step` finished steps; `None` for the task's last step. The
    /// newest order counts.
    Until { step: Option<u64> },
    /// Continue as training, up to `steps` finished steps. A trial waits for this order.
    GoOn { steps: u64 },
}

/// The `spec.json` of an inspection.
#[derive(Debug, Serialize)]
pub(crate) struct InspectionSpec<'a> {
    pub(crate) version: u32,
    /// `inspect`.
    pub(crate) kind: &'static str,
    pub(crate) run_dir: &'a Path,
    pub(crate) task: &'a str,
    pub(crate) task_dir: PathBuf,
    pub(crate) attempt: AttemptId,
    /// The techniques to ask.
    pub(crate) techniques: Vec<TechniqueRef>,
    pub(crate) device_kind: DeviceKind,
    /// The devices to ask the techniques about.
    pub(crate) pools: Vec<AskedPool<'a>>,
    pub(crate) socket: &'a Path,
}

/// The devices of one type that a technique is asked about.
#[derive(Debug, Serialize)]
pub(crate) struct AskedPool<'a> {
    pub(crate) gpu_type: &'a str,
    /// The numbers of devices to ask about.
    pub(crate) gpus: &'a [u32],
    /// How many devices each node of the type has, largest first.
    pub(crate) node_gpus: &'a [u32],
    /// How much each device may hold, bytes; `None` if that is not known.
    pub(crate) device_memory_bytes: Option<u64>,
}

/// The `spec.json` of a rank.
#[derive(Debug, Serialize)]
pub(crate) struct Spec<'a> {
    pub(crate) version: u32,
    /// `train` or `trial`.
    pub(crate) kind: &'static str,
    pub(crate) run_dir: &'a Path,
    pub(crate) task: &'a str,
    pub(crate) task_dir: PathBuf,
    pub(crate) attempt: AttemptId,
    pub(crate) technique: TechniqueRef,
    pub(crate) gpus: u32,
    /// `None` in a trial, where the technique chooses.
    pub(crate) knobs: Option<&'a Knobs>,
    pub(crate) world_size: u32,
    /// The first rank on this node.
    pub(crate) first_rank: u32,
    /// How many devices each of the gang's nodes has, in the order of the ranks.
    pub(crate) node_gpus: Vec<u32>,
    pub(crate) device_kind: DeviceKind,
    /// The devices of this node.
    pub(crate) devices: Vec<u32>,
    /// How much each device may hold, bytes; `None`: only its own size limits it.
    pub(crate) device_memory_bytes: Option<u64>,
    /// For CPU slots, the cores of each device.
    pub(crate) cores: Option<Vec<Vec<usize>>>,
    pub(crate) steps: Option<u64>,
    /// The finished step at which the gang stops at a checkpoint, if that is before the last.
    pub(crate) stop_at_step: Option<u64>,
    pub(crate) warmup_steps: u32,
    pub(crate) timed_steps: u32,
    pub(crate) max_timed_steps: u32,
    /// `None`: derived from the cost of a checkpoint and `failure_every_s`.
    pub(crate) checkpoint_every_s: Option<f64>,
    pub(crate) failure_every_s: f64,
    /// Where the ranks of a gang on one node meet: a file that does not exist yet.
    pub(crate) rendezvous: PathBuf,
    /// Where the ranks of a gang on several nodes meet: the address and port of an open store.
    pub(crate) store: Option<&'a str>,
    pub(crate) socket: &'a Path,
}

/// A rank of an attempt; `attempt/rank` in the lines of its parent.
pub(crate) type RankKey = (AttemptId, u32);

fn as_key<S: serde::Serializer>((attempt, rank): &RankKey, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{attempt}/{rank}"))
}

/// Reads a key.
pub(crate) fn parse_rank_key(key: &str) -> Option<RankKey> {
    let (attempt, rank) = key.split_once('/')?;
    Some((AttemptId(attempt.parse().ok()?), rank.parse().ok()?))
}
