//! Runs for tests. Each has its own directory, `fake_python.py` for workers, and its own device
//! locks. So tests may run beside each other and beside real runs.

#![expect(unreachable_pub, reason = "shared by the modules of this program")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use saturn_runtime::{DeviceMemory, Outcome, ResumeOptions, RunRequest, RuntimeError, Watcher};
use saturn_store::Disk;
use saturn_view::Console;
use tempfile::TempDir;

/// The behaviour of a task without faults.
pub const GOOD: &str = "{}";

pub struct Run {
    pub dir: TempDir,
    pub tasks: Vec<(String, String)>,
    pub devices: u32,
    pub steps: u64,
    pub device_memory_bytes: Option<u64>,
    /// Further fields of the request.
    pub more: serde_json::Value,
    pub disk: Disk,
}

impl Run {
    /// A run of tasks; each string gives the behaviour of a task's ranks (`behaviour.json`).
    pub fn new(devices: u32, behaviours: &[&str]) -> Self {
        let tasks = behaviours.iter().enumerate();
        let tasks = tasks.map(|(index, how)| (format!("t{index}"), (*how).to_owned())).collect();
        Self {
            dir: TempDir::new().unwrap(),
            tasks,
            devices,
            steps: 60,
            device_memory_bytes: None,
            more: serde_json::json!({}),
            disk: Disk::default(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn request(&self) -> String {
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
        let mut request = serde_json::json!({
            "version": 1, "run_dir": self.path(), "mode": "orchestrate", "python": python,
            "python_path": [], "cwd": self.dir.path(), "preload": [], "devices": self.devices,
            "interval_s": 1000.0, "checkpoint_every_s": 1.0, "solver_time_limit_s": 0.2, "seed": 0,
            "warmup_steps": 1, "timed_steps": 3, "tasks": tasks,
            "device_memory_bytes": self.device_memory_bytes,
            "techniques": [
                {"name": "ddp", "level": "managed", "import": "m:D", "pickle": null}],
            "locks_dir": self.dir.path().join("locks"),
        });
        if let (Some(request), Some(more)) = (request.as_object_mut(), self.more.as_object()) {
            request.extend(more.clone());
        }
        request.to_string()
    }

    pub fn start(&self) -> Result<Outcome, RuntimeError> {
        self.start_interrupted(&mut || false)
    }

    pub fn start_interrupted(
        &self,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, RuntimeError> {
        let mut request = RunRequest::from_json(&self.request())?;
        request.disk = self.disk.clone();
        let outcome = saturn_runtime::start(request, Watcher::new(quiet(), is_interrupted));
        self.assert_no_process_lives();
        outcome
    }

    pub fn resume(&self) -> Result<Outcome, RuntimeError> {
        self.resume_with(DeviceMemory::AsBefore)
    }

    pub fn resume_with(&self, device_memory: DeviceMemory) -> Result<Outcome, RuntimeError> {
        self.resume_interrupted(device_memory, &mut || false)
    }

    pub fn resume_interrupted(
        &self,
        device_memory: DeviceMemory,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, RuntimeError> {
        let options =
            ResumeOptions { device_memory, disk: self.disk.clone(), ..ResumeOptions::default() };
        let watcher = Watcher::new(quiet(), is_interrupted);
        let outcome = saturn_runtime::resume(&self.path(), options, watcher);
        self.assert_no_process_lives();
        outcome
    }

    /// Waits until no process of this run is left, as killed processes take a moment to end.
    ///
    /// Every worker of this run has the run's directory in its command line, its working directory
    /// or its initial environment.
    #[expect(clippy::disallowed_methods, reason = "a test of real processes waits for them")]
    pub fn assert_no_process_lives(&self) {
        let mark = self.dir.path().to_str().unwrap().to_owned();
        let lives = || -> Vec<_> {
            let lives = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| {
                let is_us = process.file_name().to_str() == Some(&std::process::id().to_string());
                let cwd = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
                let state =
                    std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
                !is_us && cwd.to_string_lossy().starts_with(&mark) && !state.contains(") Z")
            });
            lives.map(|process| process.path()).collect()
        };
        let deadline = Instant::now() + Duration::from_mins(1);
        while !lives().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(lives().is_empty(), "processes outlive the run: {:?}", lives());
    }

    pub fn saved_step(&self, task: &str) -> u64 {
        let saved = self.path().join("tasks").join(task).join("step");
        std::fs::read_to_string(saved).map_or(0, |text| text.parse().unwrap())
    }

    /// How many gangs a task had for training.
    pub fn attempts(&self, task: usize) -> u64 {
        self.report()["tasks"][task]["attempts"].as_u64().unwrap()
    }

    /// The orders that attempts of the first task received, oldest first.
    pub fn told(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path().join("tasks/t0/told.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The parents of ranks that were started.
    pub fn parents(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("parents")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Changes the behaviour of a task's ranks from now on.
    pub fn behave(&self, task: &str, how: &str) {
        let behaviour = self.path().join("tasks").join(task).join("behaviour.json");
        std::fs::write(behaviour, how).unwrap();
    }

    /// Gives parents of ranks a behaviour (see `fake_python.py`).
    pub fn tell_parents(&self, what: &str, how: &str) {
        std::fs::write(self.dir.path().join(what), how).unwrap();
    }

    pub fn report(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.path().join("report.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

pub fn quiet() -> Console {
    Console::new(false, Some(Box::new(|_| {})), |_| None)
}
