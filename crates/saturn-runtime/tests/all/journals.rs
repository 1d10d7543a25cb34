//! Tests of journals: a run with an older journal can be resumed, readers change nothing, and a
//! full disk loses nothing.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use saturn_engine::RunEnd;
use saturn_runtime::{ResumeOptions, RuntimeError, Watcher};
use saturn_store::{Disk, Operation};
use tempfile::TempDir;

use crate::harness::{GOOD, Run, quiet};

/// A run with a journal of an earlier version, such as `v1-killed`, and with fake workers.
fn old_run(name: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let journal = run.join("journal.db");
    std::fs::copy(here.join(format!("journals/{name}.db")), &journal).unwrap();
    let of_v1 = ["width64-lr0.001", "width64-lr0.01", "width256-lr0.001", "width256-lr0.01", "bad"];
    for task in of_v1.into_iter().chain(["t0", "t1", "t2"]) {
        let task = run.join("tasks").join(task);
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("behaviour.json"), GOOD).unwrap();
    }
    let connection = Connection::open(&journal).unwrap();
    let settings: String =
        connection.query_row("SELECT launch FROM settings", [], |row| row.get(0)).unwrap();
    let mut settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
    settings["python"] = here.join("fake_python.py").to_str().unwrap().into();
    settings["cwd"] = dir.path().to_str().unwrap().into();
    settings["locks_dir"] = dir.path().join("locks").to_str().unwrap().into();
    connection.execute("UPDATE settings SET launch = ?1", [settings.to_string()]).unwrap();
    drop(connection);
    // Most steps of each task are trained, and a few are left.
    let (state, _) = saturn_runtime::read(&run).unwrap();
    for task in &state.tasks {
        let saved = task.steps.unwrap_or(0).saturating_sub(20);
        std::fs::write(run.join(&task.spec.dir).join("step"), saved.to_string()).unwrap();
    }
    (dir, run)
}

fn resume(run: &Path) -> Result<saturn_runtime::Outcome, RuntimeError> {
    saturn_runtime::resume(run, ResumeOptions::default(), Watcher::new(quiet(), &mut || false))
}

fn files(run: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(run).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn runs_of_earlier_versions_are_gone_on_with() {
    let versions = ["v1", "v2"].into_iter();
    let names = versions.flat_map(|version| {
        ["complete", "killed", "interrupted"].map(|how| format!("{version}-{how}"))
    });
    for name in &names.collect::<Vec<_>>() {
        let (_dir, run) = old_run(name);
        let outcome = resume(&run).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(outcome.end, RunEnd::Complete, "{name}");
        let journal = Connection::open(run.join("journal.db")).unwrap();
        let version: i64 =
            journal.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 3, "{name}");
        // The second resume reads a journal of the present version.
        assert_eq!(resume(&run).unwrap().end, RunEnd::Complete, "{name}");
    }
}

/// The settings that a run's journal has for its workers.
fn settings_of(run: &Path) -> serde_json::Value {
    let journal = Connection::open(run.join("journal.db")).unwrap();
    let settings: String =
        journal.query_row("SELECT launch FROM settings", [], |row| row.get(0)).unwrap();
    serde_json::from_str(&settings).unwrap()
}

/// A program that says of itself what a Python with this version of Saturn would, and else is
/// `fake_python.py`.
fn python_with(saturn: &str, program: &Path) {
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_python.py");
    let shown = program.display();
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = -c ]; then\necho '[\"{saturn}\", \"{shown}\", [\"'\"$PYTHONPATH\"'\", \
         \"/new/site-packages\"], \"3.12\", \"/new\"]'; exit\nfi\nexec {} \"$@\"\n",
        fake.display()
    );
    std::fs::write(program, text).unwrap();
    std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_run_whose_python_is_gone_is_resumed_with_another() {
    let (dir, run) = old_run("v2-interrupted");
    let mut settings = settings_of(&run);
    settings["python"] = "/gone/bin/python".into();
    settings["python_path"] = serde_json::json!([
        "",
        "/own/code",
        "/gone/lib/python3.9",
        "/gone/lib/python3.9/site-packages"
    ]);
    let journal = Connection::open(run.join("journal.db")).unwrap();
    journal.execute("UPDATE settings SET launch = ?1", [settings.to_string()]).unwrap();
    drop(journal);
    let refused = resume(&run).unwrap_err();
    assert!(refused.is_bad_input());
    let told = refused.to_string();
    let advice = format!("saturn resume {} --python PATH", run.display());
    assert!(told.contains("`/gone/bin/python`") && told.contains(&advice), "{told}");

    let other = dir.path().join("python");
    let refusal = || saturn_runtime::change_python(&run, &other).unwrap_err().to_string();
    assert!(refusal().contains("can't be started as a Python"), "{}", refusal());
    std::fs::write(&other, "#!/bin/sh\necho 'No module named saturn' >&2; exit 1\n").unwrap();
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o755)).unwrap();
    assert!(refusal().contains("can't import saturn (No module named saturn)"), "{}", refusal());
    python_with("99.0.0", &other);
    assert!(refusal().contains("has Saturn 99.0.0, and this program is Saturn "), "{}", refusal());
    let (python, path) = (&settings["python"], &settings["python_path"]);
    let kept = settings_of(&run);
    assert_eq!(
        (&kept["python"], &kept["python_path"]),
        (python, path),
        "a refusal changes nothing"
    );

    python_with(env!("CARGO_PKG_VERSION"), &other);
    // By this file, programs that submit tasks compare their Python with the run's.
    let surroundings = run.join("started_from.json");
    let of_old = serde_json::json!({"version": 1, "cwd": "/own", "python_path": ["/own/code"],
        "python": "3.9", "environment": "/gone"});
    std::fs::write(&surroundings, of_old.to_string()).unwrap();
    saturn_runtime::change_python(&run, &other).unwrap();
    let of_new = std::fs::read_to_string(&surroundings).unwrap();
    let of_new: serde_json::Value = serde_json::from_str(&of_new).unwrap();
    let told = |name: &str| of_new[name].as_str().unwrap().to_owned();
    assert_eq!(["cwd", "python", "environment"].map(told), ["/own", "3.12", "/new"]);
    let changed = settings_of(&run);
    assert_eq!(changed["python"], other.to_str().unwrap());
    // Of the earlier places only the run's own is left.
    assert_eq!(changed["python_path"], serde_json::json!(["/own/code", "/new/site-packages"]));
    assert_eq!(resume(&run).unwrap().end, RunEnd::Complete);
}

