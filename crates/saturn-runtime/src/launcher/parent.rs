//! Parents of ranks: Python processes that start ranks, reap them, and end what ranks leave behind.
//!
//! The *warm* parent has torch imported and forks ranks in milliseconds. It never computes and never
//! touches a GPU, so forking it is safe. The *cold* parent imports nothing and gives each rank an
//! interpreter of its own, which takes seconds: for when no warm parent can serve.
//!
//! Both speak the same lines, take in their ranks' orphans (as child subreapers), and end with their
//! standard input, and with them every process below. The driver itself can't do that: it is the
//! user's own Python process, and has children that are none of Saturn's.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::Site;
use super::input::{Input, Sending};
use super::protocol::{FromParent, RankLaunch, ToParent, parse_rank_key};
use crate::clock::{deadline, is_past, pause};
use crate::error::RuntimeError;
use crate::request::LaunchSettings;

/// How long it may take to end when its input closes.
const GRACE: Duration = Duration::from_secs(3);
/// How long it may take to end when it is killed, before it is left to the kernel.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// How a parent starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It forks itself.
    Warm,
    /// It starts interpreters.
    Cold,
}

/// A running parent.
#[derive(Debug)]
pub(crate) struct Parent {
    /// Names it: no two of a driver have the same.
    pub(crate) id: u64,
    child: Child,
    /// Lines to write; a thread does it, so that one that hangs delays nobody. Closed at the end.
    lines: Option<Sender<Vec<u8>>>,
}

impl Parent {
    /// Starts one; it says when it is ready.
    pub(crate) fn start(
        kind: Kind,
        id: u64,
        site: &Site,
        settings: &LaunchSettings,
        inputs: Sending,
    ) -> Result<Self, RuntimeError> {
        let (module, log) = match kind {
            Kind::Warm => ("saturn.worker.warm", "warm-parent.log"),
            Kind::Cold => ("saturn.worker.cold", "cold-parent.log"),
        };
        let log_path = site.parent_logs.join(log);
        // An earlier one's words may tell why it ended.
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.map_err(RuntimeError::file("open", &log_path))?;
        let mut command = python_command(settings);
        command.args(["-m", module, "--workers-lock"]).arg(&site.workers_lock);
        if kind == Kind::Warm {
            command.args(["--preload", &settings.preload.join(",")]);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().map_err(
                |source| RuntimeError::Python { python: settings.python.clone(), source },
            )?;
        let (lines, to_write) = channel();
        if let Some(stdin) = child.stdin.take() {
            std::thread::spawn(move || write_lines(stdin, &to_write));
        }
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || read_lines(stdout, id, &inputs));
        }
        Ok(Self { id, child, lines: Some(lines) })
    }

    /// Asks it to start one rank. Where it is gone, that is heard otherwise.
    pub(crate) fn launch(&mut self, launch: &RankLaunch) -> Result<(), serde_json::Error> {
        let mut line = serde_json::to_vec(&ToParent::Launch(launch))?;
        line.push(b'\n');
        if let Some(lines) = &self.lines {
            let _ = lines.send(line);
        }
        Ok(())
    }

    /// Kills it, and so all of its ranks.
    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
    }

    /// Whether it has ended within so long.
    fn ends_within(&mut self, time: Duration) -> bool {
        let until = deadline(time);
        while matches!(self.child.try_wait(), Ok(None)) {
            if is_past(until) {
                return false;
            }
            pause(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        drop(self.lines.take());
        // It kills its ranks first. One that hangs in an import does not see that its input closed;
        // one that the kernel can't end is left behind.
        if !self.ends_within(GRACE) {
            self.kill();
            self.ends_within(AFTER_KILL);
        }
    }
}

fn write_lines(mut stdin: ChildStdin, lines: &Receiver<Vec<u8>>) {
    for line in lines {
        if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

fn read_lines(stdout: ChildStdout, parent: u64, inputs: &Sending) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        // A line that isn't ours: something that a preloaded module printed.
        let Ok(line) = serde_json::from_str(&line) else { continue };
        let input = match line {
            FromParent::Ready { cannot_fork, .. } => Some(Input::Ready { parent, cannot_fork }),
            FromParent::Launched { launched } => {
                parse_rank_key(&launched.key).map(|key| Input::Started { key, pid: launched.pid })
            }
            FromParent::Exited { exited } => {
                parse_rank_key(&exited.key).map(|key| Input::Exited { key, code: exited.code })
            }
        };
        if let Some(input) = input
            && inputs.send(input).is_err()
        {
            return;
        }
    }
    let _ = inputs.send(Input::ParentGone { parent });
}

/// The user's interpreter, set up as every worker process needs it. Workers form process groups of
/// their own, so that Ctrl-C in a terminal reaches the driver alone.
pub(crate) fn python_command(settings: &LaunchSettings) -> Command {
    let mut command = Command::new(&settings.python);
    command.current_dir(&settings.cwd).process_group(0);
    let python_path: Vec<&str> =
        settings.python_path.iter().map(String::as_str).filter(|path| !path.is_empty()).collect();
    command.env("PYTHONPATH", python_path.join(":"));
    set_up_python(&mut command);
    command
}

/// The variables with which an interpreter can import torch and be forked.
pub(crate) fn set_up_python(command: &mut Command) {
    for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(variable, "1");
    }
    // pyarrow's allocator starts a thread when it is imported, as pandas and datasets do, and a process
    // with threads can't be forked.
    command.env("JE_ARROW_MALLOC_CONF", "background_thread:false");
    // `python -m` would put the working directory first, which a script's own path does not.
    command.env("PYTHONSAFEPATH", "1");
    // Counting GPUs must not initialise CUDA in a process that forks.
    command.env("PYTORCH_NVML_BASED_CUDA_CHECK", "1");
    command.env("PYTHONUNBUFFERED", "1");
}
