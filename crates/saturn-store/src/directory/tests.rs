use saturn_core::{Knobs, Origin, Strategy, Trained};
use tempfile::TempDir;

use super::*;
use crate::disk::Operation;

fn key(digit: char) -> String {
    std::iter::repeat_n(digit, KEY_DIGITS).collect()
}

/// A trial of `ddp` with this step time in seconds.
fn trial(digit: char, gpus: u32, step_s: f64) -> Trial {
    Trial {
        task: "t".to_owned(),
        profile_key: Some(key(digit)),
        gpu_type: Some("cpu".to_owned()),
        device_memory_bytes: None,
        strategy: Strategy { technique: "ddp".to_owned(), gpus, knobs: Knobs::new() },
        outcome: Some(TrialOutcome::Measured {
            step_s,
            setup_s: 1.0,
            checkpoint_s: None,
            peak_memory_bytes: 9,
            timed_steps: 3,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: None,
            evaluation_s: None,
        }),
        trained: None,
        origin: Origin { hardware: Some("a processor".to_owned()), ..Origin::default() },
    }
}

fn add(store: &Store, trials: Vec<Trial>) -> Added {
    store.add(trials, &mut |line| panic!("{line}")).unwrap()
}

fn read(store: &Store, digit: char) -> Vec<Trial> {
    store.read(&key(digit), &mut |line| panic!("{line}"))
}

#[test]
fn a_store_that_is_not_there_is_empty_and_is_not_made_by_looking() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(&dir.path().join("home"));
    assert_eq!(store.keys().unwrap(), Vec::<String>::new());
    assert_eq!(read(&store, 'a'), []);
    assert!(!dir.path().join("home").exists());
}

#[test]
fn newer_trials_replace_those_of_the_same_place_alone() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(dir.path());
    let one = trial('a', 1, 1.0);
    let elsewhere = Trial {
        origin: Origin { hardware: Some("another".to_owned()), ..Origin::default() },
        ..trial('a', 1, 5.0)
    };
    let limited = Trial { device_memory_bytes: Some(1 << 30), ..trial('a', 1, 6.0) };
    let known = vec![one, elsewhere.clone(), limited.clone(), trial('a', 2, 7.0)];
    assert_eq!(add(&store, known), Added { new: 4, replaced: 0 });
    assert_eq!(add(&store, vec![trial('a', 1, 2.0)]), Added { new: 0, replaced: 1 });
    let expected = vec![trial('a', 1, 2.0), elsewhere, limited, trial('a', 2, 7.0)];
    assert_eq!(read(&store, 'a'), expected);
    assert_eq!(read(&store, 'b'), []);
}

#[test]
fn what_failed_or_has_no_key_of_the_store_stays_out() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(dir.path());
    let failed = TrialOutcome::Failed { error: "e".to_owned(), traceback: String::new() };
    let outcome = Some(failed);
    let failed = Trial { outcome, ..trial('a', 1, 1.0) };
    let nameless = Trial { profile_key: None, ..trial('a', 1, 1.0) };
    let escaping = Trial { profile_key: Some("../../x".to_owned()), ..trial('a', 1, 1.0) };
    assert_eq!(add(&store, vec![failed, nameless, escaping]), Added::default());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn many_writers_at_once_lose_nothing() {
    let dir = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = Store::at(dir.path());
            scope.spawn(move || {
                for round in 0..8 {
                    add(&store, vec![trial('a', 1 + writer * 8 + round, 1.0)]);
                }
            });
        }
    });
    let mut gpus: Vec<u32> =
        read(&Store::at(dir.path()), 'a').iter().map(|trial| trial.strategy.gpus).collect();
    gpus.sort_unstable();
    assert_eq!(gpus, (1..=32).collect::<Vec<u32>>());
}

#[test]
fn files_that_can_not_be_used_are_set_aside_and_named() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(dir.path());
    let path = store.path(&key('a'));
    let foreign = Profile { trials: vec![trial('b', 1, 1.0)] }.to_json();
    for (number, (content, reason)) in [
        ("no JSON".to_owned(), "not JSON"),
        (r#"{"version": 7, "trials": []}"#.to_owned(), "`version` is 7"),
        (foreign, "`trials[0].profile_key` is not the file's own"),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::create_dir_all(store.directory()).unwrap();
        std::fs::write(&path, &content).unwrap();
        let mut lines = Vec::new();
        assert_eq!(store.read(&key('a'), &mut |line| lines.push(line)), []);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains(path.to_str().unwrap()) && lines[0].contains(reason),
            "{lines:?}"
        );
        let aside = path.with_added_extension(format!("set-aside-{}", number + 1));
        assert_eq!(std::fs::read_to_string(aside).unwrap(), content);
        assert!(!path.exists());
    }
    // The store works on without these files.
    add(&store, vec![trial('a', 1, 1.0)]);
    assert_eq!(read(&store, 'a').len(), 1);
    assert_eq!(store.keys().unwrap(), [key('a')]);
}

