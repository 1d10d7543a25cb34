//! Tests that a journal is read as it was written, keeps whole decisions, and survives a full disk.

use std::collections::BTreeSet;

use saturn_engine::{DeviceKind, Mode, Policy, RunConfig, RunEnd, TaskId};
use tempfile::TempDir;

use super::*;
use crate::run_files::plans::tests::{at, planned};
use crate::run_files::reader::RunReader;

pub(crate) fn settings() -> LaunchSettings {
    LaunchSettings {
        python: "python3".to_owned(),
        python_path: vec!["/somewhere".to_owned()],
        cwd: PathBuf::from("/"),
        preload: Vec::new(),
        devices: Some(2),
        locks_dir: None,
        run_id: "a-run".to_owned(),
        run_dir: None,
        store: None,
        host_memory_bytes: None,
        outlives_s: None,
        door: None,
        shared_gpus: BTreeSet::from(["G2".to_owned()]),
        platform: None,
    }
}

/// A journal of three records, with its directory.
fn written() -> (TempDir, PathBuf, Vec<Record>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("journal.db");
    let config = RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: Vec::new(),
        policy: Policy::default(),
    };
    let records = vec![
        Record::Began { config },
        Record::Noted { task: Some(TaskId(3)), text: "a `word` \"for\" you\n".to_owned() },
        Record::RunEnded { end: RunEnd::Complete },
    ];
    let mut journal = Journal::create(&path, &settings(), &records[..1], Disk::default()).unwrap();
    journal.append(&[], 0.5).unwrap();
    journal.append(&records[1..], 1.75).unwrap();
    (dir, path, records)
}

/// Opens a journal as its next driver does.
fn opened(path: &Path) -> Result<(Journal, Contents), RuntimeError> {
    let mut records = Vec::new();
    let (journal, settings) = Journal::open(path, Disk::default(), &mut |record, at_s| {
        records.push((record, at_s));
    })?;
    Ok((journal, Contents { version: VERSION, records, settings }))
}

#[test]
fn what_was_appended_is_read_back_in_order_with_its_times() {
    let (_dir, path, records) = written();
    let expected: Vec<_> = records.into_iter().zip([0.0, 1.75, 1.75]).collect();
    let (_, contents) = opened(&path).unwrap();
    assert_eq!((contents.records, contents.settings), (expected.clone(), settings()));
    assert_eq!(Contents::read(&path).unwrap().records, expected);
}

#[test]
fn how_far_an_agent_was_heard_is_stored_with_the_records_that_its_word_led_to() {
    let (_dir, path, records) = written();
    let heard = |number| Heard { agent: "one".to_owned(), number };
    let (mut journal, _) = opened(&path).unwrap();
    assert_eq!(journal.heard("one").unwrap(), 0);
    journal.hear(vec![heard(6)]);
    journal.append(&[], 2.0).unwrap();
    drop(journal);
    let (mut journal, _) = opened(&path).unwrap();
    assert_eq!(journal.heard("one").unwrap(), 0, "it led to nothing");
    for number in [7, 9] {
        journal.hear(vec![heard(number)]);
        journal.append(&records[1..2], 2.0).unwrap();
    }
    journal.append(&records[1..2], 3.0).unwrap();
    drop(journal);
    let (journal, contents) = opened(&path).unwrap();
    assert_eq!(contents.records.len(), 6);
    assert_eq!(journal.heard("one").unwrap(), 9);
    assert_eq!(journal.heard("two").unwrap(), 0, "it is another agent's");
}

