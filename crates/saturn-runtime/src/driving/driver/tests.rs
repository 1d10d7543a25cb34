//! Tests of what the driver does before it stores a decision.

use std::path::Path;

use saturn_core::{Cluster, Node};
use saturn_engine::{
    AttemptId, DeviceKind, LaunchError, Mode, NewTask, Policy, RunConfig, TechniqueRef,
};
use saturn_store::Disk;
use saturn_view::{Console, History, Paint};

use super::*;
use crate::driving::in_place::tests::on_a_share_that_hangs;
use crate::run_files::journal::tests::settings;

/// A launcher whose launches go nowhere.
#[derive(Debug, Default)]
struct Nowhere;

impl Launcher for Nowhere {
    fn launch(&mut self, _order: LaunchOrder) -> Result<(), LaunchError> {
        Ok(())
    }

    fn stop(&mut self, _attempt: AttemptId) {}

    fn until(&mut self, _attempt: AttemptId, _step: Option<u64>) {}

    fn go_on(&mut self, _attempt: AttemptId, _steps: u64) {}

    fn kill(&mut self, _attempt: AttemptId) {}

    fn poll(&mut self) -> Option<News> {
        None
    }
}

impl OwnLauncher for Nowhere {
    fn end(self) -> Vec<i32> {
        Vec::new()
    }
}

fn config() -> RunConfig {
    let ddp = serde_json::json!({"name": "ddp", "level": "managed", "import": "saturn:Ddp"});
    let ddp: TechniqueRef = serde_json::from_value(ddp).unwrap();
    RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: vec![ddp],
        policy: Policy::default(),
    }
}

/// A driver of a run that has begun, in this directory.
fn driver<'a>(
    run: &'a RunDir,
    place: PlaceWatch,
    is_interrupted: &'a mut dyn FnMut() -> bool,
) -> Driver<'a, Nowhere> {
    let mut engine = Engine::new(config());
    let cluster = Cluster { nodes: vec![Node::new("here", 1, "cpu")] };
    let begun = engine.handle(Event::Begin { cluster }, 0.0).records;
    let journal = Journal::create(&run.journal(), &settings(), &begun, Disk::default()).unwrap();
    let console = Console::plain(Box::new(|_: &str| {}), Paint::PLAIN);
    let followers = Followers::of(engine.state(), History::default(), console, Vec::new(), None);
    let bell = Bell::default();
    let (door, inputs) = DriverDoor::new(bell.clone());
    Driver {
        run,
        engine,
        journal,
        launcher: Nowhere,
        followers,
        bell,
        door,
        inputs,
        is_interrupted,
        clock: RunClock::standing_at(0.0),
        starting: RunClock::standing_at(0.0),
        solver: None,
        actions: VecDeque::new(),
        interrupts: 0,
        space: SpaceWatch::of(run.path()),
        place,
        outside: None,
        listening: Listening::default(),
    }
}

/// A command after which a task's model is inspected, which is a launch.
fn submit(name: &str) -> Event {
    let spec = serde_json::json!({"name": name, "dir": format!("tasks/{name}"), "steps": 10,
        "epochs": null, "gpu_range": null, "profile_key": name});
    let task = NewTask { spec: serde_json::from_value(spec).unwrap(), after: Vec::new() };
    Event::Command { command: Command::Submit { tasks: vec![task] } }
}

fn num_launched(driver: &Driver<'_, Nowhere>) -> usize {
    driver.actions.iter().filter(|action| matches!(action, Action::Launch { .. })).count()
}

fn claim(path: &Path) -> RunDir {
    std::fs::create_dir_all(path).unwrap();
    RunDir::claim(path).unwrap()
}

#[test]
fn launches_go_on_while_the_shared_directory_hangs() {
    let dir = tempfile::TempDir::new().unwrap();
    let run = claim(&dir.path().join("run"));
    let (place, finds) = on_a_share_that_hangs();
    let mut never = || false;
    let mut driver = driver(&run, place, &mut never);
    assert!(driver.decide(submit("a")).unwrap().is_none());
    assert_eq!(num_launched(&driver), 1);
    drop(finds);
}

#[test]
fn nothing_is_launched_in_another_directory_of_the_runs_name() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = claim(&path);
    let mut never = || false;
    let mut driver = driver(&run, PlaceWatch::of(&run), &mut never);
    std::fs::rename(&path, dir.path().join("moved")).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = driver.decide(submit("a")).unwrap_err();
    assert!(error.to_string().contains("was moved or removed"), "{error}");
    assert_eq!(num_launched(&driver), 0);
}
