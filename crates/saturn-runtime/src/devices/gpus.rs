//! The GPUs that NVIDIA's driver lists and `CUDA_VISIBLE_DEVICES` leaves visible.
//!
//! Looking opens no context on a GPU. Nothing here knows which GPUs a run holds.

use std::path::Path;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::devices::others;

/// The GPUs of a machine that `CUDA_VISIBLE_DEVICES` leaves visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gpus {
    /// The machine has no GPU.
    None,
    /// The machine has GPUs of other makers alone, which Saturn does not use: what they are.
    Others(String),
    /// The machine has GPUs, or should have, but they can't be used for this reason.
    Unusable(String),
    /// At least one GPU.
    There(Vec<Gpu>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpu {
    pub(super) uuid: String,
    /// Its type: the name that its driver gives.
    pub(super) model: String,
    /// Its memory as its driver says, bytes. Processes get a little less.
    pub(super) memory_bytes: u64,
    /// Whether it is split into MIG slices: then no process can use it as a whole.
    is_split: bool,
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible.
pub(super) fn look() -> Gpus {
    let listed = match Nvml::init() {
        Ok(nvml) => {
            list_gpus(&nvml).map_err(|error| format!("the NVIDIA driver can't list them: {error}"))
        }
        // Without an NVIDIA driver there is no library to load, and so no GPU of NVIDIA.
        Err(NvmlError::LibloadingError(_)) => Ok(Vec::new()),
        Err(error) => Err(format!("the NVIDIA driver does not work: {error}")),
    };
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    match listed {
        Ok(listed) => choose(listed, visible.as_deref(), Path::new(others::SYS)),
        Err(why) => Gpus::Unusable(why),
    }
}

/// The GPUs of a machine whose NVIDIA driver, if there is one, lists these. `visible` is the value
/// of `CUDA_VISIBLE_DEVICES`, and `sys` is where Linux shows its devices. A machine without a GPU
/// of NVIDIA may have NVIDIA's library all the same, from a container for example.
fn choose(listed: Vec<Gpu>, visible: Option<&str>, sys: &Path) -> Gpus {
    if listed.is_empty() {
        return others::look(sys).map_or(Gpus::None, Gpus::Others);
    }
    let visible = match visible {
        None => Ok(listed),
        Some(list) => pick(&listed, list),
    };
    match visible.and_then(whole) {
        Ok(visible) if visible.is_empty() => Gpus::None,
        Ok(visible) => Gpus::There(visible),
        Err(why) => Gpus::Unusable(why),
    }
}

fn list_gpus(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    (0..nvml.device_count()?)
        .map(|index| {
            let device = nvml.device_by_index(index)?;
            let memory_bytes = device.memory_info()?.total;
            let (uuid, model) = (device.uuid()?, device.name()?);
            Ok(Gpu { uuid, model, memory_bytes, is_split: is_split(&device) })
        })
        .collect()
}

/// Whether a GPU is split into MIG slices. Most GPUs can't be, and then the driver gives an error.
fn is_split(device: &Device<'_>) -> bool {
    const ENABLED: u32 = 1;
    device.mig_mode().is_ok_and(|mode| mode.current == ENABLED)
}

/// The same GPUs, if all of them are whole.
fn whole(gpus: Vec<Gpu>) -> Result<Vec<Gpu>, String> {
    match gpus.iter().find(|gpu| gpu.is_split) {
        None => Ok(gpus),
        Some(gpu) => Err(format!(
            "the GPU {} is split into MIG slices, and Saturn uses whole GPUs alone: switch MIG off \
             (`nvidia-smi -mig 0`), or leave this GPU out of `CUDA_VISIBLE_DEVICES`",
            gpu.uuid
        )),
    }
}

/// The GPUs that a value of `CUDA_VISIBLE_DEVICES` names, by index or by the beginning of a UUID.
fn pick(all: &[Gpu], list: &str) -> Result<Vec<Gpu>, String> {
    // CUDA reads the list up to the first -1.
    let entries = list.split(',').map(str::trim).take_while(|entry| *entry != "-1");
    let mut picked: Vec<Gpu> = Vec::new();
    for entry in entries.filter(|entry| !entry.is_empty()) {
        let by_index = entry.parse().ok().and_then(|index: usize| all.get(index));
        let found = by_index.or_else(|| all.iter().find(|gpu| gpu.uuid.starts_with(entry)));
        let gpu = found.ok_or_else(|| {
            format!("`CUDA_VISIBLE_DEVICES` names `{entry}`, which is no whole GPU here")
        })?;
        if picked.contains(gpu) {
            return Err(format!(
                "`CUDA_VISIBLE_DEVICES` names one GPU twice, the second time as `{entry}`"
            ));
        }
        picked.push(gpu.clone());
    }
    Ok(picked)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn gpu(uuid: &str, model: &str) -> Gpu {
        let memory_bytes = if model == "A100" { 80 << 30 } else { 141 << 30 };
        let (uuid, model) = (uuid.to_owned(), model.to_owned());
        Gpu { uuid, model, memory_bytes, is_split: false }
    }

    #[test]
    fn a_gpu_that_is_split_into_slices_is_refused_unless_it_is_left_out() {
        let split = Gpu { is_split: true, ..gpu("GPU-aaaa", "A100") };
        let all = [split, gpu("GPU-bbbb", "A100")];
        let why = whole(all.to_vec()).unwrap_err();
        assert!(why.starts_with("the GPU GPU-aaaa is split into MIG slices"), "{why}");
        assert_eq!(pick(&all, "1").and_then(whole).unwrap(), [all[1].clone()]);
    }

    #[test]
    fn a_machine_without_gpus_of_nvidia_is_asked_for_those_of_other_makers() {
        let sys = tempfile::tempdir().unwrap();
        let own = vec![gpu("GPU-aaaa", "A100")];
        assert_eq!(choose(Vec::new(), None, sys.path()), Gpus::None);
        others::tests::amd(sys.path(), 1, 0, 304);
        for visible in [None, Some(""), Some("0")] {
            let Gpus::Others(words) = choose(Vec::new(), visible, sys.path()) else {
                panic!("GPUs of AMD with `CUDA_VISIBLE_DEVICES` {visible:?}");
            };
            assert!(words.starts_with("the machine has 1 GPU of AMD"), "{words}");
        }
        assert_eq!(choose(own.clone(), None, sys.path()), Gpus::There(own.clone()));
        assert_eq!(choose(own.clone(), Some(""), sys.path()), Gpus::None, "hidden on purpose");
        assert!(matches!(choose(own, Some("1"), sys.path()), Gpus::Unusable(_)));
    }

    #[test]
    fn visible_devices_are_picked_by_index_and_by_uuid() {
        let all = [gpu("GPU-aaaa", "H200"), gpu("GPU-bbbb", "A100")];
        assert_eq!(pick(&all, "1, GPU-aa").unwrap(), [all[1].clone(), all[0].clone()]);
        assert_eq!(pick(&all, "").unwrap(), []);
        assert_eq!(pick(&all, "-1").unwrap(), []);
        assert_eq!(pick(&all, "0,-1,1").unwrap(), [all[0].clone()]);
        assert!(pick(&all, "0,GPU-aa").unwrap_err().contains("twice, the second time as `GPU-aa`"));
        let error = pick(&all, "0,MIG-1234").unwrap_err();
        assert!(error.contains("`MIG-1234`"), "{error}");
        assert!(pick(&all, "7").unwrap_err().contains("`7`"));
    }
}
