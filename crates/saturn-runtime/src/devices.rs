//! The devices of this machine: its GPUs, or CPU slots of one pinned core each where it has none.
//!
//! GPUs are counted through NVML, which initialises no CUDA context, so the warm parent's children
//! can still choose theirs.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, gethostname};
use nvml_wrapper::Nvml;
use saturn_core::{Cluster, Node};
use saturn_engine::DeviceKind;

use crate::error::RuntimeError;

/// The pool that a run may use.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    /// CPU slots: the cores that each slot is pinned to; how many cores there are.
    Cpu { slots: Vec<usize>, num_cores: usize },
    /// GPUs, by UUID, and the type of the first.
    Cuda { uuids: Vec<String>, gpu_type: String },
}

impl Pool {
    /// Looks at the machine. `asked` limits the number of devices; more CPU slots than cores are
    /// allowed and share them.
    pub(crate) fn discover(asked: Option<u32>) -> Result<Self, RuntimeError> {
        if asked == Some(0) {
            let why = "but a run needs at least 1".to_owned();
            return Err(RuntimeError::Devices { asked: 0, why });
        }
        match gpus() {
            Some((mut uuids, gpu_type)) => {
                if let Some(asked) = asked {
                    if asked as usize > uuids.len() {
                        let why = format!("but this machine has {} GPUs", uuids.len());
                        return Err(RuntimeError::Devices { asked, why });
                    }
                    uuids.truncate(asked as usize);
                }
                Ok(Self::Cuda { uuids, gpu_type })
            }
            None => Ok(Self::cpu(asked)),
        }
    }

    fn cpu(asked: Option<u32>) -> Self {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let mut cores: Vec<usize> =
            (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
        if cores.is_empty() {
            cores.push(0);
        }
        let num_slots = asked.map_or(cores.len(), |asked| asked as usize);
        let slots = (0..num_slots).map(|slot| cores[slot % cores.len()]).collect();
        Self::Cpu { slots, num_cores: cores.len() }
    }

    pub(crate) fn kind(&self) -> DeviceKind {
        match self {
            Self::Cpu { .. } => DeviceKind::Cpu,
            Self::Cuda { .. } => DeviceKind::Cuda,
        }
    }

    /// The pool as the planner sees it: one node, this machine.
    pub(crate) fn cluster(&self) -> Cluster {
        let (num_devices, gpu_type) = match self {
            Self::Cpu { slots, .. } => (slots.len(), "cpu"),
            Self::Cuda { uuids, gpu_type } => (uuids.len(), gpu_type.as_str()),
        };
        let name = gethostname().ok().and_then(|name| name.into_string().ok());
        Cluster {
            nodes: vec![Node {
                name: name.unwrap_or_else(|| "localhost".to_owned()),
                gpus: u32::try_from(num_devices).unwrap_or(u32::MAX),
                gpu_type: gpu_type.to_owned(),
            }],
        }
    }

    /// What a person should know before trusting timings.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Cpu { slots, num_cores } if slots.len() > *num_cores => Some(format!(
                "{} CPU slots share {num_cores} cores: training is right, timings are not",
                slots.len()
            )),
            _ => None,
        }
    }
}

/// UUIDs of the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, and the first one's name; `None`
/// where there are none.
fn gpus() -> Option<(Vec<String>, String)> {
    let nvml = Nvml::init().ok()?;
    let mut uuids = Vec::new();
    let mut gpu_type = None;
    for index in 0..nvml.device_count().ok()? {
        let device = nvml.device_by_index(index).ok()?;
        let uuid = device.uuid().ok()?;
        if is_visible(index, &uuid) {
            gpu_type = gpu_type.or_else(|| device.name().ok());
            uuids.push(uuid);
        }
    }
    if uuids.is_empty() { None } else { Some((uuids, gpu_type.unwrap_or_else(|| "gpu".into()))) }
}

fn is_visible(index: u32, uuid: &str) -> bool {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Err(_) => true,
        Ok(visible) => visible.split(',').map(str::trim).any(|entry| {
            entry == index.to_string() || (!entry.is_empty() && uuid.starts_with(entry))
        }),
    }
}
