//! Runs with real processes: what they do when workers crash, hang, leave children behind, or lose
//! their parent, and when the driver is stopped. The workers are `fake_python.py`, without torch.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use saturn_runtime::{DeviceMemory, Outcome, RunRequest, RuntimeError, Watcher};
use saturn_view::Console;
use tempfile::TempDir;

struct Run {
    dir: TempDir,
    tasks: Vec<(String, String)>,
    devices: u32,
    steps: u64,
    device_memory_bytes: Option<u64>,
}

impl Run {
    /// A run of tasks, each with what its ranks do (`behaviour.json`).
    fn new(devices: u32, behaviours: &[&str]) -> Self {
        let tasks = behaviours.iter().enumerate();
        let tasks = tasks.map(|(index, how)| (format!("t{index}"), (*how).to_owned())).collect();
        Self { dir: TempDir::new().unwrap(), tasks, devices, steps: 60, device_memory_bytes: None }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn request(&self) -> String {
        let mut tasks = Vec::new();
        for (name, behaviour) in &self.tasks {
            let dir = self.path().join("tasks").join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("behaviour.json"), behaviour).unwrap();
            tasks.push(serde_json::json!({
                "name": name, "dir": format!("tasks/{name}"), "steps": self.steps, "epochs": null,
                "gpu_range": null, "profile_key": name, "measured": [],
            }));
        }
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_python.py");
        serde_json::json!({
            "version": 1, "run_dir": self.path(), "mode": "orchestrate", "python": python,
            "python_path": [], "cwd": self.dir.path(), "preload": [], "devices": self.devices,
            "interval_s": 1000.0, "checkpoint_every_s": 1.0, "solver_time_limit_s": 0.2, "seed": 0,
            "warmup_steps": 1, "timed_steps": 3, "tasks": tasks,
            "device_memory_bytes": self.device_memory_bytes,
            "techniques": [
                {"name": "ddp", "level": "managed", "import": "m:D", "pickle": null}],
        })
        .to_string()
    }

    fn start(&self) -> Result<Outcome, RuntimeError> {
        self.start_interrupted(&mut || false)
    }

    fn start_interrupted(
        &self,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, RuntimeError> {
        let request = RunRequest::from_json(&self.request())?;
        let outcome = saturn_runtime::start(request, Watcher { console: quiet(), is_interrupted });
        self.assert_no_process_lives();
        outcome
    }

    fn resume(&self) -> Result<Outcome, RuntimeError> {
        self.resume_with(DeviceMemory::AsBefore)
    }

    fn resume_with(&self, device_memory: DeviceMemory) -> Result<Outcome, RuntimeError> {
        let watcher = Watcher { console: quiet(), is_interrupted: &mut || false };
        let outcome = saturn_runtime::resume(&self.path(), device_memory, watcher);
        self.assert_no_process_lives();
        outcome
    }

    /// Every worker of this run has its directory on its command line, in its working directory or
    /// in the environment that it was given.
    fn assert_no_process_lives(&self) {
        let mark = self.dir.path().to_str().unwrap().to_owned();
        let lives = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| {
            let is_us = process.file_name().to_str() == Some(&std::process::id().to_string());
            let cwd = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
            let state = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            !is_us && cwd.to_string_lossy().starts_with(&mark) && !state.contains(") Z")
        });
        let lives: Vec<_> = lives.map(|process| process.path()).collect();
        assert!(lives.is_empty(), "processes outlive the run: {lives:?}");
    }

    fn saved_step(&self, task: &str) -> u64 {
        let saved = self.path().join("tasks").join(task).join("step");
        std::fs::read_to_string(saved).map_or(0, |text| text.parse().unwrap())
    }

    /// How often a task's gang was launched to train.
    fn attempts(&self, task: usize) -> u64 {
        self.report()["tasks"][task]["attempts"].as_u64().unwrap()
    }

    /// What the attempts of the first task were told that a device may hold, oldest first.
    fn told_limits(&self) -> Vec<Option<u64>> {
        let limit = |attempt: u32| {
            let attempts = self.path().join("tasks/t0/attempts");
            let spec = std::fs::read_to_string(attempts.join(format!("{attempt}/spec.json")));
            let spec: serde_json::Value = serde_json::from_str(&spec.ok()?).unwrap();
            Some(spec["device_memory_bytes"].as_u64())
        };
        (1..).map_while(limit).collect()
    }

