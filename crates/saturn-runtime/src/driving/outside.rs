//! Watches which of a run's GPUs programs other than Saturn use.
//!
//! A look asks NVIDIA's driver, which may take its time, so a thread looks. The run's own ranks, and
//! what they have started, are known by their environment and are not counted. So others are seen on
//! devices that attempts hold, too. A device counts as used once two looks in a row find the same
//! process there, since a process may have begun or ended while the look was taken; and as free again
//! once two find none. The first look is believed at once: nothing has been launched before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use saturn_engine::{DeviceId, NodeId, State};

use crate::devices::hardware::Hardware;
use crate::devices::outside::{Program, Programs, Whose, in_words, look};
use crate::launching::settings::LaunchSettings;
use crate::opening::run_devices::RunDevices;

/// How often to look.
const EVERY: Duration = Duration::from_secs(10);
/// Looks in a row without a program after which a device is free again.
const FREE_AFTER: u32 = 2;

/// A watch on the GPUs of this machine that a run has.
#[derive(Debug)]
pub(crate) struct OutsideWatch {
    looks: Receiver<Programs>,
    /// Ends the thread when it is dropped.
    _end: Sender<()>,
    first: Option<Programs>,
    sightings: Sightings,
}

impl OutsideWatch {
    /// Looks, and starts to watch; `None` where the run's devices are no GPUs of this machine, or a
    /// person wants all of them shared.
    pub(crate) fn of(run_devices: &RunDevices, settings: &LaunchSettings) -> Option<Self> {
        let hardware = match run_devices {
            RunDevices::Here(pool) | RunDevices::Outlived(_, pool) => pool.hardware(),
            RunDevices::Cluster(..) => return None,
        };
        Self::by(&hardware, (&settings.shared_gpus, &settings.run_id), look, EVERY)
    }

    fn by(
        hardware: &Hardware,
        (shared, run_id): (&BTreeSet<String>, &str),
        mut look: impl FnMut() -> Programs + Send + 'static,
        every: Duration,
    ) -> Option<Self> {
        let sightings = Sightings::of(hardware, shared, run_id);
        if sightings.gpus.is_empty() {
            return None;
        }
        let first = Some(look());
        let (answer, looks) = channel();
        let (end, ended) = channel::<()>();
        thread::spawn(move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout)
                && answer.send(look()).is_ok()
            {}
        });
        Some(Self { looks, _end: end, first, sightings })
    }

    /// The devices that others use, with who uses each, after a look. `None` if there was no look
    /// since the last call, and if there was nobody before and after it.
    pub(crate) fn news(&mut self, state: &State) -> Option<BTreeMap<DeviceId, String>> {
        let is_first = self.first.is_some();
        // After a standstill the newest look alone is about the present.
        let found = self.first.take().or_else(|| self.looks.try_iter().last())?;
        let has_changed = self.sightings.take_in(&found, state, is_first);
        // A device may have come free for another reason while others use it, so they are told again.
        let told = self.sightings.told();
        (has_changed || !told.is_empty()).then_some(told)
    }
}

/// What looks have found.
#[derive(Debug)]
struct Sightings {
    /// The run, whose own processes are not counted.
    run_id: String,
    /// Each GPU: its node by name and type, its number there, its UUID.
    gpus: Vec<(String, String, u32, String)>,
    /// The processes of others that the last look found on a device that does not count as used.
    seen: BTreeMap<DeviceId, BTreeSet<u32>>,
    /// Devices that others use, with who does, and the number of looks since that found none there.
    used: BTreeMap<DeviceId, (String, u32)>,
}

impl Sightings {
    fn of(hardware: &Hardware, shared: &BTreeSet<String>, run_id: &str) -> Self {
        let of_node = hardware.nodes.iter().flat_map(|one| {
            let watched = (0_u32..).zip(&one.gpus).filter(|(_, uuid)| !shared.contains(*uuid));
            watched.map(|(number, uuid)| {
                (one.node.name.clone(), one.node.gpu_type.clone(), number, uuid.clone())
            })
        });
        let (gpus, run_id) = (of_node.collect(), run_id.to_owned());
        Self { run_id, gpus, seen: BTreeMap::new(), used: BTreeMap::new() }
    }

