//! The devices of this machine: its GPUs, or CPU slots if it has no GPU. A CPU slot is one pinned
//! core.
//!
//! NVML counts the GPUs. It initialises no CUDA context, so the warm parent's children can still
//! choose their GPU. The GPUs of one type are a node; a machine with two types is two nodes.

use std::collections::BTreeSet;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, gethostname};
use saturn_core::Node;
use saturn_engine::{DeviceKind, State};

use crate::devices::claims::{By, Claims};
use crate::devices::gpus::{self, Gpu, Gpus};
use crate::devices::hardware::missing;
use crate::devices::outside::{self, Programs, in_words};
use crate::devices::pool::{Device, Pool, PoolNode};
use crate::system::error::RuntimeError;

/// The type name of CPU slots.
const CPU: &str = "cpu";

/// The devices that a machine has.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    name: String,
    gpus: Gpus,
    /// Cores that this process may use.
    cores: Vec<usize>,
    /// Looks for programs on GPUs that are to be left alone.
    outside: fn() -> Programs,
    /// UUIDs of GPUs that a person wants used beside whoever is on them.
    shared: BTreeSet<String>,
    /// Fewer devices than asked will do, if others hold some.
    fewer_will_do: bool,
}

impl Machine {
    /// Looks at this machine.
    pub(crate) fn look() -> Self {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let mut cores: Vec<usize> =
            (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
        if cores.is_empty() {
            cores.push(0);
        }
        let name = gethostname().ok().and_then(|name| name.into_string().ok());
        Self {
            name: name.unwrap_or_else(|| "localhost".to_owned()),
            gpus: gpus::look(),
            cores,
            outside: if outside::is_to_be_left() { outside::look } else { Programs::new },
            shared: BTreeSet::new(),
            fewer_will_do: false,
        }
    }

    /// The same machine under another name.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// The same machine, of which these GPUs are used beside whoever is on them.
    pub(crate) fn sharing(self, gpus: &BTreeSet<String>) -> Self {
        Self { shared: gpus.clone(), ..self }
    }

    /// The same machine, of which fewer devices than asked will do, if others hold some.
    pub(crate) fn or_fewer(self, fewer_will_do: bool) -> Self {
        Self { fewer_will_do, ..self }
    }

    /// The GPUs by model and memory in bytes. An error says why the machine's GPUs can't be used.
    pub(crate) fn gpus(&self) -> Result<Vec<(&str, u64)>, &str> {
        match &self.gpus {
            Gpus::None | Gpus::Others(_) => Ok(Vec::new()),
            Gpus::Unusable(why) => Err(why),
            Gpus::There(gpus) => {
                Ok(gpus.iter().map(|gpu| (gpu.model.as_str(), gpu.memory_bytes)).collect())
            }
        }
    }

    /// The GPUs of other makers, in words, on a machine that has none of NVIDIA.
    pub(crate) fn other_gpus(&self) -> Option<&str> {
        if let Gpus::Others(what) = &self.gpus { Some(what) } else { None }
    }

    /// The cores that this process may use.
    pub(crate) fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// Takes devices for a run: exactly as many as `asked`, or all that are free. There may be more
    /// CPU slots than cores; the slots then share cores.
    ///
    /// GPUs that other programs use are not free. A run that takes all still holds them, if there is
    /// another: its driver watches when the others leave.
    pub(crate) fn claim(
        &self,
        asked: Option<u32>,
        mut claims: Claims,
    ) -> Result<Pool, RuntimeError> {
        self.check(asked)?;
        let (kind, taken) = match &self.gpus {
            Gpus::There(gpus) => (DeviceKind::Cuda, self.claim_gpus(gpus, asked, &mut claims)?),
            _ => (DeviceKind::Cpu, self.claim_slots(asked, &mut claims)?),
        };
        let mut warnings = Vec::new();
        if let Gpus::Unusable(why) | Gpus::Others(why) = &self.gpus {
            warnings.push(format!("training on CPU slots, not on GPUs: {why}"));
        }
        let by_run = |(_, holder): &&(String, By)| !matches!(holder, By::Outside(_));
        let takes_what_is_free = asked.is_none() || self.fewer_will_do;
        if takes_what_is_free && taken.held.iter().any(|one| by_run(&one)) {
            let held = taken.held.iter().filter(by_run);
            warnings.push(format!("other runs hold devices: {}", holders(held)));
        }
        let num_cores = taken.num_cores;
        let nodes = self.nodes(taken.devices);
        let num_devices: usize = nodes.iter().map(|node| node.devices.len()).sum();
        if kind == DeviceKind::Cpu && num_devices > num_cores {
            warnings.push(format!(
                "{num_devices} CPU slots share {num_cores} cores: training is right, times are not"
            ));
        }
        Ok(Pool { kind, nodes, warnings, claims })
    }

    /// Whether the machine has so many devices, whoever holds them. CPU slots can share cores.
    pub(crate) fn check(&self, asked: Option<u32>) -> Result<(), RuntimeError> {
        let why = match (asked, &self.gpus) {
            (Some(0), _) => "but a run needs at least 1".to_owned(),
            (Some(asked), Gpus::There(gpus)) if asked as usize > gpus.len() => {
                format!("but this machine has {} GPUs", gpus.len())
            }
            _ => return Ok(()),
        };
        Err(RuntimeError::Devices { asked: asked.unwrap_or_default(), why })
    }

    /// How many devices must be free at least; `None`: one.
    fn at_least(&self, asked: Option<u32>) -> Option<u32> {
        asked.filter(|_| !self.fewer_will_do)
    }

    fn claim_gpus(
        &self,
        gpus: &[Gpu],
        asked: Option<u32>,
        claims: &mut Claims,
    ) -> Result<Taken, RuntimeError> {
        let mut outside = (self.outside)();
        outside.retain(|uuid, _| !self.shared.contains(uuid));
        let wanted = |gpu: &&Gpu| {
            let Gpu { uuid, model, memory_bytes, .. } = (*gpu).clone();
            (uuid.clone(), Device::Gpu { uuid, memory_bytes }, model)
        };
        let is_used = |gpu: &&Gpu| outside.contains_key(&gpu.uuid);
        let (used, unused): (Vec<&Gpu>, Vec<&Gpu>) = gpus.iter().partition(is_used);
        let mut taken = Taken::claim(unused.iter().map(wanted), asked, claims)?;
        // A run's ranks are programs too: then the run is told, not its ranks.
        let mut outsiders = Vec::new();
        for gpu in used {
            let by_run = claims.run_on(&gpu.uuid)?;
            if by_run.is_none() {
                outsiders.push(gpu);
            }
            let programs = outside.get(&gpu.uuid).map_or(&[][..], Vec::as_slice);
            let by = by_run.unwrap_or_else(|| By::Outside(in_words(programs)));
            taken.held.push((gpu.uuid.clone(), by));
        }
        let mut taken = taken.checked(self.at_least(asked), "GPUs")?;
        if asked.is_none() {
            let more = Taken::claim(outsiders.iter().map(wanted), None, claims)?;
            taken.devices.extend(more.devices);
            // Numbers follow the machine's order.
            let place = |uuid: &str| gpus.iter().position(|gpu| gpu.uuid == uuid);
            taken.devices.sort_by_key(|(device, _)| match device {
                Device::Gpu { uuid, .. } => place(uuid),
                Device::Core(_) => None,
            });
        }
        Ok(taken)
    }

    fn claim_slots(&self, asked: Option<u32>, claims: &mut Claims) -> Result<Taken, RuntimeError> {
        let wanted = self
            .cores
            .iter()
            .map(|core| (format!("core-{core}"), Device::Core(*core), CPU.to_owned()));
        // More slots than cores were asked for: they share the cores that are free.
        let shared = asked.filter(|asked| *asked as usize > self.cores.len());
        let exactly = if shared.is_some() { None } else { asked };
        let taken = Taken::claim(wanted, exactly, claims)?;
        let mut taken = taken.checked(self.at_least(exactly), "CPU slots")?;
        if let Some(num_slots) = shared {
            let cores = taken.devices.clone();
            taken.devices = cores.into_iter().cycle().take(num_slots as usize).collect();
        }
        Ok(taken)
    }

    /// Groups devices by type, in the order in which the types first appear.
    fn nodes(&self, devices: Vec<(Device, String)>) -> Vec<PoolNode> {
        let mut types: Vec<(String, Vec<Device>)> = Vec::new();
        for (device, gpu_type) in devices {
            match types.iter_mut().find(|(other, _)| *other == gpu_type) {
                Some((_, devices)) => devices.push(device),
                None => types.push((gpu_type, vec![device])),
            }
        }
        // The machine's types decide the names, not the devices that this run has. So a resumed run
        // that gets other devices finds its nodes under the same names.
        let has_types = match &self.gpus {
            Gpus::There(gpus) => gpus.iter().any(|gpu| gpu.model != gpus[0].model),
            _ => false,
        };
        types
            .into_iter()
            .map(|(gpu_type, devices)| {
                let name = &self.name;
                let name = if has_types { format!("{name}/{gpu_type}") } else { name.clone() };
                let gpus = u32::try_from(devices.len()).unwrap_or(u32::MAX);
                PoolNode { node: Node::new(name, gpus, gpu_type), devices }
            })
            .collect()
    }

    /// What a run needs and this machine lacks, if the run can't go on here: devices of the run's
    /// kind, or a device of one of its types.
    pub(crate) fn missing_for(&self, state: &State) -> Option<String> {
        let types: Vec<&str> = match &self.gpus {
            Gpus::There(gpus) => gpus.iter().map(|gpu| gpu.model.as_str()).collect(),
            Gpus::None | Gpus::Others(_) | Gpus::Unusable(_) => vec![CPU],
        };
        let why = match &self.gpus {
            Gpus::Unusable(why) => why.clone(),
            Gpus::None | Gpus::Others(_) => "it has no NVIDIA GPU".to_owned(),
            Gpus::There(_) => format!("it has {}", types.join(", ")),
        };
        missing(state, &types, &why)
    }
}

/// Devices that a run took, with their types, and devices that other runs hold.
#[derive(Debug, Default)]
struct Taken {
    devices: Vec<(Device, String)>,
    held: Vec<(String, By)>,
    num_cores: usize,
}

impl Taken {
    /// Takes devices (name, device, type) until there are as many as asked.
    fn claim(
        wanted: impl Iterator<Item = (String, Device, String)>,
        asked: Option<u32>,
        claims: &mut Claims,
    ) -> Result<Self, RuntimeError> {
        let mut taken = Self::default();
        for (name, device, gpu_type) in wanted {
            if asked.is_some_and(|asked| taken.devices.len() >= asked as usize) {
                break;
            }
            let claimed = match &device {
                Device::Core(_) => claims.claim(&name)?,
                Device::Gpu { uuid, .. } => claims.claim_gpu(uuid)?,
            };
            match claimed {
                Ok(()) => taken.devices.push((device, gpu_type)),
                Err(holder) => taken.held.push((name, holder)),
            }
        }
        taken.num_cores = taken.devices.len();
        Ok(taken)
    }

