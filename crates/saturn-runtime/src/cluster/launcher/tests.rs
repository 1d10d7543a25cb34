//! Tests of the cluster's launcher, with agents that do nothing.

use saturn_core::{Knobs, Node, Strategy};
use saturn_engine::{
    Allowed, Level, Purpose, RankFailure, TaskId, TaskSpec, TechniqueRef, Wishes, Work,
};

use super::*;

const HARDWARE: &str = r#"{"kind": "cpu", "warnings": [], "nodes": [
    {"node": {"name": "n0", "gpus": 2, "type": "slot"}, "device_memory_bytes": null,
     "host_memory_bytes": 7000, "text": ""}]}"#;

/// A launcher with one agent that does nothing, its exchange, and an outbox to speak as the agent.
fn launcher(run_dir: PathBuf) -> (ClusterLauncher, Exchange, Outbox) {
    let exchange = Exchange::default();
    exchange.join(0, HARDWARE).unwrap();
    let settings = LaunchSettings {
        python: String::new(),
        python_path: Vec::new(),
        cwd: PathBuf::new(),
        preload: Vec::new(),
        devices: None,
        locks_dir: None,
        run_id: "run".to_owned(),
        run_dir: None,
        store: None,
        host_memory_bytes: None,
        outlives_s: None,
        door: None,
        shared_gpus: std::collections::BTreeSet::new(),
        platform: None,
    };
    let (founders, bell) = (exchange.founders(), Bell::default());
    let disk = Disk::default();
    let made = ClusterLauncher::start(exchange.clone(), founders, run_dir, settings, bell, disk);
    (made.unwrap(), exchange, Outbox::new("driver".to_owned()))
}

/// An order to train a task on two devices.
pub(crate) fn order(attempt: AttemptId) -> LaunchOrder {
    let name = || "t".to_owned();
    let technique =
        TechniqueRef { name: name(), level: Level::Managed, import: None, pickle: None };
    LaunchOrder {
        attempt,
        task: TaskId(0),
        spec: TaskSpec {
            name: name(),
            dir: name(),
            steps: Some(10),
            epochs: None,
            batches_a_step: std::num::NonZeroU64::MIN,
            can_resume: true,
            gpu_range: None,
            allowed: Allowed::default(),
            profile_key: name(),
            measured: Vec::new(),
            wishes: Wishes::default(),
            evaluation: None,
            parameters: Knobs::new(),
            goal: None,
            is_rest: false,
            start_step: 0,
            owner: None,
        },
        purpose: Purpose::Train,
        strategy: Strategy { technique: name(), gpus: 2, knobs: Knobs::new() },
        work: Work::Run(technique),
        num_ranks: 2,
        parts: vec![GangPart { node: Node::new("n0", 2, "slot"), devices: vec![0, 1] }],
        steps: Some(10),
        until_step: None,
        device_memory_bytes: None,
        warmup_steps: 1,
        timed_steps: 1,
        max_timed_steps: 1,
        checkpoint_every_s: None,
        failure_every_s: 1.0,
    }
}

#[test]
fn what_lives_on_after_its_end_is_on_record_is_heard_until_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (mut launcher, exchange, mut outbox) = launcher(directory.path().to_owned());
    let attempt = AttemptId(1);
    launcher.launch(order(attempt)).unwrap();
    let mut exited = |launcher: &mut ClusterLauncher, rank| {
        let last_words = String::new();
        let word = FromAgent::Exited { attempt, rank, code: -9, last_words };
        exchange.deliver(0, &[outbox.seal(word).unwrap()]).unwrap();
        matches!(launcher.poll(), Some(News::Event(Event::RankExited { rank: told, .. })) if told == rank)
    };
    assert!(exited(&mut launcher, 1));
    // The other rank was killed and has not ended when the attempt's end goes on record.
    let (error, traceback) = ("it died".to_owned(), String::new());
    let failure = RankFailure { rank: 1, kind: FailureKind::Died, error, traceback };
    launcher.ended(attempt, &AttemptEnd::Failed { failure });
    assert!(exited(&mut launcher, 0), "its devices are free from now on");
    assert!(launcher.attempts.is_empty());
}

#[test]
fn a_shared_disk_that_hangs_does_not_hold_the_driver_up() {
    let directory = tempfile::tempdir().unwrap();
    let (mut launcher, exchange, _) = launcher(directory.path().to_owned());
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let disk = Disk::with_faults(move |_, _| {
        let _ = held.lock().unwrap().recv();
        Ok(())
    });
    launcher.marker = Marker::start(disk, exchange.clone());
    launcher.launch(order(AttemptId(1))).unwrap();
    exchange.lose(0, "it was taken away".to_owned());
    assert!(launcher.poll().is_none(), "it is marked before it is told of");
    // The lost agent's node gets another agent at once. The engine must hear of the loss first.
    exchange.join(1, HARDWARE).unwrap();
    let ready = Outbox::new("driver".to_owned()).seal(FromAgent::Ready).unwrap();
    exchange.deliver(1, &[ready]).unwrap();
    assert!(launcher.poll().is_none(), "its node is still to leave");
    let error = launcher.launch(order(AttemptId(2))).unwrap_err();
    assert_eq!(error.kind, FailureKind::Saturn, "its node has gone: {}", error.error);
    drop(release);
    let until = deadline(Duration::from_mins(1));
    let told = loop {
        match launcher.poll() {
            Some(News::Event(event)) => break event,
            _ if is_past(until) => panic!("it is never told of"),
            _ => pause(POLL),
        }
    };
    assert!(matches!(told, Event::NodeLeft { .. }), "{told:?}");
    let joined = std::iter::from_fn(|| launcher.poll());
    let joined = joined.filter(|news| matches!(news, News::Event(Event::NodeJoined { .. })));
    assert_eq!(joined.count(), 1);
    let mark = directory.path().join("t/attempts/1/given-up");
    assert_eq!(std::fs::read_to_string(mark).unwrap(), "it was taken away");
}

#[test]
fn a_run_begins_without_an_agent_that_is_late_and_that_joins_later() {
    let directory = tempfile::tempdir().unwrap();
    let (mut launcher, exchange, mut outbox) = launcher(directory.path().to_owned());
    exchange.join(1, &HARDWARE.replace("n0", "n1")).unwrap();
    let (second, hardware) = exchange.founders().pop_first().unwrap();
    launcher.seat(second, hardware, true, 2);
    let mut other = Outbox::new("driver".to_owned());
    launcher.launch(order(AttemptId(1))).unwrap();
    exchange.deliver(1, &[other.seal(FromAgent::Ready).unwrap()]).unwrap();
    assert!(launcher.poll().is_none());
    assert!(!launcher.is_ready(), "the first is waited for");
    launcher.late = Some(deadline(Duration::ZERO));
    let left = launcher.poll();
    assert!(
        matches!(&left, Some(News::Event(Event::NodeLeft { name, .. })) if name == "n0"),
        "{left:?}"
    );
    assert!(launcher.is_ready());
    let error = launcher.launch(order(AttemptId(2))).unwrap_err();
    assert_eq!(error.kind, FailureKind::Saturn, "its node is not there: {}", error.error);
    exchange.deliver(0, &[outbox.seal(FromAgent::Ready).unwrap()]).unwrap();
    let joined = launcher.poll();
    let Some(News::Event(Event::NodeJoined { host_memory_bytes, .. })) = joined else {
        panic!("{joined:?}")
    };
    assert_eq!(host_memory_bytes, Some(7000.into()), "as much as its agent has found");
    assert!(launcher.launch(order(AttemptId(3))).is_ok());
}