#[test]
fn only_the_user_may_look_in() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(&dir.path().join("home"));
    add(&store, vec![trial('a', 1, 1.0)]);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(store.directory()), 0o700);
    assert_eq!(mode(&store.path(&key('a'))), 0o600);
    assert_eq!(mode(&store.directory().join(".lock")), 0o600);
}

#[test]
fn a_disk_that_fails_leaves_what_was_there() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(dir.path());
    add(&store, vec![trial('a', 1, 1.0)]);
    for failing in [Operation::Write, Operation::Sync, Operation::Rename] {
        let disk = Disk::with_faults(move |operation, _| {
            if operation == failing { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        let full = store.clone().on(disk);
        let added = full.add(vec![trial('a', 2, 1.0)], &mut |line| panic!("{line}"));
        assert!(added.unwrap_err().is_disk_full());
        assert_eq!(read(&store, 'a'), [trial('a', 1, 1.0)]);
    }
}

#[test]
fn what_is_forgotten_is_gone_and_the_rest_stays() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(dir.path());
    add(&store, vec![trial('a', 1, 1.0), trial('a', 2, 1.0), trial('b', 1, 1.0)]);
    let silent = &mut |line: String| panic!("{line}");
    assert_eq!(store.retain(&key('a'), |trial| trial.strategy.gpus == 1, silent).unwrap(), 1);
    assert_eq!(read(&store, 'a'), [trial('a', 1, 1.0)]);
    assert_eq!(store.retain(&key('a'), |_| false, silent).unwrap(), 1);
    assert_eq!(store.keys().unwrap(), [key('b')]);
}

/// The same strategy, known only from training.
fn trained(of: &Trial, step_s: f64, unix_s: u64) -> Trial {
    let trained =
        Trained { step_s, steps: 100, relative_error: 0.02, measured_unix_s: Some(unix_s) };
    let origin = Origin { measured_unix_s: None, ..of.origin.clone() };
    Trial { outcome: None, trained: Some(trained), origin, ..of.clone() }
}

#[test]
fn what_training_finds_is_added_to_what_trials_found() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(dir.path());
    let tried = trial('a', 1, 1.0);
    add(&store, vec![tried.clone(), trained(&tried, 2.0, 7)]);
    let of = |store: &Store| {
        let [known] = &read(store, 'a')[..] else { panic!("one strategy") };
        assert_eq!(known.outcome, tried.outcome, "its memory and its launch are the trial's");
        let trained = known.trained.unwrap();
        (trained.step_s, trained.steps, trained.measured_unix_s)
    };
    assert_eq!(of(&store), (2.0, 100, Some(7)));
    // Measurements that agree are averaged. The same measurement imported again counts once.
    add(&store, vec![trained(&tried, 2.02, 8)]);
    let weighed = of(&store);
    assert!((2.009..2.011).contains(&weighed.0) && weighed.1 == 200, "{weighed:?}");
    let all = read(&store, 'a');
    let again = Trial { outcome: None, ..all[0].clone() };
    add(&store, vec![again]);
    assert_eq!(read(&store, 'a'), all);
    // A training result that contradicts the known one replaces it. A trial of three steps does
    // not.
    add(&store, vec![trained(&tried, 3.0, 9), trial('a', 1, 1.0)]);
    assert_eq!(of(&store), (3.0, 100, Some(9)));
}

#[test]
fn what_trained_without_a_trial_is_known_by_that_until_there_is_one() {
    let dir = TempDir::new().unwrap();
    let store = Store::at(dir.path());
    let tried = trial('a', 1, 1.0);
    add(&store, vec![trained(&tried, 2.0, 7)]);
    assert_eq!(read(&store, 'a'), [trained(&tried, 2.0, 7)]);
    let mut other = tried.clone();
    other.strategy.knobs.insert("micro".to_owned(), 2.into());
    add(&store, vec![other.clone()]);
    assert_eq!(read(&store, 'a'), [other.clone()], "it trained under other knobs");
    add(&store, vec![trained(&tried, 2.0, 8)]);
    assert_eq!(read(&store, 'a'), [other]);
}
