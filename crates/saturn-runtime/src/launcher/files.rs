//! The files of an attempt: its spec, its logs, its rendezvous.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use saturn_engine::{AttemptId, LaunchOrder, Purpose, TechniqueRef, Widths, Work};

use super::protocol::{AskedPool, InspectionSpec, RankLaunch, Spec};
use super::strays;
use crate::devices::{Device, Pool};
use crate::disk::Disk;
use crate::error::RuntimeError;

/// How much of a dead rank's log is kept as its last words, bytes: more than a stack of every thread,
/// which may follow what it died of.
const LAST_WORDS_BYTES: u64 = 16_000;

/// What all launches of a run have in common.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) run_dir: PathBuf,
    pub(crate) run_id: String,
    pub(crate) socket: PathBuf,
    pub(crate) pool: Pool,
    /// What the least device of a type holds, bytes, where others than this machine's count.
    pub(crate) memory_by_type: BTreeMap<String, u64>,
    pub(crate) disk: Disk,
}

impl Place {
    /// The directory of an attempt of the task whose directory within the run's is `task_dir`.
    pub(crate) fn attempt_dir(&self, task_dir: &str, attempt: AttemptId) -> PathBuf {
        attempt_dir(&self.run_dir, task_dir, attempt)
    }

    /// Writes the spec of an attempt into a fresh directory of its own; its ranks come back, ready to
    /// be started.
    pub(crate) fn write(&self, order: &LaunchOrder) -> Result<Vec<RankLaunch>, RuntimeError> {
        let directory = self.attempt_dir(&order.spec.dir, order.attempt);
        self.disk.make_directory(&directory)?;
        let devices = self.devices(order)?;
        let spec = directory.join("spec.json");
        let json = match &order.work {
            Work::Inspect { techniques, widths } => {
                serde_json::to_vec_pretty(&self.inspection_spec(order, techniques, widths))
            }
            Work::Run(technique) => {
                serde_json::to_vec_pretty(&self.spec(order, technique, &directory, &devices))
            }
        };
        let json = json.map_err(|error| RuntimeError::file("write", &spec)(error.into()))?;
        self.disk.write(&spec, &json)?;
        let common = self.environment(order, &devices);
        let launches = (0..order.num_ranks).map(|rank| {
            let mut env = common.clone();
            env.insert("RANK".to_owned(), rank.to_string());
            env.insert("LOCAL_RANK".to_owned(), rank.to_string());
            let log = rank_log(&directory, rank);
            RankLaunch { key: (order.attempt, rank), spec: spec.clone(), rank, env, log }
        });
        Ok(launches.collect())
    }

    /// The devices of a gang, with their numbers.
    fn devices(&self, order: &LaunchOrder) -> Result<Vec<(u32, Device)>, RuntimeError> {
        let numbered = order
            .parts
            .iter()
            .flat_map(|part| part.devices.iter().map(move |number| (&part.node, *number)));
        numbered
            .map(|(node, number)| match self.pool.device(node, number) {
                Some(device) => Ok((number, device.clone())),
                None => Err(RuntimeError::Request {
                    reason: format!("this machine has no device {number} of `{}`", node.name),
                }),
            })
            .collect()
    }

