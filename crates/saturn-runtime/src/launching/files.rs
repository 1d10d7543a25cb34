//! The files of an attempt: its spec, its logs, its rendezvous.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};

use saturn_engine::{AttemptId, GangPart, LaunchOrder, Purpose, TechniqueRef, Widths, Work};
use saturn_store::Disk;

use crate::devices::pool::{Device, Pool};
use crate::launching::protocol::{AskedPool, InspectionSpec, RankLaunch, Spec};
use crate::launching::strays;
use crate::system::error::RuntimeError;

/// How much of a dead rank's log is kept as its last words, bytes. This is more than the stacks of
/// all threads, which may follow the error that killed the rank.
const LAST_WORDS_BYTES: u64 = 16_000;

/// A node's share of a gang that spans several nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// The number of this share among the order's parts.
    pub(crate) part: usize,
    /// Address and port of the store where the ranks meet.
    pub(crate) store: String,
    /// The node's network interface that other nodes reach, if known.
    pub(crate) interface: Option<String>,
}

impl Share {
    /// The numbers of the ranks in this share.
    pub(crate) fn ranks(part: usize, order: &LaunchOrder) -> Range<u32> {
        let count = |part: &GangPart| u32::try_from(part.devices.len()).unwrap_or(u32::MAX);
        let first: u32 = order.parts.iter().take(part).map(count).sum();
        first..first + order.parts.get(part).map_or(0, count)
    }
}

/// What all launches of a run have in common.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) run_dir: PathBuf,
    pub(crate) run_id: String,
    pub(crate) socket: PathBuf,
    pub(crate) pool: Pool,
    /// The least memory of devices of each type over all machines of a cluster, bytes.
    pub(crate) memory_by_type: BTreeMap<String, u64>,
    pub(crate) disk: Disk,
}

impl Place {
    /// The directory of an attempt; `task_dir` is the task's directory within the run directory.
    pub(crate) fn attempt_dir(&self, task_dir: &str, attempt: AttemptId) -> PathBuf {
        attempt_dir(&self.run_dir, task_dir, attempt)
    }

    /// Writes an attempt's spec into a fresh directory. Returns the ranks to start: for a gang on
    /// several nodes, those of this node's share.
    pub(crate) fn write(
        &self,
        order: &LaunchOrder,
        share: Option<&Share>,
    ) -> Result<Vec<RankLaunch>, RuntimeError> {
        let directory = self.attempt_dir(&order.spec.dir, order.attempt);
        self.disk.make_directory(&directory)?;
        let (parts, ranks) = match share {
            None => (order.parts.as_slice(), 0..order.num_ranks),
            Some(share) => {
                let own = order.parts.get(share.part..=share.part).unwrap_or_default();
                (own, Share::ranks(share.part, order))
            }
        };
        let devices = self.devices(parts)?;
        // All nodes of the gang write into this directory, so each spec needs its own name.
        let spec = directory.join(match share {
            Some(Share { part: 1.., .. }) => format!("spec-of-{}.json", ranks.start),
            _ => "spec.json".to_owned(),
        });
        let json = match &order.work {
            Work::Inspect { techniques, widths } => {
                serde_json::to_vec_pretty(&self.inspection_spec(order, techniques, widths))
            }
            Work::Run(technique) => {
                let here = Here { share, first_rank: ranks.start, devices: &devices };
                serde_json::to_vec_pretty(&self.spec(order, technique, &directory, &here))
            }
        };
        let json = json.map_err(|error| RuntimeError::file("write", &spec)(error.into()))?;
        self.disk.write(&spec, &json)?;
        let first_rank = ranks.start;
        let common = self.environment(order, share, &devices);
        let launches = ranks.map(|rank| {
            let mut env = common.clone();
            env.insert("RANK".to_owned(), rank.to_string());
            env.insert("LOCAL_RANK".to_owned(), (rank - first_rank).to_string());
            let log = rank_log(&directory, rank);
            RankLaunch { key: (order.attempt, rank), spec: spec.clone(), rank, env, log }
        });
        Ok(launches.collect())
    }

