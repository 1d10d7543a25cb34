//! The GPUs that NVIDIA's driver lists and `CUDA_VISIBLE_DEVICES` leaves visible.
//!
//! Looking opens no context on a GPU. Nothing here knows which GPUs a run holds.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The GPUs of a machine that `CUDA_VISIBLE_DEVICES` leaves visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gpus {
    /// The machine has no GPU.
    None,
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
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible.
pub(super) fn look() -> Gpus {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        // Without an NVIDIA driver there is no library to load: this is an ordinary machine without
        // GPUs.
        Err(NvmlError::LibloadingError(_)) => return Gpus::None,
        Err(error) => return Gpus::Unusable(format!("the NVIDIA driver does not work: {error}")),
    };
    let all = match list_gpus(&nvml) {
        Ok(all) if all.is_empty() => return Gpus::None,
        Ok(all) => all,
        Err(error) => {
            return Gpus::Unusable(format!("the NVIDIA driver can't list them: {error}"));
        }
    };
    let visible = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Err(_) => Ok(all),
        Ok(list) => pick(&all, &list),
    };
    match visible {
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
            Ok(Gpu { uuid: device.uuid()?, model: device.name()?, memory_bytes })
        })
        .collect()
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
        Gpu { uuid: uuid.to_owned(), model: model.to_owned(), memory_bytes }
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
