//! What the `saturn` program sees and does of runs in progress, stopped and ended: real processes,
//! whose workers are the runtime's `fake_python.py`, without torch.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod outliving;
mod pool;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use saturn_runtime::{Outcome, RunRequest, Watcher};
use saturn_view::Console;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A directory with a `saturn_runs` in it, in which commands are given.
struct Place(TempDir);

/// A run that this process drives.
struct Run {
    stop: Arc<AtomicBool>,
    driver: Option<JoinHandle<Outcome>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(driver) = self.driver.take() {
            let _ = driver.join();
        }
    }
}

impl Run {
    fn wait(mut self) -> Outcome {
        self.driver.take().unwrap().join().unwrap()
    }
}

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Devices are this place's own: tests run side by side.
    fn locks(&self) -> PathBuf {
        self.0.path().join("locks")
    }

    fn home(&self) -> PathBuf {
        self.0.path().join("home")
    }

    fn pool(&self) -> PathBuf {
        self.home().join("pools/20260101-000000")
    }

    /// Makes a run the pool of this place.
    fn make_pool(&self, run: &str) {
        std::os::unix::fs::symlink(self.run_dir(run), self.pool()).unwrap();
    }

    fn run_dir(&self, name: &str) -> PathBuf {
        self.0.path().join("saturn_runs").join(name)
    }

    /// Begins a run of tasks with their steps (of 10 ms each) on one device. It stays open.
    fn start(&self, name: &str, tasks: &[(&str, u64)]) -> Run {
        let run_dir = self.run_dir(name);
        let mut described = Vec::new();
        for (task, steps) in tasks {
            let dir = run_dir.join("tasks").join(task);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("behaviour.json"), "{}").unwrap();
            described.push(json!({
                "name": task, "dir": format!("tasks/{task}"), "steps": steps, "epochs": null,
                "gpu_range": null, "profile_key": task, "measured": [],
            }));
        }
        let python =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../saturn-runtime/tests/fake_python.py");
        let request = json!({
            "version": 1, "locks_dir": self.locks(), "run_dir": run_dir, "mode": "orchestrate", "keep_open": true,
            "python": python.canonicalize().unwrap(), "python_path": [], "cwd": self.0.path(),
            "preload": [], "devices": 1, "interval_s": 1000.0, "checkpoint_every_s": 1.0,
            "solver_time_limit_s": 0.2, "seed": 0, "warmup_steps": 1, "timed_steps": 3,
            "tasks": described,
            "techniques": [{"name": "ddp", "level": "managed", "import": "m:D", "pickle": null}],
        });
        let request = RunRequest::from_json(&request.to_string()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let driver = std::thread::spawn(move || {
            let console = Console::new(false, Some(Box::new(|_| {})), |_| None);
            let mut is_interrupted = || is_stopped.swap(false, Ordering::Relaxed);
            let watcher = Watcher::new(console, &mut is_interrupted);
            saturn_runtime::start(request, watcher).unwrap()
        });
        let run = Run { stop, driver: Some(driver) };
        until(|| run_dir.join("control.sock").exists());
        run
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_saturn"));
        command.args(arguments).current_dir(self.0.path()).env("NO_COLOR", "1");
        command.env("SATURN_HOME", self.home()); // not the pool of whoever runs the tests
        command
    }

    /// Exit code and both streams.
    fn saturn(&self, arguments: &[&str]) -> (i32, String, String) {
        said(&self.command(arguments).output().unwrap())
    }

    /// What a command prints as JSON, where it goes well.
    fn json(&self, arguments: &[&str]) -> Value {
        let (code, out, error) = self.saturn(arguments);
        assert_eq!(code, 0, "{arguments:?}: {error}");
        serde_json::from_str(&out).unwrap()
    }

    fn stage(&self, run: &str, task: &str) -> String {
        let status = self.json(&["status", run, "--json"]);
        let tasks = status["tasks"].as_array().unwrap();
        let found = tasks.iter().find(|one| one["name"] == task).unwrap();
        found["stage"].as_str().unwrap().to_owned()
    }

    /// Starts a command that goes on, and heeds signals: where these tests run in the background or
    /// under `nohup`, a child would inherit that some are ignored.
    fn spawn(&self, arguments: &[&str]) -> Child {
        let piped = || Stdio::piped();
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_saturn")]);
        command.args(arguments).current_dir(self.0.path()).env("NO_COLOR", "1");
        command.env("SATURN_HOME", self.home());
        command.stdout(piped()).stderr(piped()).spawn().unwrap()
    }
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[expect(clippy::disallowed_methods, reason = "a test of real processes waits for them")]
fn until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(5);
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to that");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_run_in_progress_is_shown_and_steered() {
    let place = Place::new();
    let run = place.start("it", &[("long", 6000), ("short", 50), ("spare", 50)]);
    let pid = std::process::id();

    let (code, out, error) = place.saturn(&["runs"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.starts_with(&format!("it  running by pid {pid}  ")), "{out}");
    let listed = place.json(&["runs", "saturn_runs", "--json"]);
    assert_eq!(listed["version"], 1);
    let it = &listed["runs"][0];
    assert_eq!(
        (&it["name"], &it["state"], &it["pid"]),
        (&json!("it"), &json!("running"), &json!(pid))
    );
    assert_eq!((&it["tasks"], &it["next"]), (&json!(3), &json!("saturn status it")));

    // Pausing: an answer means that it is in the journal.
    let (code, out, error) = place.saturn(&["pause", "it", "long"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(error.contains("to unpause the task: saturn unpause it long"), "{error}");
    assert_eq!(place.stage("it", "long"), "paused");
    let answer = place.json(&["unpause", "saturn_runs/it", "long", "--json"]);
    let expected =
        json!({"version": 1, "run": "saturn_runs/it", "ok": true, "code": null, "error": null});
    assert_eq!(answer, expected);
    assert_ne!(place.stage("it", "long"), "paused");

    assert_eq!(place.saturn(&["priority", "it", "short", "-3"]).0, 0);
    let status = place.json(&["status", "it", "--json"]);
    assert_eq!(status["version"], 1);
    assert_eq!(place.saturn(&["cancel", "it", "spare"]).0, 0);
    assert_eq!(place.stage("it", "spare"), "cancelled");

    // Refusals say why, with 2; nothing changes.
    for (arguments, words) in [
        (&["cancel", "it", "spare"][..], "task `spare` has ended: it is cancelled"),
        (&["pause", "it", "nobody"], "there is no task `nobody`; there are `long`, `short`"),
        (&["take-back", "it", "nowhere"], "there is no node `nowhere`"),
        (&["logs", "it", "nobody"], "there is no task `nobody`; there are `long`, `short`"),
        (&["explain", "it", "nobody"], "there is no task `nobody`; there are `long`, `short`"),
        (&["logs", "it", "lnog"], "there is no task `lnog`; did you mean `long`?"),
        (&["explain", "it", "lnog"], "there is no task `lnog`; did you mean `long`?"),
        (&["pause", "it", "lnog"], "there is no task `lnog`; did you mean `long`?"),
    ] {
        let (code, out, error) = place.saturn(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.contains(words), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let refused = place.saturn(&["cancel", "it", "spare", "--json"]);
    let answer: Value = serde_json::from_str(&refused.1).unwrap();
    assert_eq!(
        (refused.0, &answer["ok"], &answer["code"]),
        (2, &json!(false), &json!("task_ended"))
    );

    // The newest run is taken where none is named, and named.
    for verb in ["status", "explain"] {
        let (code, out, error) = place.saturn(&[verb]);
        assert_eq!((code, error.as_str()), (0, "the newest run: it\n"));
        assert!(!out.is_empty() && !out.contains('\u{1b}'));
    }
    assert_eq!(place.json(&["explain", "it", "long", "--json"])["version"], 1);

    assert_eq!(place.saturn(&["cancel", "it", "long"]).0, 0);
    until(|| place.stage("it", "short") == "done");
    assert!(!run.driver.as_ref().unwrap().is_finished(), "it was not told that no more will come");
    assert_eq!(place.saturn(&["close", "it"]).0, 0);
    assert_eq!(run.wait().num_failed, 0);

    // All that can be known of an ended run is known; nothing can be asked of it.
    let (code, out, _) = place.saturn(&["runs"]);
    assert!(code == 0 && out.starts_with("it  complete  1 of 3 done, 2 cancelled  "), "{out}");
    assert_eq!(place.stage("it", "short"), "done");
    assert_eq!(place.saturn(&["explain", "it", "short"]).0, 0);
    let (code, _, error) = place.saturn(&["pause", "it", "short"]);
    assert_eq!(code, 2);
    assert!(error.contains("no process drives the run"), "{error}");
    assert!(error.contains("saturn status it"), "{error}");
    let (code, out, _) = place.saturn(&["status", "it", "--watch"]);
    assert!(code == 0 && out.contains("short"), "a watch of an ended run ends: {out}");
}

#[test]
fn a_run_in_progress_is_asked_what_more_nodes_would_bring() {
    let place = Place::new();
    let run = place.start("it", &[("a", 3000), ("b", 3000), ("c", 3000)]);
    until(|| place.json(&["status", "it", "--json"])["unplanned"] == 0);
    until(|| place.json(&["status", "it", "--json"])["expected_end_s"].is_number());
    let found = place.json(&["whatif", "it", "--add", "0..2", "--json"]);
    // One device each: three tasks of 30 s in turn, on two devices with a switch, all side by side.
    assert_eq!(
        (&found["run"]["nodes"], &found["run"]["status"]),
        (&json!(1), &json!("unfinished"))
    );
    let ends_s: Vec<f64> =
        (0..3).map(|i| found["sizes"][i]["makespan_s"].as_f64().unwrap()).collect();
    let share = |index: usize| ends_s[index] / ends_s[0];
    assert!(share(1) > 0.45 && share(1) < 0.75, "{ends_s:?}");
    assert!(share(2) > 0.25 && share(2) < 0.45, "{ends_s:?}");
    let expected_s = found["run"]["expected_s"].as_f64().unwrap();
    assert!((ends_s[0] / expected_s - 1.0).abs() < 0.02, "{ends_s:?} {expected_s}");
    let without = place.json(&["whatif", "it", "--add", "0", "--without", "b,c", "--json"]);
    assert_eq!(without["run"]["cancelled"], json!(["b", "c"]));
    // It is only read.
    assert_eq!(place.stage("it", "b"), "waiting");

    // Stopped, it is told as it would be resumed.
    assert_eq!(place.saturn(&["stop", "it"]).0, 0);
    run.wait();
    let (code, out, error) = place.saturn(&["whatif", "it", "--add", "1"]);
    assert_eq!(code, 0, "{error}");
    let words = "no process drives the run (interrupted): this is what is left if it is resumed";
    assert!(out.contains("it: what is left of 3 tasks") && out.contains(words), "{out}");
}

#[test]
fn logs_are_followed_from_one_attempt_to_the_next() {
    let place = Place::new();
    let run = place.start("it", &[("a", 400)]);
    until(|| place.stage("it", "a") == "running");
    let follow = place.spawn(&["logs", "it", "a", "-f"]);
    assert_eq!(place.saturn(&["pause", "it", "a"]).0, 0);
    until(|| {
        let status = place.json(&["status", "it", "--json"]);
        status["tasks"][0]["stage"] == "paused" && status["tasks"][0]["attempt"].is_null()
    });
    assert_eq!(place.saturn(&["unpause", "it", "a"]).0, 0);
    assert_eq!(place.saturn(&["close", "it"]).0, 0);
    run.wait();
    let (code, out, error) = said(&follow.wait_with_output().unwrap());
    assert_eq!(code, 0, "{error}");
    assert_eq!(error.matches("==> attempt ").count(), 2, "{error}");
    assert_eq!(out, "a line in the log\n".repeat(2));

    // An ended task's logs: of its last attempt, and as data.
    let (code, out, error) = place.saturn(&["logs", "it", "a"]);
    assert_eq!((code, out.as_str()), (0, "a line in the log\n"));
    assert!(error.ends_with(": ddp on 1 device\n"), "{error}");
    let line = place.json(&["logs", "it", "a", "--rank", "0", "--json"]);
    assert_eq!((&line["version"], &line["rank"]), (&json!(1), &json!(0)));
    assert_eq!(line["line"], "a line in the log");
    for (arguments, words) in [
        (&["--attempt", "99"][..], "`a` has no attempt 99; it has "),
        (&["--rank", "7"], "has no log of a rank 7"),
    ] {
        let (code, _, error) = place.saturn(&[&["logs", "it", "a"], arguments].concat());
        assert_eq!(code, 2);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_reader_that_has_enough_ends_the_following_of_logs() {
    let place = Place::new();
    let run = place.start("it", &[("a", 6000)]);
    until(|| place.stage("it", "a") == "running");
    let mut follow = place.spawn(&["logs", "it", "a", "-f"]);
    drop(follow.stdout.take());
    // The next attempt writes a line for which there is no reader.
    assert_eq!(place.saturn(&["pause", "it", "a"]).0, 0);
    until(|| place.json(&["status", "it", "--json"])["tasks"][0]["attempt"].is_null());
    assert_eq!(place.saturn(&["unpause", "it", "a"]).0, 0);
    let follow = std::cell::RefCell::new(follow);
    until(|| follow.borrow_mut().try_wait().unwrap().is_some());
    assert_eq!(follow.borrow_mut().wait().unwrap().code(), Some(0));

    // What drives the run goes on, and no other process may take it over.
    let (code, _, error) = place.saturn(&["resume", "it"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("where the run stands: saturn status it"), "{error}");
    assert_eq!(place.saturn(&["stop", "it"]).0, 0);
    run.wait();
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

#[test]
fn a_stopped_run_is_listed_with_the_command_that_goes_on() {
    let place = Place::new();
    let run = place.start("it", &[("a", 6000)]);
    until(|| place.stage("it", "a") == "running");
    let (code, _, error) = place.saturn(&["stop", "it"]);
    assert_eq!(code, 0);
    assert!(
        error.contains("the run stops at checkpoints; to go on: saturn resume it\n"),
        "{error}"
    );
    run.wait();
    let (_, out, _) = place.saturn(&["runs"]);
    assert!(out.contains("interrupted") && out.contains("to go on: saturn resume it\n"), "{out}");
    assert_eq!(place.json(&["runs", "--json"])["runs"][0]["state"], "interrupted");

    // Each signal stops at a checkpoint, with 130.
    let socket = place.run_dir("it").join("control.sock");
    for signal in ["INT", "TERM", "HUP"] {
        let child = place.spawn(&["resume", "it"]);
        until(|| socket.exists() && place.stage("it", "a") == "running");
        send(&child, signal);
        let (code, _, error) = said(&child.wait_with_output().unwrap());
        assert_eq!(code, 130, "{signal}: {error}");
        assert!(error.contains("saturn resume"), "{error}");
        assert!(!socket.exists());
    }

    // A run whose driver was killed.
    let mut child = place.spawn(&["resume", "it"]);
    until(|| socket.exists() && place.stage("it", "a") == "running");
    child.kill().unwrap();
    child.wait().unwrap();
    let listed = &place.json(&["runs", "--json"])["runs"][0];
    assert_eq!((&listed["state"], &listed["diverged"]), (&json!("died"), &json!(0)));
    assert_eq!(place.json(&["status", "it", "--json"])["status"], "died");
    let why = &place.json(&["explain", "it", "--json"])["reasons"][0];
    assert_eq!(why["code"], "run_died", "{why}");
    let (_, out, _) = place.saturn(&["explain", "it", "a"]);
    assert!(out.contains("the run died"), "{out}");
    assert_eq!(place.json(&["report", "it", "--json"])["status"], "died");
    let page = std::fs::read_to_string(place.run_dir("it").join("report.html")).unwrap();
    assert!(page.contains(">died</span>"));
    assert_eq!(place.saturn(&["cancel", "it", "a"]).0, 2);
}

#[test]
fn signals_that_were_ignored_from_the_start_stay_so() {
    let place = Place::new();
    drop(place.start("it", &[("a", 300)]));
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" resume it", env!("CARGO_BIN_EXE_saturn")]);
    let piped = || Stdio::piped();
    let child =
        command.current_dir(place.0.path()).stdout(piped()).stderr(piped()).spawn().unwrap();
    until(|| place.run_dir("it").join("control.sock").exists());
    send(&child, "HUP");
    until(|| place.stage("it", "a") == "done");
    assert_eq!(place.saturn(&["close", "it"]).0, 0);
    let (code, _, error) = said(&child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{error}");
}

#[test]
fn runs_that_are_damaged_and_places_without_any() {
    let place = Place::new();
    let (code, out, error) = place.saturn(&["runs"]);
    assert_eq!((code, out.as_str(), error.as_str()), (0, "", "no run in `saturn_runs`\n"));
    assert_eq!(place.json(&["runs", "--json"]), json!({"version": 1, "runs": []}));
    let (code, _, error) = place.saturn(&["runs", "elsewhere"]);
    assert_eq!(code, 2);
    assert!(error.contains("failed to read `elsewhere`"), "{error}");
    let (code, _, error) = place.saturn(&["status"]);
    assert_eq!(
        (code, error.as_str()),
        (2, "error: there is no run in `saturn_runs`; give the path of a run's directory\n")
    );

    let broken = place.run_dir("broken");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("journal.db"), "no journal ".repeat(99)).unwrap();
    let (code, out, _) = place.saturn(&["runs"]);
    assert!(code == 0 && out.starts_with("broken  damaged  "), "{out}");
    assert_eq!(place.json(&["runs", "--json"])["runs"][0]["state"], "damaged");
    for verb in ["status", "explain"] {
        assert_eq!(place.saturn(&[verb, "broken"]).0, 5);
    }
    assert_eq!(place.saturn(&["logs", "broken", "a"]).0, 5);
    let (code, _, error) = place.saturn(&["stop", "nowhere"]);
    assert_eq!(code, 2);
    assert!(error.contains("the runs in `saturn_runs` are `broken`"), "{error}");
}