#[test]
fn a_decision_is_kept_whole_or_not_at_all() {
    let (_dir, path, _) = written();
    let (mut journal, _) = opened(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    journal.connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    let decision = [Record::Interrupted { at_once: false }, Record::Interrupted { at_once: true }];
    let error = journal.append(&decision, 2.0).unwrap_err();
    assert!(matches!(error, RuntimeError::Journal { .. }) && !error.is_disk_full(), "{error}");
    drop(other);
    assert_eq!(Contents::read(&path).unwrap().records.len(), 3);
    journal.append(&decision, 2.0).unwrap();
    assert_eq!(Contents::read(&path).unwrap().records.len(), 5);
}

#[test]
fn a_plan_that_was_not_kept_is_referred_to_by_no_later_one() {
    let (_dir, path, records) = written();
    let (mut journal, _) = opened(&path).unwrap();
    let plans = [vec![at(0, 1.0)], vec![at(0, 1.0), at(1, 2.0)], vec![at(1, 2.0), at(0, 1.0)]];
    let plans = plans.map(planned);
    journal.append(&plans[..1], 2.0).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    journal.connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    journal.append(&plans[1..2], 3.0).unwrap_err();
    drop(other);
    journal.append(&plans[2..], 4.0).unwrap();
    // A journal that is opened again continues from the last plan that it kept.
    drop(journal);
    let (mut journal, _) = opened(&path).unwrap();
    journal.append(&plans[1..2], 5.0).unwrap();
    let read = Contents::read(&path).unwrap().records.into_iter().map(|(record, _)| record);
    let kept = [&plans[0], &plans[2], &plans[1]].into_iter().cloned();
    assert_eq!(read.collect::<Vec<_>>(), records.into_iter().chain(kept).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_is_told_apart_and_costs_nothing() {
    let (_dir, path, _) = written();
    let (mut journal, _) = opened(&path).unwrap();
    let pages: i64 =
        journal.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    journal.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let long = [Record::Noted { task: None, text: "x".repeat(100_000) }];
    assert!(journal.append(&long, 2.0).unwrap_err().is_disk_full());
    assert_eq!(Contents::read(&path).unwrap().records.len(), 3);
    journal.connection.pragma_update(None, "max_page_count", pages + 100).unwrap();
    journal.append(&long, 2.0).unwrap();
    assert_eq!(Contents::read(&path).unwrap().records.len(), 4);
}

/// `SQLite` reports an exceeded quota as an I/O error, like a broken disk.
#[test]
fn a_share_of_the_disk_that_is_used_up_is_a_full_disk_too() {
    let (_dir, path, _) = written();
    let failing = |kind: std::io::ErrorKind| {
        let disk = Disk::with_faults(move |operation, _| match operation {
            Operation::Insert | Operation::Write => Err(kind.into()),
            _ => Ok(()),
        });
        let (mut journal, _) = Journal::open(&path, disk, &mut |_, _| {}).unwrap();
        journal.append(&[Record::Interrupted { at_once: false }], 2.0).unwrap_err()
    };
    let error = failing(std::io::ErrorKind::QuotaExceeded);
    assert!(error.is_disk_full(), "{error:?}");
    let error = failing(std::io::ErrorKind::PermissionDenied);
    assert!(!error.is_disk_full(), "{error:?}");
    assert!(!path.with_added_extension("probe").exists());
    assert_eq!(Contents::read(&path).unwrap().records.len(), 3);
}

type Damage = Box<dyn Fn(&Path)>;

#[test]
fn each_damage_is_told_in_one_line_that_says_what_to_do() {
    let sql = |text: &'static str| {
        move |path: &Path| Connection::open(path).unwrap().execute_batch(text).unwrap()
    };
    let damages: [(Damage, &str); 7] = [
        (
            Box::new(|path: &Path| std::fs::write(path, "text ".repeat(999)).unwrap()),
            "no SQLite database",
        ),
        (
            Box::new(|path: &Path| {
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            }),
            "a part of the file is missing or overwritten",
        ),
        (Box::new(sql("DROP TABLE record")), "a table is missing"),
        (Box::new(sql("DELETE FROM settings")), "a row is missing"),
        (Box::new(sql("DELETE FROM record WHERE seq = 2")), "records before record 3 are missing"),
        (Box::new(sql("UPDATE record SET record = '{' WHERE seq = 2")), "record 2: "),
        (Box::new(sql("UPDATE record SET record = x'00ff' WHERE seq = 2")), "something else"),
    ];
    for (damage, expected) in damages {
        let (dir, path, _) = written();
        damage(&path);
        let error = Contents::read(&path).unwrap_err();
        assert!(
            matches!(error, RuntimeError::Damaged { .. }) && !error.is_bad_input(),
            "{error:?}"
        );
        let told = saturn_store::with_causes(&error);
        assert!(told.contains(expected) && told.lines().count() == 1, "{told}");
        assert!(told.contains("replace the file with a copy of it"), "{told}");
        assert!(told.contains(&format!("{}/tasks", dir.path().display())), "{told}");
    }
}

#[test]
fn a_journal_of_a_later_version_asks_for_that_program() {
    let (_dir, path, _) = written();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
    let told = Contents::read(&path).unwrap_err().to_string();
    assert!(
        told.contains("is of version 4, and this program reads 1 to 3; use the version"),
        "{told}"
    );
}

#[test]
fn a_reader_takes_only_what_came_since_and_notices_another_run() {
    let (_dir, path, records) = written();
    let mut reader = RunReader::new(path.parent().unwrap());
    let read = |reader: &mut RunReader| {
        let (mut begun, mut numbers) = (0, Vec::new());
        reader.advance(|| begun += 1, |one| numbers.push((one.number, one.at_s))).unwrap();
        (begun, numbers)
    };
    assert!(reader.run().is_none());
    assert_eq!(read(&mut reader), (1, vec![(1, 0.0), (2, 1.75), (3, 1.75)]));
    assert_eq!(read(&mut reader), (0, Vec::new()));
    // A driver goes on, and the reader reads beside it.
    let (mut journal, _) = opened(&path).unwrap();
    let spec = serde_json::json!({
        "name": "a", "dir": "a", "steps": 1, "epochs": null, "gpu_range": [1], "profile_key": "k",
    });
    let added = Record::TaskAdded { task: TaskId(0), spec: serde_json::from_value(spec).unwrap() };
    let spec = saturn_core::Node::new("n0", 2, "cpu");
    let joined =
        Record::NodeJoined { node: saturn_engine::NodeId(0), spec, host_memory_bytes: None };
    journal.append(&[joined, added, planned(vec![at(0, 2.0)])], 5.0).unwrap();
    assert_eq!(read(&mut reader), (0, vec![(4, 5.0), (5, 5.0), (6, 5.0)]));
    // This row refers to the plan of the row before.
    let moved = planned(vec![at(0, 4.0)]);
    journal.append(&[moved.clone(), records[1].clone()], 6.0).unwrap();
    let mut seen = Vec::new();
    reader.advance(|| panic!("again"), |one| seen.push(one.record.clone())).unwrap();
    assert_eq!(seen, [moved, records[1].clone()]);
    assert_eq!(reader.run().map(|(state, _, number)| (state.now_s, number)), Some((6.0, 8)));
    let changed = LaunchSettings { run_id: "another".to_owned(), ..settings() };
    journal.change_settings(&changed).unwrap();
    assert_eq!(read(&mut reader).0, 1, "the journal is of another run now");
    drop(journal);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(reader.advance(|| {}, |_| {}), Err(RuntimeError::NoRun { .. })));
}
