//! The files of tuners: a run's stopper or study, and the sweeps of a pool that have a tuner of
//! their own.
//!
//! The Python package writes and reads these files (`saturn/tuning`). The runtime only checks
//! whether they exist, and marks a sweep as cancelled.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use saturn_store::FileError;

use crate::asking::control;
use crate::run_files::pools::is_joined;

/// Whether a stopper or a study steers the run, or may steer sweeps of it.
pub fn has_tuner(run_dir: &Path) -> bool {
    run_dir.join("tuner.pkl").is_file() || run_dir.join("steered").is_dir()
}

/// The directory of the pool's sweep of this name, if it has a stopper or a study of its own that
/// has not ended. A task of the same name goes first, except in the directory of another person's pool:
/// there the task may be of an earlier pool.
fn sweep(run_dir: &Path, name: &str) -> Option<PathBuf> {
    // A name is no path.
    let is_name = Path::new(name).file_name() == Some(OsStr::new(name));
    let directory = run_dir.join("steered").join(name);
    let is_task = run_dir.join("tasks").join(name).is_dir() && !is_joined(run_dir);
    let is_open = directory.join("about.json").is_file() && !directory.join("over").exists();
    (is_name && !is_task && is_open).then_some(directory)
}

/// Has the process of a pool's sweep cancel its tasks. False if the pool has no open sweep of this
/// name, or if no process drives the pool: a sweep's process ends with its pool.
pub fn cancel_sweep(run_dir: &Path, name: &str) -> Result<bool, FileError> {
    Ok(control::driver_of(run_dir).is_some() && ask_to_cancel(run_dir, name)?)
}

/// Leaves the sign for which the process of an open sweep looks; false if there is no such sweep.
///
/// Only that process knows which tasks are its own, and a study would suggest more.
fn ask_to_cancel(run_dir: &Path, name: &str) -> Result<bool, FileError> {
    let Some(directory) = sweep(run_dir, name) else { return Ok(false) };
    let sign = directory.join("cancel");
    File::create(&sign).map_err(FileError::of("write", sign))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_cancelled_by_its_name_alone() {
        let run = tempfile::tempdir().unwrap();
        let of_sweep = run.path().join("steered/mine");
        assert!(!has_tuner(run.path()));
        std::fs::create_dir_all(&of_sweep).unwrap();
        assert!(has_tuner(run.path()));
        assert!(!ask_to_cancel(run.path(), "mine").unwrap(), "it was never submitted");
        File::create(of_sweep.join("about.json")).unwrap();
        for other in ["", ".", "..", "other", "../steered/mine", "mine/"] {
            assert!(!ask_to_cancel(run.path(), other).unwrap(), "{other:?}");
        }
        assert!(!of_sweep.join("cancel").exists());
        let task = run.path().join("tasks/mine");
        std::fs::create_dir_all(&task).unwrap();
        assert!(!ask_to_cancel(run.path(), "mine").unwrap(), "a task goes first");
        let socket = run.path().join("control.sock");
        std::os::unix::fs::symlink("door/control.sock", &socket).unwrap();
        assert!(ask_to_cancel(run.path(), "mine").unwrap(), "the task may be of an earlier pool");
        std::fs::remove_file(of_sweep.join("cancel")).unwrap();
        std::fs::remove_file(&socket).unwrap();
        std::fs::remove_dir(&task).unwrap();
        assert!(ask_to_cancel(run.path(), "mine").unwrap());
        assert!(of_sweep.join("cancel").exists());
        File::create(of_sweep.join("over")).unwrap();
        assert!(!ask_to_cancel(run.path(), "mine").unwrap(), "it has ended");
    }
}
