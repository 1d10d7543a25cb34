//! The warm parent: a Python process that has torch imported and forks ranks in milliseconds.
//!
//! It never computes and never touches a GPU, so forking it is safe. It ends when its standard input
//! closes, and kills every rank that it forked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::{deadline, is_past, pause};
use crate::driver::Input;
use crate::error::RuntimeError;
use crate::protocol::{FromWarm, ToWarm};
use crate::request::LaunchSettings;
use crate::run_dir::RunDir;

/// How long it may take to end when its input closes.
const GRACE: Duration = Duration::from_secs(3);

/// A running warm parent.
#[derive(Debug)]
pub(crate) struct WarmParent {
    child: Child,
    stdin: Option<ChildStdin>,
    reading: Option<JoinHandle<()>>,
}

impl WarmParent {
    /// Starts it; it is ready some seconds later, and launches sent before wait for that.
    pub(crate) fn start(
        run: &RunDir,
        settings: &LaunchSettings,
        inputs: Sender<Input>,
    ) -> Result<Self, RuntimeError> {
        let log_path = run.path().join("warm-parent.log");
        let log = File::create(&log_path).map_err(RuntimeError::file("create", &log_path))?;
        let mut child = python_command(settings)
            .args(["-m", "saturn.worker.warm", "--workers-lock"])
            .arg(run.workers_lock())
            .args(["--preload", &settings.preload.join(",")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|source| RuntimeError::Python { python: settings.python.clone(), source })?;
        let stdin = child.stdin.take();
        let reading = child.stdout.take().map(|stdout| {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // A line that isn't ours: something that a preloaded module printed.
                    let Ok(line) = serde_json::from_str(&line) else { continue };
                    let input = match line {
                        FromWarm::Ready { threads, .. } => Input::WarmReady { threads },
                        FromWarm::Launched { launched } => Input::Forked(launched),
                        FromWarm::Exited { exited } => Input::Exited(exited),
                    };
                    if inputs.send(input).is_err() {
                        return;
                    }
                }
                let _ = inputs.send(Input::WarmGone);
            })
        });
        Ok(Self { child, stdin, reading })
    }

    /// Asks it to fork one rank.
    pub(crate) fn launch(
        &mut self,
        key: String,
        spec: &Path,
        rank: u32,
        env: &BTreeMap<String, String>,
        log: &Path,
    ) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let mut line = serde_json::to_vec(&ToWarm::Launch { key, spec, rank, env, log })?;
        line.push(b'\n');
        stdin.write_all(&line)?;
        stdin.flush()
    }
}

impl Drop for WarmParent {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It kills its ranks first. One that hangs in an import does not see that its input closed.
        let until = deadline(GRACE);
        while matches!(self.child.try_wait(), Ok(None)) {
            if is_past(until) {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            pause(Duration::from_millis(5));
        }
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
    }
}

/// The user's interpreter, set up as every worker process needs it. Workers form process groups of
/// their own, so that Ctrl-C in a terminal reaches the driver alone.
pub(crate) fn python_command(settings: &LaunchSettings) -> Command {
    let mut command = Command::new(&settings.python);
    command.current_dir(&settings.cwd).process_group(0);
    let python_path: Vec<&str> =
        settings.python_path.iter().map(String::as_str).filter(|path| !path.is_empty()).collect();
    command.env("PYTHONPATH", python_path.join(":"));
    for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(variable, "1");
    }
    // `python -m` would put the working directory first, which a script's own path does not.
    command.env("PYTHONSAFEPATH", "1");
    // Counting GPUs must not initialise CUDA in a process that forks.
    command.env("PYTORCH_NVML_BASED_CUDA_CHECK", "1");
    command.env("PYTHONUNBUFFERED", "1");
    command
}
