//! Cold start: each rank is an interpreter of its own. The fallback where no warm parent can serve.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use crate::driver::Input;
use crate::protocol::ExitedRank;
use crate::request::LaunchSettings;
use crate::run_dir::RunDir;
use crate::warm::python_command;

/// Starts one rank and returns its process id; its end is sent to `inputs`.
pub(crate) fn launch(
    run: &RunDir,
    settings: &LaunchSettings,
    (key, spec, rank): (String, &Path, u32),
    env: &BTreeMap<String, String>,
    log: &Path,
    inputs: Sender<Input>,
) -> std::io::Result<i32> {
    let log = File::create(log)?;
    let mut child = python_command(settings)
        .args(["-m", "saturn.worker.rank"])
        .arg(spec)
        .arg(rank.to_string())
        .arg("--workers-lock")
        .arg(run.workers_lock())
        .envs(env)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let pid = i32::try_from(child.id()).map_err(std::io::Error::other)?;
    std::thread::spawn(move || {
        let code = child.wait().map_or(1, exit_code);
        let _ = inputs.send(Input::Exited(ExitedRank { key, code }));
    });
    Ok(pid)
}

/// Exit code, or minus the signal's number.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(1))
}
