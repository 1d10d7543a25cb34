//! Tests of which devices a run gets of a machine, and of how its nodes share it.

use std::path::Path;

use saturn_core::Cluster;
use saturn_engine::{Engine, Event, MachineMemory, Mode, Policy, RunConfig};
use tempfile::TempDir;

use crate::devices::claims::once_let_go;

use super::*;
use crate::devices::gpus::tests::gpu;
use crate::devices::outside::{Program, Whose};

fn machine(gpus: Gpus, num_cores: usize) -> Machine {
    let cores = (0..num_cores).collect();
    let (name, shared) = ("host".to_owned(), BTreeSet::new());
    Machine { name, gpus, cores, outside: Programs::new, shared, fewer_will_do: false }
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
fn nodes_of_one_machine_share_its_memory() {
    let dir = TempDir::new().unwrap();
    let gpus = vec![gpu("G0", "H200"), gpu("G1", "A100"), gpu("G2", "H200")];
    let pool = machine(Gpus::There(gpus), 2).claim(None, claims(&dir, "/a")).unwrap();
    let memory = MachineMemory { available_bytes: 1000, ..4000.into() };
    let hardware = pool.hardware_with(Some(memory));
    let each: Vec<MachineMemory> = hardware.host_memory_by_node().into_values().collect();
    let available: Vec<u64> = each.iter().map(|one| one.available_bytes).collect();
    assert_eq!(available, [333, 666], "by their devices, and no more than there is");
    assert!(each.iter().all(|one| one.total_bytes == 4000), "either may have it alone");
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
    drop(two);
    let machine = machine.or_fewer(true);
    let two = machine.claim(Some(3), claims(&dir, "/runs/two")).unwrap();
    assert_eq!(nodes(&two)[0].1, 1, "an agent takes what it gets");
    assert_eq!(two.warnings, [format!("other runs hold devices: {holder}")]);
    let machine = machine.or_fewer(false);
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
    assert!(error.contains("(run `/runs/other`) holds G0"), "its ranks are no outsiders: {error}");
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
fn gpus_that_a_person_shares_are_as_good_as_any() {
    let dir = TempDir::new().unwrap();
    let gpus = vec![gpu("G0", "H200"), gpu("G1", "H200"), gpu("G2", "H200")];
    let outside = || {
        let text = || "tomas (python, 31.0 GB)".to_owned();
        let program = || Program { pid: 7, text: text(), whose: Whose::Others };
        ["G0", "G2"].map(|uuid| (uuid.to_owned(), vec![program()])).into()
    };
    let machine = Machine { outside, ..machine(Gpus::There(gpus), 2) };
    assert!(machine.claim(Some(2), claims(&dir, "/runs/one")).is_err(), "G1 alone is free");
    let machine = machine.sharing(&BTreeSet::from(["G2".to_owned()]));
    let two = once_let_go(|| machine.claim(Some(2), claims(&dir, "/runs/one")).ok());
    assert_eq!(two.hardware().nodes[0].gpus, ["G1", "G2"]);
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

/// The engine of a run on two H200 of one node.
pub(crate) fn engine() -> Engine {
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
    engine
}

#[test]
fn what_a_run_was_on_is_missed_by_name() {
    let engine = engine();
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