    fn inspection_spec<'a>(
        &'a self,
        order: &'a LaunchOrder,
        techniques: &[TechniqueRef],
        widths: &'a [Widths],
    ) -> InspectionSpec<'a> {
        let pools = widths.iter().map(|Widths { gpu_type, gpus }| {
            let (limit, own) = (order.device_memory_bytes, self.memory_bytes(gpu_type));
            let device_memory_bytes = limit.into_iter().chain(own).min();
            AskedPool { gpu_type, gpus, device_memory_bytes }
        });
        InspectionSpec {
            version: 1,
            kind: "inspect",
            run_dir: &self.run_dir,
            task: &order.spec.name,
            task_dir: self.run_dir.join(&order.spec.dir),
            attempt: order.attempt,
            techniques: techniques.iter().map(|one| self.findable(one)).collect(),
            device_kind: self.pool.kind(),
            pools: pools.collect(),
            socket: &self.socket,
        }
    }

    /// What each device of a type holds at least, bytes.
    fn memory_bytes(&self, gpu_type: &str) -> Option<u64> {
        let elsewhere = self.memory_by_type.get(gpu_type).copied();
        self.pool.memory_bytes(gpu_type).into_iter().chain(elsewhere).min()
    }

    /// A technique as a worker finds it: a relative path is within the run directory.
    fn findable(&self, technique: &TechniqueRef) -> TechniqueRef {
        let pickle = technique.pickle.as_ref().map(|pickle| self.run_dir.join(pickle));
        TechniqueRef {
            pickle: pickle.map(|path| path.to_string_lossy().into_owned()),
            ..technique.clone()
        }
    }

    fn spec<'a>(
        &'a self,
        order: &'a LaunchOrder,
        technique: &TechniqueRef,
        directory: &Path,
        devices: &[(u32, Device)],
    ) -> Spec<'a> {
        let is_training = order.purpose == Purpose::Train;
        let cores: Vec<Vec<usize>> = devices
            .iter()
            .filter_map(|(_, device)| match device {
                Device::Core(core) => Some(vec![*core]),
                Device::Gpu { .. } => None,
            })
            .collect();
        Spec {
            version: 1,
            kind: if is_training { "train" } else { "trial" },
            run_dir: &self.run_dir,
            task: &order.spec.name,
            task_dir: self.run_dir.join(&order.spec.dir),
            attempt: order.attempt,
            technique: self.findable(technique),
            gpus: order.strategy.gpus,
            knobs: is_training.then_some(&order.strategy.knobs),
            world_size: order.num_ranks,
            device_kind: self.pool.kind(),
            devices: devices.iter().map(|(number, _)| *number).collect(),
            device_memory_bytes: order.device_memory_bytes,
            cores: (!cores.is_empty()).then_some(cores),
            steps: order.steps,
            stop_at_step: order.until_step,
            warmup_steps: order.warmup_steps,
            timed_steps: order.timed_steps,
            max_timed_steps: order.max_timed_steps,
            checkpoint_every_s: order.checkpoint_every_s,
            failure_every_s: order.failure_every_s,
            rendezvous: directory.join("rendezvous"),
            socket: &self.socket,
        }
    }

    /// What torchrun's users expect in the environment of every rank, and what is ours.
    fn environment(
        &self,
        order: &LaunchOrder,
        devices: &[(u32, Device)],
    ) -> BTreeMap<String, String> {
        let visible: Vec<&str> = devices
            .iter()
            .filter_map(|(_, device)| match device {
                Device::Gpu { uuid, .. } => Some(uuid.as_str()),
                Device::Core(_) => None,
            })
            .collect();
        // A black-box process may use a thread for each of its slots.
        let num_threads = if order.num_ranks == 1 { order.strategy.gpus.max(1) } else { 1 };
        [
            ("WORLD_SIZE", order.num_ranks.to_string()),
            ("LOCAL_WORLD_SIZE", order.num_ranks.to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", free_port().to_string()),
            ("GLOO_SOCKET_IFNAME", "lo".to_owned()),
            ("CUDA_VISIBLE_DEVICES", visible.join(",")),
            ("OMP_NUM_THREADS", num_threads.to_string()),
            ("SATURN_TASK", order.spec.name.clone()),
            ("SATURN_ATTEMPT", order.attempt.to_string()),
            (strays::VARIABLE, strays::mark(&self.run_id, order.attempt)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// The directory of an attempt of the task whose directory within the run's is `task_dir`.
pub(crate) fn attempt_dir(run_dir: &Path, task_dir: &str, attempt: AttemptId) -> PathBuf {
    run_dir.join(task_dir).join("attempts").join(attempt.to_string())
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
