//! Parents of ranks: Python processes that start ranks, reap them, and end what ranks leave behind.
//!
//! The *warm* parent has torch imported and forks ranks in milliseconds. It never computes and
//! never touches a GPU, so forking it is safe. The *cold* parent imports nothing and starts an
//! interpreter for each rank, which takes seconds. It serves when no warm parent can.
//!
//! Both understand the same lines, and adopt their ranks' orphans as child subreapers. Both end
//! when their standard input closes, and every process below them ends too. The driver can't be
//! such a parent: it is the user's own Python process and may have children that are not Saturn's.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::devices::outside::RUN_VARIABLE;
use crate::launching::input::{Input, Sending};
use crate::launching::protocol::{ExitedRank, FromParent, RankLaunch, ToParent, parse_rank_key};
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::system::clock::{deadline, is_past, pause};
use crate::system::error::RuntimeError;

/// The variable that orders sets of texts alike in every interpreter that has it.
const HASH_SEED: &str = "PYTHONHASHSEED";
/// How long a parent may take to end when its input closes.
const GRACE: Duration = Duration::from_secs(3);
/// How long a parent may take to end when it is killed, before it is left to the kernel.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// How a parent starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It forks itself for each rank.
    Warm,
    /// It starts an interpreter for each rank.
    Cold,
}

/// A running parent.
#[derive(Debug)]
pub(crate) struct Parent {
    /// Identifies the parent among all parents of this driver.
    pub(crate) id: u64,
    child: Child,
    /// Lines for the parent. A thread writes them, so that a parent that hangs delays nobody.
    /// Closing this ends the parent.
    lines: Option<Sender<Vec<u8>>>,
}

impl Parent {
    /// Starts a parent, which reports when it is ready.
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
        // Keeps the log of an earlier parent, which may say why that parent ended.
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

    /// Asks the parent to start one rank. If the parent is gone, [`Input::ParentGone`] says so.
    pub(crate) fn launch(&mut self, launch: &RankLaunch) -> Result<(), serde_json::Error> {
        let mut line = serde_json::to_vec(&ToParent::Launch(launch))?;
        line.push(b'\n');
        if let Some(lines) = &self.lines {
            let _ = lines.send(line);
        }
        Ok(())
    }

    /// Kills the parent, and so all of its ranks.
    pub(crate) fn kill(&mut self) {
        // The parent may have ended already.
        let _ = self.child.kill();
    }

    /// Whether the parent ends within `time`.
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
        // The parent kills its ranks first. A parent that hangs in an import does not notice that
        // its input closed, so it is killed. If the kernel can't end it, it is left behind.
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
        // A module that the parent imported may print lines of its own.
        let Ok(line) = serde_json::from_str(&line) else { continue };
        let input = match line {
            FromParent::Ready { cannot_fork, .. } => Some(Input::Ready { parent, cannot_fork }),
            FromParent::Launched { launched } => {
                parse_rank_key(&launched.key).map(|key| Input::Started { key, pid: launched.pid })
            }
            FromParent::Exited { exited } => {
                let ExitedRank { key, code, why } = exited;
                parse_rank_key(&key).map(|key| Input::Exited { key, code, why })
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

/// The user's interpreter, with the settings that every worker process needs. Workers form process
/// groups of their own, so that Ctrl-C in a terminal reaches only the driver.
pub(crate) fn python_command(settings: &LaunchSettings) -> Command {
    let mut command = Command::new(&settings.python);
    command.current_dir(&settings.cwd).process_group(0);
    let python_path: Vec<&str> =
        settings.python_path.iter().map(String::as_str).filter(|path| !path.is_empty()).collect();
    command.env("PYTHONPATH", python_path.join(":"));
    command.env(RUN_VARIABLE, &settings.run_id);
    set_up_python(&mut command);
    command
}

/// Sets the variables under which an interpreter can import torch and then be forked.
pub(crate) fn set_up_python(command: &mut Command) {
    for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(variable, "1");
    }
    // pandas and datasets import pyarrow, whose allocator starts a thread. A process with threads
    // can't be forked safely.
    command.env("JE_ARROW_MALLOC_CONF", "background_thread:false");
    // A script does not have the working directory on its path; `python -m` would put it first.
    command.env("PYTHONSAFEPATH", "1");
    // Counting GPUs must not initialise CUDA in a process that forks.
    command.env("PYTORCH_NVML_BASED_CUDA_CHECK", "1");
    command.env("PYTHONUNBUFFERED", "1");
    // Without it each interpreter orders a set of texts differently. A task may number its classes in
    // that order, and the numbers would change when its run resumes, or between nodes.
    if std::env::var_os(HASH_SEED).is_none() {
        command.env(HASH_SEED, "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_orders_sets_of_texts_alike() {
        let mut command = Command::new("python");
        set_up_python(&mut command);
        let given = command.get_envs().find(|(name, _)| *name == HASH_SEED);
        let given = given.and_then(|(_, value)| value.map(ToOwned::to_owned));
        let in_workers = given.or_else(|| std::env::var_os(HASH_SEED));
        assert!(in_workers.is_some(), "unset, each interpreter draws its own");
    }
}