    /// Takes in a look. Returns whether other devices count as used than before.
    fn take_in(&mut self, found: &Programs, state: &State, is_first: bool) -> bool {
        let before: Vec<DeviceId> = self.used.keys().copied().collect();
        for (name, gpu_type, device, uuid) in &self.gpus {
            let nodes = &state.cluster.nodes;
            let node = nodes.iter().position(|one| one.name == *name && one.gpu_type == *gpu_type);
            let Some(node) = node.map(NodeId) else { continue };
            let id = DeviceId { node, device: *device };
            let is_held = state.device(id).is_none_or(|device| device.held_by.is_some());
            let is_of_others = |one: &&Program| match &one.whose {
                Whose::Run(run) => *run != self.run_id,
                Whose::Others => true,
                // It may be one of the ranks that hold the device.
                Whose::Unknown => !is_held,
            };
            let programs = found.get(uuid).into_iter().flatten();
            let programs: Vec<&Program> = programs.filter(is_of_others).collect();
            if programs.is_empty() {
                self.seen.remove(&id);
                if let Some((_, looks)) = self.used.get_mut(&id) {
                    *looks += 1;
                }
                continue;
            }
            if let Some((_, looks)) = self.used.get_mut(&id) {
                *looks = 0;
                continue;
            }
            let pids: BTreeSet<u32> = programs.iter().map(|one| one.pid).collect();
            let seen = self.seen.insert(id, pids.clone()).unwrap_or_default();
            if is_first || !seen.is_disjoint(&pids) {
                self.used.insert(id, (in_words(programs), 0));
            }
        }
        self.used.retain(|_, (_, looks)| *looks < FREE_AFTER);
        !self.used.keys().eq(&before)
    }

