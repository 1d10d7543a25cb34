//! Tasks that train on without the process that drove their run, as the program sees them. Their agent
//! is played here.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::json;

use super::{Place, said, until};

/// Answers whoever asks the agent of a run; what is said after the greeting can be heard. The agent
/// ends when it is told something.
fn agent(run: &Path) -> Receiver<String> {
    // The path of a socket may have at most 107 bytes.
    let directory = std::fs::File::open(run).unwrap();
    let path = format!("/proc/self/fd/{}/agent.sock", directory.as_raw_fd());
    let listener = UnixListener::bind(path).unwrap();
    let welcome = json!({"welcome": {
        "agent": "one", "hardware": {"kind": "cpu", "nodes": [], "warnings": []}, "attempts": [],
        "is_ready": true, "stays_s": 100.0,
    }});
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let _hello = lines.next();
            writeln!(stream, "{welcome}").unwrap();
            if let Some(Ok(line)) = lines.next() {
                let _ = sender.send(line);
                return;
            }
        }
    });
    heard
}

#[test]
fn tasks_that_train_on_are_followed_and_stopped_as_they_are_told() {
    let place = Place::new();
    let run = place.start("it", &[("long", 6000)]);
    let saved = place.run_dir("it").join("tasks/long/step");
    until(|| saved.exists());
    drop(run);
    for (how, order) in [(&["--at-once"][..], "end"), (&[], "stop_all")] {
        let heard = agent(&place.run_dir("it"));
        let mut following = place.spawn(&["logs", "it", "long", "-f"]);
        std::thread::park_timeout(Duration::from_secs(2));
        assert!(following.try_wait().unwrap().is_none(), "the task has not ended");
        let (code, _, error) = place.saturn(&[&["stop", "it"][..], how].concat());
        assert_eq!(code, 0, "{error}");
        assert!(heard.recv().unwrap().contains(order));
        let (code, out, _) = said(&following.wait_with_output().unwrap());
        assert!(code == 0 && out.contains("a line in the log"), "{out}");
        std::fs::remove_file(place.run_dir("it").join("agent.sock")).unwrap();
    }
}

#[test]
fn a_table_needs_no_place_to_write_to() {
    let place = Place::new();
    drop(place.start("it", &[("long", 6000)]));
    let page = place.run_dir("it").join("report.html");
    std::fs::remove_file(&page).unwrap();
    std::fs::create_dir(&page).unwrap();
    assert_eq!(place.saturn(&["report", "it"]).0, 5);
    // A Python that tells which verb it is to do.
    let bin = place.0.path().join("venv/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let python = bin.join("python3");
    std::fs::write(&python, "#!/bin/sh\necho \"$3\"\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&python, executable).unwrap();
    let mut command = place.command(&["report", "it", "--csv"]);
    let found = said(&command.env("VIRTUAL_ENV", place.0.path().join("venv")).output().unwrap());
    assert_eq!((found.0, found.1.as_str()), (0, "table\n"), "{}", found.2);
}
