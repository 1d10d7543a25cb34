//! The facts of this machine that decide how many tasks it trains at once.

use nvml_wrapper::Nvml;
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use crate::devices::claims::held_by_runs;
use crate::devices::host_memory;
use crate::devices::machine;
use crate::devices::outside;
use crate::system::error::RuntimeError;

/// What a run would find on this machine.
#[derive(Debug)]
pub struct Machine {
    /// The GPUs, by model and memory in bytes. An error says why the machine's GPUs can't be used.
    pub gpus: Result<Vec<(String, u64)>, String>,
    /// GPUs of other makers, in words, on a machine that has none of NVIDIA.
    pub other_gpus: Option<String>,
    /// The driver's version, and the newest CUDA that it can run, in words.
    pub driver: Option<String>,
    /// How many cores this process may use.
    pub num_cores: usize,
    /// The cores whose time the control group allows, if it limits it.
    pub allowed_cores: Option<f64>,
    /// The processes that the control group allows, if it limits them.
    pub allowed_processes: Option<u64>,
    /// The machine's memory, bytes.
    pub memory_bytes: Option<u64>,
    /// The memory that runs may take, bytes.
    pub available_bytes: Option<u64>,
    /// The devices that runs of this user hold, each with its run in words.
    pub held: Result<Vec<(String, String)>, RuntimeError>,
    /// The GPUs that programs other than Saturn use, by UUID, each with who does.
    pub used_outside: Vec<(String, String)>,
}

/// Looks at this machine. Takes no lock, and initialises no CUDA context.
pub fn machine() -> Machine {
    let there = machine::Machine::look();
    let owned = |gpus: Vec<(&str, u64)>| {
        gpus.into_iter().map(|(model, bytes)| (model.to_owned(), bytes)).collect()
    };
    let held = held_by_runs().map(|held| {
        held.into_iter().map(|(device, holder)| (device, holder.to_string())).collect()
    });
    Machine {
        gpus: there.gpus().map(owned).map_err(str::to_owned),
        other_gpus: there.other_gpus().map(str::to_owned),
        driver: driver(),
        num_cores: there.cores().len(),
        allowed_cores: host_memory::allowed_cores(),
        allowed_processes: host_memory::allowed_processes(),
        memory_bytes: host_memory::total_bytes(),
        available_bytes: host_memory::available_bytes(),
        used_outside: used_outside(&held),
        held,
    }
}

/// Ranks of runs are programs too: GPUs that runs hold are left out.
fn used_outside(held: &Result<Vec<(String, String)>, RuntimeError>) -> Vec<(String, String)> {
    let is_held = |uuid: &String| {
        held.as_ref().is_ok_and(|held| held.iter().any(|(device, _)| device == uuid))
    };
    let used = outside::look().into_iter().filter(|(uuid, _)| !is_held(uuid));
    used.map(|(uuid, programs)| (uuid, outside::in_words(&programs))).collect()
}

fn driver() -> Option<String> {
    let nvml = Nvml::init().ok()?;
    let (version, cuda) = (nvml.sys_driver_version().ok()?, nvml.sys_cuda_driver_version().ok()?);
    let (major, minor) = (cuda_driver_version_major(cuda), cuda_driver_version_minor(cuda));
    Some(format!("{version}, for CUDA up to {major}.{minor}"))
}
