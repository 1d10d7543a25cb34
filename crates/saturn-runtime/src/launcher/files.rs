//! The files of an attempt: its spec, its logs, its rendezvous.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use saturn_core::Strategy;
use saturn_engine::{AttemptId, Purpose, RunConfig, TaskId, TechniqueRef};

use crate::devices::Pool;
use crate::error::RuntimeError;
use crate::protocol::Spec;
use crate::run_dir::RunDir;

/// How much of a dead rank's log is kept as its last words, bytes: more than a stack of every thread,
/// which may follow what it died of.
const LAST_WORDS_BYTES: u64 = 16_000;

/// One launch: everything that its ranks are told.
#[derive(Debug)]
pub(crate) struct LaunchFiles {
    pub(crate) spec: PathBuf,
    pub(crate) num_ranks: u32,
    directory: PathBuf,
    gpus: u32,
    task: String,
    attempt: AttemptId,
    visible: Vec<String>,
    port: u16,
}

/// What an attempt is to do.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) attempt: AttemptId,
    pub(crate) task: TaskId,
    pub(crate) purpose: Purpose,
    pub(crate) strategy: &'a Strategy,
    pub(crate) devices: Vec<u32>,
    pub(crate) steps: Option<u64>,
    pub(crate) until_step: Option<u64>,
}

impl LaunchFiles {
    /// Writes the spec of an attempt into a fresh directory of its own.
    pub(crate) fn write(
        run: &RunDir,
        config: &RunConfig,
        pool: &Pool,
        socket: &Path,
        order: &Order<'_>,
    ) -> Result<Self, RuntimeError> {
        let task = &config.tasks[order.task.0];
        let task_dir = run.path().join(&task.dir);
        let directory = attempt_dir(run.path(), config, order.task, order.attempt);
        std::fs::create_dir_all(&directory).map_err(RuntimeError::file("create", &directory))?;
        let strategy = order.strategy;
        let technique =
            config.technique(&strategy.technique).ok_or_else(|| RuntimeError::Request {
                reason: format!("technique `{}` is not in the run", strategy.technique),
            })?;
        // A relative path is within the run directory.
        let pickle = technique.pickle.as_ref().map(|pickle| run.path().join(pickle));
        let technique = TechniqueRef {
            pickle: pickle.map(|path| path.to_string_lossy().into_owned()),
            ..technique.clone()
        };
        let num_ranks = config.num_ranks(strategy);
        let (cores, visible) = match pool {
            Pool::Cpu { slots, .. } => {
                let cores = order.devices.iter().map(|device| vec![slots[*device as usize]]);
                (Some(cores.collect()), Vec::new())
            }
            Pool::Cuda { uuids, .. } => {
                let uuids = order.devices.iter().map(|device| uuids[*device as usize].clone());
                (None, uuids.collect())
            }
        };
        let is_training = order.purpose == Purpose::Train;
        let spec = Spec {
            version: 1,
            kind: if is_training { "train" } else { "trial" },
            run_dir: run.path(),
            task: &task.name,
            task_dir,
            attempt: order.attempt,
            technique: &technique,
            gpus: strategy.gpus,
            knobs: is_training.then_some(&strategy.knobs),
            world_size: num_ranks,
            device_kind: pool.kind(),
            devices: order.devices.clone(),
            device_memory_bytes: config.device_memory_bytes,
            cores,
            steps: order.steps,
            stop_at_step: order.until_step,
            warmup_steps: config.policy.warmup_steps,
            timed_steps: config.policy.timed_steps,
            checkpoint_every_s: config.policy.checkpoint_every_s,
            rendezvous: directory.join("rendezvous"),
            socket,
        };
        let path = directory.join("spec.json");
        let json = serde_json::to_vec_pretty(&spec)
            .map_err(|error| RuntimeError::file("write", &path)(error.into()))?;
        std::fs::write(&path, json).map_err(RuntimeError::file("write", &path))?;
        Ok(Self {
            spec: path,
            num_ranks,
            directory,
            gpus: strategy.gpus,
            task: task.name.clone(),
            attempt: order.attempt,
            visible,
            port: free_port(),
        })
    }

    /// Where a rank's output goes.
    pub(crate) fn log(&self, rank: u32) -> PathBuf {
        rank_log(&self.directory, rank)
    }

    /// What torchrun's users expect in a rank's environment, and what is ours.
    pub(crate) fn environment(&self, rank: u32) -> BTreeMap<String, String> {
        let mut environment: BTreeMap<String, String> = [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("WORLD_SIZE", self.num_ranks.to_string()),
            ("LOCAL_WORLD_SIZE", self.num_ranks.to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", self.port.to_string()),
            ("GLOO_SOCKET_IFNAME", "lo".to_owned()),
            ("CUDA_VISIBLE_DEVICES", self.visible.join(",")),
            ("SATURN_TASK", self.task.clone()),
            ("SATURN_ATTEMPT", self.attempt.to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        // A black-box process may use a thread for each of its slots.
        let num_threads = if self.num_ranks == 1 { self.gpus } else { 1 };
        environment.insert("OMP_NUM_THREADS".to_owned(), num_threads.to_string());
        environment
    }
}

/// The directory of an attempt.
pub(crate) fn attempt_dir(
    run: &Path,
    config: &RunConfig,
    task: TaskId,
    attempt: AttemptId,
) -> PathBuf {
    run.join(&config.tasks[task.0].dir).join("attempts").join(attempt.to_string())
}

fn rank_log(attempt_dir: &Path, rank: u32) -> PathBuf {
    attempt_dir.join(format!("rank-{rank}.log"))
}

/// The end of a rank's log; empty where there is none.
pub(crate) fn last_words(attempt_dir: &Path, rank: u32) -> String {
    let read = || -> std::io::Result<String> {
        let mut log = std::fs::File::open(rank_log(attempt_dir, rank))?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES)))?;
        let mut tail = Vec::new();
        log.read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    };
    read().unwrap_or_default()
}

/// A port that was free just now, for techniques that make their own rendezvous. Saturn's own uses a
/// file, so a race for it costs nothing.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_or(29500, |address| address.port())
}