    /// Fails if fewer devices were taken than asked, or none.
    fn checked(self, asked: Option<u32>, what: &str) -> Result<Self, RuntimeError> {
        match asked {
            Some(asked) if (asked as usize) > self.devices.len() => {
                let num_free = self.devices.len();
                let what = format!("`devices` is {asked}, but {num_free} {what} are free");
                Err(RuntimeError::DevicesHeld { what, held: self.holders() })
            }
            None if self.devices.is_empty() => {
                let what = "no device is free".to_owned();
                Err(RuntimeError::DevicesHeld { what, held: self.holders() })
            }
            _ => Ok(self),
        }
    }

    fn holders(&self) -> String {
        holders(&self.held)
    }
}

/// Who holds which devices, in words, holder by holder.
fn holders<'a>(held: impl IntoIterator<Item = &'a (String, By)>) -> String {
    let mut holders: Vec<(&By, Vec<&str>)> = Vec::new();
    for (device, holder) in held {
        match holders.iter_mut().find(|(other, _)| *other == holder) {
            Some((_, devices)) => devices.push(device),
            None => holders.push((holder, vec![device])),
        }
    }
    let holders = holders.into_iter().map(|(holder, devices)| match holder {
        By::Run(Some(holder)) => format!("{holder} holds {}", devices.join(", ")),
        By::Run(None) => format!("another run holds {}", devices.join(", ")),
        By::User(Some(user)) => format!("a run of {user} holds {}", devices.join(", ")),
        By::User(None) => format!("another user's run holds {}", devices.join(", ")),
        By::Outside(user) => format!("outside Saturn, {user} uses {}", devices.join(", ")),
    });
    holders.collect::<Vec<String>>().join("; ")
}

#[cfg(test)]
pub(crate) mod tests;
