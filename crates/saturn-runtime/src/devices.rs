//! The devices of this machine: its GPUs, or CPU slots of one pinned core each where it has none.
//!
//! GPUs are counted through NVML, which initialises no CUDA context, so the warm parent's children
//! can still choose theirs.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, gethostname};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use saturn_core::{Cluster, Node};
use saturn_engine::DeviceKind;

use crate::error::RuntimeError;

/// The pool that a run may use.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    /// CPU slots: the core that each slot is pinned to; how many cores there are; why not GPUs, where
    /// that may surprise.
    Cpu { slots: Vec<usize>, num_cores: usize, why_no_gpus: Option<String> },
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
        let (mut uuids, gpu_type) = match gpus() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Self::cpu(asked, None)),
            Err(why) => return Ok(Self::cpu(asked, Some(why))),
        };
        if let Some(asked) = asked {
            if asked as usize > uuids.len() {
                let why = format!("but this machine has {} GPUs", uuids.len());
                return Err(RuntimeError::Devices { asked, why });
            }
            uuids.truncate(asked as usize);
        }
        Ok(Self::Cuda { uuids, gpu_type })
    }

    fn cpu(asked: Option<u32>, why_no_gpus: Option<String>) -> Self {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let mut cores: Vec<usize> =
            (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
        if cores.is_empty() {
            cores.push(0);
        }
        let num_slots = asked.map_or(cores.len(), |asked| asked as usize);
        let slots = (0..num_slots).map(|slot| cores[slot % cores.len()]).collect();
        Self::Cpu { slots, num_cores: cores.len(), why_no_gpus }
    }

    pub(crate) fn kind(&self) -> DeviceKind {
        match self {
            Self::Cpu { .. } => DeviceKind::Cpu,
            Self::Cuda { .. } => DeviceKind::Cuda,
        }
    }

    /// The pool as the planner sees it: one node, this machine.
    pub(crate) fn cluster(&self) -> Cluster {
        let num_devices = match self {
            Self::Cpu { slots, .. } => slots.len(),
            Self::Cuda { uuids, .. } => uuids.len(),
        };
        let name = gethostname().ok().and_then(|name| name.into_string().ok());
        let name = name.unwrap_or_else(|| "localhost".to_owned());
        let gpus = u32::try_from(num_devices).unwrap_or(u32::MAX);
        Cluster { nodes: vec![Node::new(name, gpus, self.gpu_type())] }
    }

    /// What kind of device they are.
    pub(crate) fn gpu_type(&self) -> &str {
        match self {
            Self::Cpu { .. } => "cpu",
            Self::Cuda { gpu_type, .. } => gpu_type,
        }
    }

    /// What a person should know before trusting what follows.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Self::Cpu { slots, num_cores, why_no_gpus } = self {
            if let Some(why) = why_no_gpus {
                warnings.push(format!("training on CPU slots, not on GPUs: {why}"));
            }
            if slots.len() > *num_cores {
                warnings.push(format!(
                    "{} CPU slots share {num_cores} cores: training is right, timings are not",
                    slots.len()
                ));
            }
        }
        warnings
    }
}

/// UUIDs of the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, and the first one's name; `None` where
/// there are none, an error where there are some that can't be used.
fn gpus() -> Result<Option<(Vec<String>, String)>, String> {
    // Without a driver there is no library to load: an ordinary machine without GPUs.
    let Ok(nvml) = Nvml::init() else { return Ok(None) };
    let mut all = Vec::new();
    let unreadable = |error: NvmlError| format!("the NVIDIA driver can't list them: {error}");
    for index in 0..nvml.device_count().map_err(unreadable)? {
        let device = nvml.device_by_index(index).map_err(unreadable)?;
        all.push((device.uuid().map_err(unreadable)?, device.name().map_err(unreadable)?));
    }
    let visible = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Err(_) => all,
        Ok(list) => pick(&all, &list)?,
    };
    let Some(gpu_type) = visible.first().map(|(_, name)| name.clone()) else { return Ok(None) };
    Ok(Some((visible.into_iter().map(|(uuid, _)| uuid).collect(), gpu_type)))
}

/// The GPUs that a value of `CUDA_VISIBLE_DEVICES` names, by index or by the beginning of a UUID.
fn pick(all: &[(String, String)], list: &str) -> Result<Vec<(String, String)>, String> {
    let entries =
        list.split(',').map(str::trim).filter(|entry| !entry.is_empty() && *entry != "-1");
    entries
        .map(|entry| {
            let by_index = entry.parse().ok().and_then(|index: usize| all.get(index));
            let found = by_index.or_else(|| all.iter().find(|(uuid, _)| uuid.starts_with(entry)));
            found.cloned().ok_or_else(|| {
                format!("`CUDA_VISIBLE_DEVICES` names `{entry}`, which is no whole GPU here")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_picked_by_index_and_by_uuid() {
        let gpu = |uuid: &str| (uuid.to_owned(), "H200".to_owned());
        let all = [gpu("GPU-aaaa"), gpu("GPU-bbbb")];
        assert_eq!(pick(&all, "1, GPU-aa").unwrap(), [gpu("GPU-bbbb"), gpu("GPU-aaaa")]);
        assert_eq!(pick(&all, "").unwrap(), []);
        assert_eq!(pick(&all, "-1").unwrap(), []);
        let error = pick(&all, "0,MIG-1234").unwrap_err();
        assert!(error.contains("`MIG-1234`"), "{error}");
        assert!(pick(&all, "7").unwrap_err().contains("`7`"));
    }

    #[test]
    fn more_slots_than_cores_share_them_and_say_so() {
        let pool = Pool::cpu(Some(1000), None);
        assert_eq!(pool.cluster().num_gpus(), 1000);
        assert!(pool.warnings()[0].starts_with("1000 CPU slots share "));
        assert!(Pool::cpu(None, None).warnings().is_empty());
    }
}