    fn report(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.path().join("report.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

fn quiet() -> Console {
    Console::new(false, Some(Box::new(|_| {})), |_| None)
}

const GOOD: &str = "{}";

#[test]
fn a_run_trains_everything_and_leaves_nothing_behind() {
    let run = Run::new(2, &[GOOD, GOOD, r#"{"orphan": true}"#]);
    let outcome = run.start().unwrap();
    assert_eq!(outcome.num_failed, 0);
    assert!((0..3).all(|task| run.saved_step(&format!("t{task}")) == 60));
    assert!(run.path().join("report.html").exists());
    assert!(run.path().join("profile.json").exists());
}

#[test]
fn a_crash_goes_back_to_the_last_checkpoint() {
    let run = Run::new(1, &[r#"{"trials": 1, "bad_attempts": 1, "at_step": 50, "how": "die"}"#]);
    let outcome = run.start().unwrap();
    assert_eq!((outcome.num_failed, run.saved_step("t0"), run.attempts(0)), (0, 60, 2));
}

#[test]
fn one_rank_takes_its_gang_with_it() {
    let behaviour = r#"{"trials": 2, "bad_attempts": 1, "at_step": 30, "how": "one_dies"}"#;
    let run = Run::new(2, &[behaviour]);
    let outcome = run.start().unwrap();
    assert_eq!((outcome.num_failed, run.saved_step("t0"), run.attempts(0)), (0, 60, 2));
}

#[test]
fn what_the_task_raises_ends_it_with_its_own_traceback_and_no_other() {
    let raises = r#"{"trials": 1, "bad_attempts": 9, "at_step": 1, "how": "raise"}"#;
    let run = Run::new(1, &[raises, GOOD]);
    let outcome = run.start().unwrap();
    assert_eq!(outcome.num_failed, 1);
    assert_eq!(run.saved_step("t1"), 60);
    let report = run.report().to_string();
    assert!(report.contains("Traceback: odd"), "{report}");
}

#[test]
fn a_death_without_a_word_shows_the_end_of_the_log() {
    let run = Run::new(1, &[r#"{"silent_death": "train"}"#]);
    assert_eq!(run.start().unwrap().num_failed, 1);
    let report = run.report().to_string();
    assert!(report.contains("no word on the socket, only this in the log"), "{report}");
}

#[test]
fn a_line_that_cannot_be_read_fails_the_attempt_only() {
    let garbage = r#"{"trials": 1, "bad_attempts": 1, "at_step": 25, "how": "garbage"}"#;
    let run = Run::new(1, &[garbage]);
    assert_eq!(run.start().unwrap().num_failed, 0);
    assert_eq!((run.saved_step("t0"), run.attempts(0)), (60, 2));
}

#[test]
fn ranks_start_cold_when_the_warm_parent_has_died() {
    let behaviour = r#"{"trials": 1, "bad_attempts": 1, "at_step": 30, "how": "warm_parent_dies"}"#;
    let run = Run::new(1, &[behaviour]);
    assert_eq!(run.start().unwrap().num_failed, 0);
    assert_eq!((run.saved_step("t0"), run.attempts(0)), (60, 2));
}

#[test]
fn ranks_start_cold_when_forking_is_not_safe() {
    let run = Run::new(2, &[GOOD, GOOD]);
    std::fs::write(run.dir.path().join("threads"), "").unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&shown);
    let console = Console::new(
        false,
        Some(Box::new(move |text| sink.lock().unwrap().push_str(text))),
        |_| None,
    );
    let watcher = Watcher { console, is_interrupted: &mut || false };
    let request = RunRequest::from_json(&run.request()).unwrap();
    assert_eq!(saturn_runtime::start(request, watcher).unwrap().num_failed, 0);
    run.assert_no_process_lives();
    assert!(shown.lock().unwrap().contains("the warm parent has 2 threads"));
}

#[test]
fn an_interrupt_ends_a_run_whose_imports_hang() {
    let run = Run::new(1, &[GOOD]);
    let hang = run.dir.path().join("hang");
    std::fs::write(&hang, "").unwrap();
    let outcome = run.start_interrupted(&mut || true).unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    // Nothing was lost: there is a run to go on with.
    std::fs::remove_file(hang).unwrap();
    assert_eq!(run.resume().unwrap().num_failed, 0);
    assert_eq!(run.saved_step("t0"), 60);
}

#[test]
fn an_interrupt_stops_at_checkpoints_and_a_resume_finishes() {
    let run = Run::new(2, &[GOOD, GOOD, GOOD]);
    let calls = AtomicU32::new(0);
    let outcome = run
        .start_interrupted(&mut || {
            let is_training = run.saved_step("t0") + run.saved_step("t1") > 0;
            is_training && calls.fetch_add(1, Ordering::Relaxed) == 0
        })
        .unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    let saved: u64 = (0..3).map(|task| run.saved_step(&format!("t{task}"))).sum();
    assert!((20..180).contains(&saved), "{saved}");
    let outcome = run.resume().unwrap();
    assert_eq!((outcome.end, outcome.num_failed), (saturn_engine::RunEnd::Complete, 0));
    assert!((0..3).all(|task| run.saved_step(&format!("t{task}")) == 60));
    // Once more: a run that is complete is only reported on.
    assert_eq!(run.resume().unwrap().end, saturn_engine::RunEnd::Complete);
}

#[test]
fn a_memory_limit_stays_with_a_run_until_a_resume_changes_it() {
    let sleeps = r#"{"trials": 1, "bad_attempts": 9, "at_step": 30, "how": "sleep"}"#;
    for (device_memory, limit) in [
        (DeviceMemory::AsBefore, Some(600_000_000)),
        (DeviceMemory::Bytes(700_000_000), Some(700_000_000)),
        (DeviceMemory::Unlimited, None),
    ] {
        let mut run = Run::new(1, &[sleeps]);
        run.device_memory_bytes = Some(600_000_000);
        run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
        std::fs::write(run.path().join("tasks/t0/behaviour.json"), GOOD).unwrap();
        assert_eq!(run.resume_with(device_memory).unwrap().num_failed, 0);
        let limits = run.told_limits();
        assert_eq!(limits[..2], [Some(600_000_000); 2], "{limits:?}");
        assert_eq!(limits.last(), Some(&limit), "{limits:?}");
        assert_eq!(run.report()["device_memory_bytes"].as_u64(), limit);
    }
    let mut run = Run::new(1, &[GOOD]);
    run.device_memory_bytes = Some(0);
    assert!(run.start().unwrap_err().to_string().contains("`device_memory_bytes` is 0"));
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let hangs = r#"{"trials": 1, "bad_attempts": 9, "at_step": 30, "how": "garbage"}"#;
    let run = Run::new(1, &[hangs.replace("garbage", "sleep").as_str()]);
    let outcome = run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    assert_eq!(run.resume().unwrap().num_failed, 0);
}

#[test]
fn two_drivers_cannot_share_a_run() {
    let run = Run::new(1, &[GOOD]);
    let mut error = None;
    let mut resume = || {
        let watcher = Watcher { console: quiet(), is_interrupted: &mut || false };
        error = error
            .take()
            .or_else(|| saturn_runtime::resume(&run.path(), DeviceMemory::AsBefore, watcher).err());
        false
    };
    run.start_interrupted(&mut resume).unwrap();
    assert!(matches!(error, Some(RuntimeError::Busy { .. })), "{error:?}");
}

#[test]
fn bad_requests_say_what_is_wrong() {
    let run = Run::new(0, &[GOOD]);
    let error = run.start().unwrap_err();
    assert_eq!(error.to_string(), "`devices` is 0, but a run needs at least 1");
    assert!(error.is_bad_input());
    let error = saturn_runtime::resume(
        run.dir.path(),
        DeviceMemory::AsBefore,
        Watcher { console: quiet(), is_interrupted: &mut || false },
    )
    .unwrap_err();
    assert!(error.to_string().ends_with("it has no journal.db"), "{error}");
    assert!(RunRequest::from_json("{}").unwrap_err().to_string().contains("missing field"));
}

#[test]
fn an_interpreter_that_is_not_there_is_named() {
    let run = Run::new(1, &[GOOD]);
    let request = run.request().replace("fake_python.py", "no_such_python");
    let watcher = Watcher { console: quiet(), is_interrupted: &mut || false };
    let error = saturn_runtime::start(RunRequest::from_json(&request).unwrap(), watcher);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no_such_python"), "{error}");
}