    fn told(&self) -> BTreeMap<DeviceId, String> {
        self.used.iter().map(|(id, (user, _))| (*id, user.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use saturn_core::{Knobs, Node, Placement, Strategy};
    use saturn_engine::{AttemptId, DeviceKind, Purpose, Record, TaskId};

    use super::*;
    use crate::devices::hardware::NodeHardware;
    use crate::devices::machine::tests::engine;
    use crate::system::clock;

    fn hardware() -> Hardware {
        let node = NodeHardware {
            node: Node::new("host", 2, "H200"),
            device_memory_bytes: None,
            host_memory_bytes: None,
            text: "H200".to_owned(),
            gpus: vec!["G0".to_owned(), "G1".to_owned()],
        };
        Hardware { kind: DeviceKind::Cuda, nodes: vec![node], warnings: Vec::new() }
    }

    fn on(uuid: &str, pids: &[u32]) -> Programs {
        by(uuid, pids, &Whose::Others)
    }

    fn by(uuid: &str, pids: &[u32], whose: &Whose) -> Programs {
        let program = |pid: &u32| {
            let (text, whose) = (format!("ada (p{pid})"), whose.clone());
            Program { pid: *pid, text, whose }
        };
        Programs::from([(uuid.to_owned(), pids.iter().map(program).collect())])
    }

    fn device(device: u32) -> DeviceId {
        DeviceId { node: NodeId(0), device }
    }

    #[test]
    fn the_first_look_is_believed_and_a_later_one_if_another_says_the_same() {
        let (engine, mut all) = (engine(), Sightings::of(&hardware(), &BTreeSet::new(), "r1"));
        let state = engine.state();
        assert!(all.take_in(&on("G1", &[7]), state, true));
        assert_eq!(all.told(), BTreeMap::from([(device(1), "ada (p7)".to_owned())]));
        assert!(!all.take_in(&Programs::new(), state, false), "one look without it");
        assert!(!all.take_in(&on("G1", &[8]), state, false), "it goes on");
        assert!(!all.take_in(&Programs::new(), state, false));
        assert!(all.take_in(&Programs::new(), state, false));
        assert!(all.told().is_empty());
        assert!(!all.take_in(&on("G0", &[9]), state, false), "it may be a rank that has ended");
        assert!(!all.take_in(&on("G0", &[10]), state, false), "and so may this");
        assert!(all.take_in(&on("G0", &[10, 11]), state, false));
        assert_eq!(all.told(), BTreeMap::from([(device(0), "ada (p10) and ada (p11)".to_owned())]));
    }

    /// A run of which an attempt holds the first device.
    fn state_of_held() -> State {
        let mut state = engine().state().clone();
        let spec = serde_json::json!({
            "name": "a", "dir": "d", "steps": 1, "epochs": null, "gpu_range": [1],
            "profile_key": "a", "is_rest": false,
        });
        let (task, spec) = (TaskId(0), serde_json::from_value(spec).unwrap());
        let strategy = Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() };
        let launched = Record::Launched {
            attempt: AttemptId(1),
            task,
            purpose: Purpose::Train,
            strategy,
            gang: vec![Placement { node: 0, devices: vec![0] }],
            until_step: None,
        };
        state.apply(&Record::TaskAdded { task, spec }, 0.0);
        state.apply(&launched, 0.0);
        state
    }

    #[test]
    fn others_are_seen_beside_the_runs_own_ranks() {
        let (state, mut all) =
            (state_of_held(), Sightings::of(&hardware(), &BTreeSet::new(), "r1"));
        let own = Whose::Run("r1".to_owned());
        for whose in [&own, &Whose::Unknown] {
            for _ in 0..3 {
                assert!(!all.take_in(&by("G0", &[7], whose), &state, false), "its rank");
            }
        }
        for _ in 0..2 {
            let mut both = by("G0", &[7], &own);
            both.get_mut("G0").unwrap().extend(on("G0", &[8]).remove("G0").unwrap());
            all.take_in(&both, &state, false);
        }
        assert_eq!(all.told(), BTreeMap::from([(device(0), "ada (p8)".to_owned())]));
        let free = engine();
        for _ in 0..2 {
            all.take_in(&by("G1", &[9], &Whose::Unknown), free.state(), false);
        }
        assert_eq!(
            all.told().get(&device(1)).map(String::as_str),
            Some("ada (p9)"),
            "no rank holds it"
        );
        let mut all = Sightings::of(&hardware(), &BTreeSet::new(), "r1");
        for _ in 0..2 {
            assert!(!all.take_in(&by("G0", &[7], &own), free.state(), true), "a rank that ends");
        }
    }

    #[test]
    fn gpus_that_a_person_shares_are_not_watched() {
        let watch = |shared: &[&str]| {
            let shared = shared.iter().map(|uuid| (*uuid).to_owned()).collect();
            let look = || on("G0", &[7]).into_iter().chain(on("G1", &[8])).collect();
            OutsideWatch::by(&hardware(), (&shared, "r1"), look, EVERY)
        };
        let engine = engine();
        let told = |watch: Option<OutsideWatch>| watch?.news(engine.state());
        assert_eq!(told(watch(&[])).map_or(0, |told| told.len()), 2);
        let one = BTreeMap::from([(device(1), "ada (p8)".to_owned())]);
        assert_eq!(told(watch(&["G0"])), Some(one), "by the number that it has on its node");
        assert!(watch(&["G0", "G1"]).is_none(), "nobody needs to look");
    }

    #[test]
    fn the_thread_looks_again_and_again_and_ends_with_the_watch() {
        static LOOKS: Mutex<u32> = Mutex::new(0);
        let look = || {
            *LOOKS.lock().unwrap() += 1;
            on("G0", &[7])
        };
        let engine = engine();
        let (none, often) = (BTreeSet::new(), Duration::from_millis(1));
        let mut watch = OutsideWatch::by(&hardware(), (&none, "r1"), look, often).unwrap();
        assert_eq!(watch.news(engine.state()).unwrap().len(), 1);
        let until = clock::deadline(Duration::from_secs(20));
        while *LOOKS.lock().unwrap() < 5 {
            assert!(!clock::is_past(until), "nobody looks");
            clock::pause(Duration::from_millis(1));
        }
        assert_eq!(watch.news(engine.state()).unwrap().len(), 1, "they are still there");
        drop(watch);
    }
}