#[test]
fn readers_change_nothing() {
    let (_dir, run) = old_run("v1-killed");
    let before = (files(&run), std::fs::read(run.join("journal.db")).unwrap());
    saturn_runtime::status(&run).unwrap();
    saturn_runtime::explain(&run, Some("bad")).unwrap();
    assert_eq!((files(&run), std::fs::read(run.join("journal.db")).unwrap()), before);
}

#[test]
fn the_log_of_a_driver_that_died_is_read_without_its_index() {
    let (_dir, run) = old_run("v1-killed");
    let journal = Connection::open(run.join("journal.db")).unwrap();
    journal.pragma_update(None, "journal_mode", "WAL").unwrap();
    journal
        .execute(
            "INSERT INTO record (at_s, record) SELECT max(at_s), ?1 FROM record",
            [r#"{"record":"interrupted","at_once":false}"#],
        )
        .unwrap();
    // As a crash leaves it: the newest records are only in the log.
    let crashed = run.with_file_name("crashed");
    std::fs::create_dir(&crashed).unwrap();
    for name in ["journal.db", "journal.db-wal"] {
        std::fs::copy(run.join(name), crashed.join(name)).unwrap();
    }
    let (state, _) = saturn_runtime::read(&crashed).unwrap();
    assert_eq!(state.interrupted, Some(false));
    assert_eq!(files(&crashed), BTreeSet::from(["journal.db".into(), "journal.db-wal".into()]));
}

#[test]
fn damage_is_named() {
    let (_dir, run) = old_run("v1-complete");
    resume(&run).unwrap();
    let tamper = |sql: &str| {
        Connection::open(run.join("journal.db")).unwrap().execute_batch(sql).unwrap();
    };
    let error = || resume(&run).unwrap_err().to_string();
    tamper("UPDATE record SET record = '{\"record\": \"unheard_of\"}' WHERE seq = 2");
    assert!(error().contains("record 2") && error().contains("unheard_of"), "{}", error());
    tamper("DELETE FROM record WHERE seq <= 2");
    assert!(error().contains("records before record 3 are missing"), "{}", error());
    tamper("PRAGMA user_version = 9");
    assert!(error().contains("is of version 9, and this program reads 1 to 3"), "{}", error());
    std::fs::write(run.join("journal.db"), "not a database, but long enough".repeat(99)).unwrap();
    assert!(matches!(resume(&run), Err(RuntimeError::Journal { .. })));
}

#[test]
fn a_full_disk_pauses_a_run_and_loses_nothing() {
    let mut run = Run::new(1, &[GOOD]);
    let begun = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&begun);
    run.disk = Disk::with_faults(move |operation, at| {
        let is_journal = operation == Operation::Begin;
        let is_spec = operation == Operation::Write && at.ends_with("attempts/1/spec.json");
        // The disk is full for three transactions in a row, from the third on, and for the first
        // spec.
        let now = counter.fetch_add(u32::from(is_journal), Ordering::Relaxed);
        let is_full = is_journal && (3..6).contains(&now) || is_spec;
        if is_full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    });
    let outcome = run.start().unwrap();
    assert_eq!((outcome.end, outcome.num_failed), (RunEnd::Complete, 0));
    assert_eq!(run.saved_step("t0"), 60);
    assert!(begun.load(Ordering::Relaxed) > 6);
}