    /// The devices of parts of a gang, with their numbers.
    fn devices(&self, parts: &[GangPart]) -> Result<Vec<(u32, Device)>, RuntimeError> {
        let numbered = parts
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
        let pools = widths.iter().map(|Widths { gpu_type, gpus, node_gpus }| {
            let (limit, own) = (order.device_memory_bytes, self.memory_bytes(gpu_type));
            let device_memory_bytes = limit.into_iter().chain(own).min();
            AskedPool { gpu_type, gpus, node_gpus, device_memory_bytes }
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

    /// The memory of the smallest device of a type, bytes.
    fn memory_bytes(&self, gpu_type: &str) -> Option<u64> {
        let elsewhere = self.memory_by_type.get(gpu_type).copied();
        self.pool.memory_bytes(gpu_type).into_iter().chain(elsewhere).min()
    }

    /// A technique with paths that a worker can open: relative paths start in the run directory.
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
        here: &Here<'a>,
    ) -> Spec<'a> {
        let devices = here.devices;
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
            first_rank: here.first_rank,
            node_gpus: order.parts.iter().map(|part| len(&part.devices)).collect(),
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
            store: here.share.map(|share| share.store.as_str()),
            socket: &self.socket,
        }
    }

    /// The environment of every rank: the variables that torchrun sets, and Saturn's own.
    fn environment(
        &self,
        order: &LaunchOrder,
        share: Option<&Share>,
        devices: &[(u32, Device)],
    ) -> BTreeMap<String, String> {
        let visible: Vec<&str> = devices
            .iter()
            .filter_map(|(_, device)| match device {
                Device::Gpu { uuid, .. } => Some(uuid.as_str()),
                Device::Core(_) => None,
            })
            .collect();
        // A black box is a single process, which may use a thread for each of its slots.
        let num_threads = if order.num_ranks == 1 { order.strategy.gpus.max(1) } else { 1 };
        // This port is for techniques that make their own rendezvous. Saturn's rendezvous uses a
        // file or an open store, so another process that takes the port first does no harm to it.
        let (address, port) = match share.and_then(|share| share.store.rsplit_once(':')) {
            Some((address, port)) => (address.to_owned(), port.to_owned()),
            None => ("127.0.0.1".to_owned(), free_port().to_string()),
        };
        let interface = match share {
            None => Some("lo".to_owned()),
            Some(share) => share.interface.clone(),
        };
        let num_here = share.map_or(order.num_ranks, |_| len(devices));
        let interfaces = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"].into_iter();
        // Within one node, NCCL chooses the interface well by itself.
        let interfaces = interfaces.take(if share.is_some() { 2 } else { 1 });
        let interfaces = interfaces.filter_map(|name| Some((name, interface.clone()?)));
        [
            ("WORLD_SIZE", order.num_ranks.to_string()),
            ("LOCAL_WORLD_SIZE", num_here.to_string()),
            ("MASTER_ADDR", address),
            ("MASTER_PORT", port),
            ("CUDA_VISIBLE_DEVICES", visible.join(",")),
            ("OMP_NUM_THREADS", num_threads.to_string()),
            ("SATURN_TASK", order.spec.name.clone()),
            ("SATURN_ATTEMPT", order.attempt.to_string()),
            (strays::VARIABLE, strays::mark(&self.run_id, order.attempt)),
        ]
        .into_iter()
        .chain(interfaces)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// The part of a gang on this node.
struct Here<'a> {
    share: Option<&'a Share>,
    first_rank: u32,
    devices: &'a [(u32, Device)],
}

/// The directory of an attempt; `task_dir` is the task's directory within the run directory.
pub(crate) fn attempt_dir(run_dir: &Path, task_dir: &str, attempt: AttemptId) -> PathBuf {
    run_dir.join(task_dir).join("attempts").join(attempt.to_string())
}

fn rank_log(attempt_dir: &Path, rank: u32) -> PathBuf {
    attempt_dir.join(format!("rank-{rank}.log"))
}

/// The end of a rank's log; empty if there is no log.
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

fn len<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_or(29500, |address| address.port())
}
