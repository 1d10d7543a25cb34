//! Tests of commands and questions through the control socket, and of observers that don't listen.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use saturn_engine::{Command, RunEnd};
use saturn_runtime::control::{ControlError, Query, Reply, Request, ask};
use saturn_runtime::{RunRequest, Watcher};
use saturn_view::Console;

use crate::harness::{GOOD, Run};

/// The reply of a run that a thread has just begun to drive.
fn ask_soon(run: &Path, request: &Request) -> Reply {
    loop {
        match ask(run, request) {
            Ok(reply) => return reply,
            // Asking without a pause would keep a core from the run that is to answer.
            Err(ControlError::NotDriven { .. }) => {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn tell(run: &Path, command: serde_json::Value) -> Reply {
    let command: Command = serde_json::from_value(command).unwrap();
    ask_soon(run, &Request::Command(command))
}

/// The stage of a task, as the run reports it.
fn stage(run: &Path, task: &str) -> String {
    let reply = ask_soon(run, &Request::Query(Query::Status));
    let status = reply.status.unwrap();
    let tasks = status["tasks"].as_array().unwrap();
    let task = tasks.iter().find(|one| one["name"] == task).unwrap();
    task["stage"].as_str().unwrap().to_owned()
}

fn wait_for_stage(run: &Path, task: &str, wanted: &str) {
    while stage(run, task) != wanted {
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn tasks_come_pause_and_go_while_a_run_goes_on() {
    let mut run =
        Run::new(1, &[r#"{"trials": 9, "bad_attempts": 99, "at_step": 30, "how": "sleep"}"#]);
    run.more = serde_json::json!({"keep_open": true});
    let path = run.path();
    // This path is too long for a socket's address.
    std::thread::scope(|scope| {
        let driving = scope.spawn(|| run.start());
        wait_for_stage(&path, "t0", "running");
        let mode = path.join("control.sock").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // The task holds the only device, so the other task is measured once this one is gone.
        let dir = path.join("tasks/late");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("behaviour.json"), GOOD).unwrap();
        let late = serde_json::json!({"command": "submit", "tasks": [{
            "name": "late", "dir": "tasks/late", "steps": 40, "profile_key": "late"}]});
        assert_eq!(tell(&path, late.clone()), Reply { ok: true, ..Reply::default() });
        let again = tell(&path, late);
        assert!(!again.ok && again.error.unwrap().contains("there is a task `late` already"));
        let outside = tell(
            &path,
            serde_json::json!({"command": "submit", "tasks": [{
                "name": "x", "dir": "../x", "steps": 40, "profile_key": "x"}]}),
        );
        assert!(outside.error.unwrap().contains("not within the run directory"));
        let unknown = tell(&path, serde_json::json!({"command": "cancel", "task": "nobody"}));
        assert!(unknown.error.unwrap().contains("there is no task `nobody`"));
        let explained =
            ask_soon(&path, &Request::Query(Query::Explain { task: Some("late".into()) }));
        assert!(explained.ok && explained.explanation.is_some(), "{explained:?}");
        assert!(tell(&path, serde_json::json!({"command": "cancel", "task": "t0"})).ok);
        wait_for_stage(&path, "late", "done");
        assert_eq!(stage(&path, "t0"), "cancelled");
        assert!(tell(&path, serde_json::json!({"command": "close"})).ok);
        assert_eq!(driving.join().unwrap().unwrap().end, RunEnd::Complete);
    });
    assert_eq!(run.saved_step("late"), 40);
    assert!(matches!(
        ask(&path, &Request::Query(Query::Status)),
        Err(ControlError::NotDriven { .. })
    ));
    assert!(!path.join("control.sock").exists());
    // Without a driver, the journal answers.
    let status = serde_json::to_value(saturn_runtime::status(&path).unwrap()).unwrap();
    assert!(status.to_string().contains("cancelled"), "{status}");
}

#[test]
fn a_crowd_of_programs_delays_a_command_and_hides_no_status() {
    let mut run = Run::new(1, &[]);
    run.more = serde_json::json!({"keep_open": true, "tasks": []});
    let path = run.path();
    std::fs::create_dir(&path).unwrap();
    std::thread::scope(|scope| {
        let driving = scope.spawn(|| run.start());
        ask_soon(&path, &Request::Query(Query::Status));
        // As many as the run takes at once, and none of them says anything.
        let directory = std::fs::File::open(&path).unwrap();
        let socket = format!("/proc/self/fd/{}/control.sock", directory.as_raw_fd());
        let crowd: Vec<UnixStream> =
            (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        // Whoever connected last is told that there is no room.
        let mut last = String::new();
        BufReader::new(&crowd[39]).read_line(&mut last).unwrap();
        assert!(last.contains("busy"), "{last}");
        saturn_runtime::status(&path).unwrap();
        let leaving = scope.spawn(move || {
            std::thread::park_timeout(Duration::from_millis(500));
            drop(crowd);
        });
        assert!(tell(&path, serde_json::json!({"command": "close"})).ok);
        leaving.join().unwrap();
        assert_eq!(driving.join().unwrap().unwrap().end, RunEnd::Complete);
    });
}

#[test]
fn a_socket_is_reached_however_long_the_path_of_its_run_is() {
    let mut run = Run::new(1, &[GOOD]);
    let deep = run.dir.path().join("d".repeat(200));
    std::fs::create_dir_all(&deep).unwrap();
    run.more = serde_json::json!({"run_dir": deep, "keep_open": true, "tasks": []});
    std::thread::scope(|scope| {
        let driving = scope.spawn(|| run.start());
        assert!(tell(&deep, serde_json::json!({"command": "close"})).ok);
        assert_eq!(driving.join().unwrap().unwrap().end, RunEnd::Complete);
    });
}

#[test]
fn a_terminal_that_has_stalled_delays_nothing_and_no_one() {
    let mut run = Run::new(1, &[GOOD]);
    run.steps = 300; // so that the run still trains when it is asked
    let path = run.path();
    let has_stalled = AtomicBool::new(false);
    let (release, released) = std::sync::mpsc::channel::<()>();
    let stalled: &'static AtomicBool = Box::leak(Box::new(has_stalled));
    let console = Console::new(
        false,
        Some(Box::new(move |_| {
            stalled.store(true, Ordering::Relaxed);
            // Blocks until the test has ended.
            let _ = released.recv();
        })),
        |_| None,
    );
    let mut asked = None;
    let mut look = || {
        if asked.is_none() && stalled.load(Ordering::Relaxed) && run.saved_step("t0") > 0 {
            let path = path.clone();
            asked = Some(std::thread::spawn(move || ask(&path, &Request::Query(Query::Status))));
        }
        false
    };
    let request = RunRequest::from_json(&run.request()).unwrap();
    let outcome = saturn_runtime::start(request, Watcher::new(console, &mut look)).unwrap();
    assert_eq!((outcome.end, outcome.num_failed), (RunEnd::Complete, 0));
    assert!(stalled.load(Ordering::Relaxed));
    let status = asked.unwrap().join().unwrap().unwrap().status.unwrap();
    assert!(status.to_string().contains("running"), "{status}");
    drop(release);
}

#[test]
fn a_run_obeys_while_its_workers_are_still_importing() {
    let mut run = Run::new(1, &[GOOD, GOOD]);
    run.more = serde_json::json!({"keep_open": true});
    run.tell_parents("hang", "");
    let path = run.path();
    std::thread::scope(|scope| {
        let driving = scope.spawn(|| run.start());
        assert!(tell(&path, serde_json::json!({"command": "cancel", "task": "t0"})).ok);
        assert_eq!(stage(&path, "t0"), "cancelled");
        assert!(tell(&path, serde_json::json!({"command": "stop"})).ok);
        assert_eq!(driving.join().unwrap().unwrap().end, RunEnd::Interrupted);
    });
}
