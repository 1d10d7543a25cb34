//! The devices of this machine: its GPUs, or CPU slots if it has no GPU. A CPU slot is one pinned
//! core.
//!
//! NVML counts the GPUs. It initialises no CUDA context, so the warm parent's children can still
//! choose their GPU. The GPUs of one type are a node; a machine with two types is two nodes.

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
        }
    }

    /// The same machine under another name.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
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
        if asked.is_none() && taken.held.iter().any(|one| by_run(&one)) {
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

    fn claim_gpus(
        &self,
        gpus: &[Gpu],
        asked: Option<u32>,
        claims: &mut Claims,
    ) -> Result<Taken, RuntimeError> {
        let outside = (self.outside)();
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
        let mut taken = taken.checked(asked, "GPUs")?;
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
        let mut taken = Taken::claim(wanted, exactly, claims)?.checked(exactly, "CPU slots")?;
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
mod tests {
    use std::path::Path;

    use saturn_core::Cluster;
    use saturn_engine::{Engine, Event, Mode, Policy, RunConfig};
    use tempfile::TempDir;

    use crate::devices::claims::once_let_go;

    use super::*;
    use crate::devices::gpus::tests::gpu;
    use crate::devices::outside::{Program, Whose};

    fn machine(gpus: Gpus, num_cores: usize) -> Machine {
        let cores = (0..num_cores).collect();
        Machine { name: "host".to_owned(), gpus, cores, outside: Programs::new }
    }

    fn claims(dir: &TempDir, run: &str) -> Claims {
        Claims::new(Some(&dir.path().join("locks")), Path::new(run)).unwrap()
    }

    fn nodes(pool: &Pool) -> Vec<(String, u32, String)> {
        let nodes = pool.hardware().cluster().nodes.into_iter();
        nodes.map(|node| (node.name, node.gpus, node.gpu_type)).collect()
    }

    #[test]
    fn that_gpus_of_other_makers_are_not_used_is_the_first_that_a_run_says() {
        let dir = TempDir::new().unwrap();
        let others = || Gpus::Others("the machine has 2 GPUs of AMD".to_owned());
        // More slots than cores are asked for, which is worth a warning too.
        let pool = machine(others(), 1).claim(Some(2), claims(&dir, "/a")).unwrap();
        let hardware = pool.hardware();
        assert_eq!((hardware.kind, hardware.warnings.len()), (DeviceKind::Cpu, 2));
        assert_eq!(
            hardware.warnings[0],
            "training on CPU slots, not on GPUs: the machine has 2 GPUs of AMD"
        );
    }

    #[test]
    fn gpus_of_different_types_are_different_nodes() {
        let dir = TempDir::new().unwrap();
        let gpus = vec![gpu("G0", "H200"), gpu("G1", "A100"), gpu("G2", "H200")];
        let pool = machine(Gpus::There(gpus), 2).claim(None, claims(&dir, "/a")).unwrap();
        let node = |name: &str, gpus, gpu_type: &str| (name.to_owned(), gpus, gpu_type.to_owned());
        assert_eq!(nodes(&pool), [node("host/H200", 2, "H200"), node("host/A100", 1, "A100")]);
        let second = &pool.hardware().cluster().nodes[0];
        let third = Device::Gpu { uuid: "G2".to_owned(), memory_bytes: 141 << 30 };
        assert_eq!(pool.device(second, 1), Some(&third));
        assert_eq!(pool.memory_bytes("A100"), Some(80 << 30));
        assert_eq!(pool.memory_bytes("cpu"), None);
        assert_eq!(pool.device(second, 2), None);
    }

    #[test]
    fn a_second_run_takes_what_is_free_or_is_told_who_holds_the_rest() {
        let dir = TempDir::new().unwrap();
        let gpus = vec![gpu("G0", "H200"), gpu("G1", "H200"), gpu("G2", "H200")];
        let machine = machine(Gpus::There(gpus), 2);
        let one = machine.claim(Some(2), claims(&dir, "/runs/one")).unwrap();
        assert!(one.warnings.is_empty());
        let error = machine.claim(Some(2), claims(&dir, "/runs/two")).unwrap_err().to_string();
        let pid = std::process::id();
        let holder = format!("process {pid} (run `/runs/one`) holds G0, G1");
        let why = format!("`devices` is 2, but 1 GPUs are free: {holder}; ");
        assert!(error.starts_with(&why), "{error}");
        assert!(error.contains("`wait=True`") && error.contains("`--wait`"), "{error}");
        let two = machine.claim(None, claims(&dir, "/runs/two")).unwrap();
        assert_eq!(nodes(&two)[0].1, 1);
        assert_eq!(two.warnings, [format!("other runs hold devices: {holder}")]);
        let error = machine.claim(None, claims(&dir, "/runs/three")).unwrap_err().to_string();
        assert!(error.starts_with("no device is free: ") && error.contains("G2"), "{error}");
        let error = machine.claim(Some(4), claims(&dir, "/runs/three")).unwrap_err().to_string();
        assert_eq!(error, "`devices` is 4, but this machine has 3 GPUs");
        drop(one);
        once_let_go(|| machine.claim(Some(2), claims(&dir, "/runs/three")).ok());
    }

    #[test]
    fn gpus_that_other_programs_use_are_taken_last_and_never_by_number() {
        let dir = TempDir::new().unwrap();
        let gpus = vec![gpu("G0", "H200"), gpu("G1", "H200"), gpu("G2", "H200")];
        let outside = || {
            let text = "tomas (python, 31.0 GB)".to_owned();
            let program = Program { pid: 7, text, whose: Whose::Others };
            Programs::from([("G0".to_owned(), vec![program])])
        };
        let machine = Machine { outside, ..machine(Gpus::There(gpus), 2) };
        let two = machine.claim(Some(2), claims(&dir, "/runs/one")).unwrap();
        assert_eq!(two.hardware().nodes[0].gpus, ["G1", "G2"]);
        let mut other = claims(&dir, "/runs/other");
        other.claim_gpu("G0").unwrap().unwrap();
        let error = machine.claim(None, claims(&dir, "/runs/two")).unwrap_err().to_string();
        assert!(
            error.contains("(run `/runs/other`) holds G0"),
            "its ranks are no outsiders: {error}"
        );
        drop(other);
        let error = machine.claim(None, claims(&dir, "/runs/two")).unwrap_err().to_string();
        let user = "outside Saturn, tomas (python, 31.0 GB) uses G0";
        assert!(error.starts_with("no device is free: ") && error.contains(user), "{error}");
        drop(two);
        let all = once_let_go(|| {
            let all = machine.claim(None, claims(&dir, "/runs/two")).unwrap();
            (all.warnings.is_empty()).then_some(all)
        });
        assert_eq!(all.hardware().nodes[0].gpus, ["G0", "G1", "G2"], "the driver watches G0");
        drop(all);
        once_let_go(|| machine.claim(Some(1), claims(&dir, "/runs/two")).ok());
        let error = machine.claim(Some(3), claims(&dir, "/runs/two")).unwrap_err().to_string();
        let why = format!("`devices` is 3, but 2 GPUs are free: {user}; ");
        assert!(error.starts_with(&why), "{error}");
    }

    #[test]
    fn more_slots_than_cores_share_them_and_say_so() {
        let dir = TempDir::new().unwrap();
        let machine = machine(Gpus::None, 2);
        let pool = machine.claim(Some(1000), claims(&dir, "/a")).unwrap();
        assert_eq!(pool.hardware().cluster().num_gpus(), 1000);
        assert!(pool.warnings[0].starts_with("1000 CPU slots share 2 cores"));
        assert!(machine.claim(Some(1000), claims(&dir, "/b")).is_err());
        drop(pool);
        once_let_go(|| {
            machine.claim(None, claims(&dir, "/b")).ok().filter(|pool| pool.warnings.is_empty())
        });
    }

    #[test]
    fn what_a_run_was_on_is_missed_by_name() {
        let config = RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cuda,
            device_memory_bytes: None,
            techniques: Vec::new(),
            policy: Policy::default(),
        };
        let mut engine = Engine::new(config);
        let cluster = Cluster { nodes: vec![Node::new("host", 2, "H200")] };
        engine.handle(Event::Begin { cluster }, 0.0);
        let missing = |gpus| machine(gpus, 2).missing_for(engine.state());
        assert_eq!(missing(Gpus::There(vec![gpu("G0", "H200")])), None);
        let broken = Gpus::Unusable("the NVIDIA driver does not work: no".to_owned());
        assert_eq!(
            missing(broken).unwrap(),
            "the run used 2 × H200, which is not available now: the NVIDIA driver does not work: no"
        );
        assert!(missing(Gpus::None).unwrap().ends_with("it has no NVIDIA GPU"));
        let other = missing(Gpus::There(vec![gpu("G0", "A100")])).unwrap();
        assert!(other.ends_with("it has A100"), "{other}");
    }
}
