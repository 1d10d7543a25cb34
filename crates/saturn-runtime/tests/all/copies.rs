//! Copies of runs, which are resumed beside the runs that they are copies of.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

use saturn_engine::RunEnd;
use saturn_runtime::{Outcome, ResumeOptions, RuntimeError, Watcher, journal_head};

use crate::harness::{GOOD, Run, quiet};

fn copy(run: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([run, to]).status().unwrap().success());
}

/// Resumes a run until a task has trained as far as this.
fn resume(run: &Path, until: u64) -> Result<Outcome, RuntimeError> {
    let mut is_interrupted = || saved_step(run) >= until;
    let watcher = Watcher::new(quiet(), &mut is_interrupted);
    saturn_runtime::resume(run, ResumeOptions::default(), watcher)
}

fn saved_step(run: &Path) -> u64 {
    std::fs::read_to_string(run.join("tasks/t0/step")).map_or(0, |text| text.parse().unwrap())
}

#[test]
fn a_copy_that_is_resumed_ends_no_process_of_a_run_that_goes_on() {
    let mut run = Run::new(1, &[GOOD]);
    run.steps = 500;
    let (original, copied) = (run.path(), run.dir.path().join("copied"));
    let mut beside = None;
    let outcome = run.start_interrupted(&mut || {
        if beside.is_none() && run.saved_step("t0") > 0 {
            copy(&original, &copied);
            let copied = copied.clone();
            beside = Some(std::thread::spawn(move || resume(&copied, 100)));
        }
        false
    });
    assert_eq!(outcome.unwrap().num_failed, 0);
    let copied_end = beside.unwrap().join().unwrap().unwrap().end;
    assert_eq!((copied_end, run.attempts(0)), (RunEnd::Interrupted, 1), "it was never ended");
    let names = [original, copied].map(|run| journal_head(&run).unwrap().run_id);
    assert_ne!(names[0], names[1]);
}

#[test]
fn a_run_that_was_moved_keeps_its_name_and_a_copy_gets_another() {
    let run = Run::new(1, &[GOOD]);
    let (moved, copied) = (run.dir.path().join("moved"), run.dir.path().join("copied"));
    let name = |run: &Path| journal_head(run).unwrap().run_id;
    run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
    let before = name(&run.path());
    std::fs::rename(run.path(), &moved).unwrap();
    resume(&moved, 0).unwrap();
    assert_eq!(name(&moved), before);
    copy(&moved, &copied);
    std::fs::write(copied.join("storage.json"), r#"{"url": "s3://bucket/run"}"#).unwrap();
    let error = resume(&copied, 0).unwrap_err().to_string();
    assert!(error.contains("is a copy of the run") && error.contains("moved"), "{error}");
    std::fs::remove_file(copied.join("storage.json")).unwrap();
    assert_eq!(resume(&copied, 1000).unwrap().num_failed, 0);
    assert_ne!(name(&copied), before);
    assert_eq!(resume(&moved, 1000).unwrap().num_failed, 0);
}
