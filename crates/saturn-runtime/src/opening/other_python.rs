//! Another interpreter for the workers of a run that is to be resumed.
//!
//! The environment in which a run began may have moved or may have been built again, with another
//! Python. The run's own modules, beside that environment, are where they were.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use saturn_store::{Disk, io_words};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::launching::settings::LaunchSettings;
use crate::outliving::starting;
use crate::probing::interpreter::{Said, run_code};
use crate::run_files::contents::settings_of;
use crate::run_files::journal::Journal;
use crate::run_files::journal_location;
use crate::run_files::run_dir::{RunDir, journal_of};
use crate::system::error::RuntimeError;

/// How long an interpreter may take to import Saturn: on a cold disk, many seconds.
const PATIENCE: Duration = Duration::from_mins(1);
/// What an interpreter is asked.
const QUESTION: &str = "import json, sys, saturn\n\
    version = '.'.join(map(str, sys.version_info[:2]))\n\
    print(json.dumps([saturn.__version__, sys.executable, sys.path, version, sys.prefix]))";

/// What an interpreter says of itself: its Saturn's version, its program, its `sys.path`, its own
/// version, such as 3.11, and the directory of its environment.
#[derive(Deserialize)]
struct Itself(String, String, Vec<String>, String, String);

/// The file of a run by which programs that submit tasks know the run's Python
/// (`saturn.tasks.surroundings`).
const SURROUNDINGS: &str = "started_from.json";

/// Has the workers of a run be run by another interpreter, from its next resume on. The program and
/// where it finds modules are noted in the journal. No process may drive the run.
///
/// # Errors
///
/// [`RuntimeError::Refused`] if `python` is no program, or has no Saturn of this version, or if
/// ranks of the run train on without a driver. Nothing has changed then.
pub fn change_python(path: &Path, python: &Path) -> Result<(), RuntimeError> {
    // Checks for a journal first: claiming would make files in a directory that is not a run.
    if !journal_of(path).is_file() {
        let reason = journal_location::missing(path);
        return Err(RuntimeError::NoRun { path: path.to_owned(), reason });
    }
    let run = RunDir::claim_beside_workers(path)?;
    if starting::find(run.path())?.is_some() {
        let reason = "its tasks train on, under the Python that it has: stop it first with \
                      `saturn stop`, then resume it with another Python";
        return Err(RuntimeError::Refused { reason: reason.to_owned() });
    }
    let settings = settings_of(&run.journal())?;
    let own = own_modules(&settings);
    let Itself(_, program, python_path, version, environment) = examine(python, &own)?;
    let changed = LaunchSettings { python: program, python_path, ..settings };
    Journal::replace_settings(&run.journal(), &changed, Disk::default())?;
    // From now on tasks are submitted from the new environment, and not from the old.
    let path = run.path().join(SURROUNDINGS);
    let known = std::fs::read(&path).ok();
    let known = known.and_then(|text| serde_json::from_slice::<Map<String, Value>>(&text).ok());
    let Some(mut surroundings) = known else { return Ok(()) };
    surroundings.insert("python".to_owned(), version.into());
    surroundings.insert("environment".to_owned(), environment.into());
    surroundings.insert("python_path".to_owned(), changed.python_path.into());
    let text = Value::Object(surroundings).to_string();
    Ok(Disk::default().replace_private(&path, text.as_bytes())?)
}

/// Fails if the interpreter of a run is no program any more. The journal names it by its path.
pub(crate) fn check_python(run: &Path, python: &str) -> Result<(), RuntimeError> {
    if !python.contains('/') || Path::new(python).is_file() {
        return Ok(());
    }
    Err(RuntimeError::PythonGone { path: run.to_owned(), python: python.to_owned() })
}

/// Fails if the directory that a run was started from is gone: none of its processes could start.
pub(crate) fn check_cwd(cwd: &Path) -> Result<(), RuntimeError> {
    if cwd.is_dir() { Ok(()) } else { Err(RuntimeError::CwdGone { cwd: cwd.to_owned() }) }
}

/// Where the run finds its own modules: its `sys.path` without what belongs to an environment.
fn own_modules(settings: &LaunchSettings) -> Vec<String> {
    let of_environment = |path: &Path| {
        path.components().any(|part| match part {
            Component::Normal(name) => {
                let name = name.to_string_lossy();
                // `lib/python3.12`, `lib/python312.zip`, and Debian's `lib/python3/dist-packages`.
                name == "site-packages" || name == "dist-packages" || is_library(&name)
            }
            _ => false,
        })
    };
    let paths = settings.python_path.iter().filter(|path| !path.is_empty());
    paths.filter(|path| !of_environment(Path::new(path))).cloned().collect()
}

/// Whether a file of this name holds Python's own modules.
fn is_library(name: &str) -> bool {
    let version = name.strip_suffix(".zip").unwrap_or(name).strip_prefix("python");
    version.is_some_and(|version| {
        version.starts_with('3') && version.bytes().all(|one| one.is_ascii_digit() || one == b'.')
    })
}

/// Asks an interpreter for its Saturn.
fn examine(python: &Path, own: &[String]) -> Result<Itself, RuntimeError> {
    let shown = python.display();
    let refused = |reason: String| RuntimeError::Refused { reason };
    // A name alone is looked up on the path, as a shell does; a relative path is of this directory.
    let program = match python.components().count() {
        1 => python.to_owned(),
        _ => std::path::absolute(python).unwrap_or_else(|_| PathBuf::from(python)),
    };
    let said = run_code(&program, QUESTION, own, PATIENCE).map_err(|error| {
        let why = io_words(&error);
        refused(format!("`{shown}` can't be started as a Python: {why}; name its program, such as .venv/bin/python"))
    })?;
    let Said { status, output, errors } = said;
    let Some(status) = status else {
        let waited_s = PATIENCE.as_secs();
        return Err(refused(format!("`{shown}` did not answer within {waited_s} s")));
    };
    let last = output.lines().last().unwrap_or_default();
    let Ok(itself) = serde_json::from_str::<Itself>(last) else {
        let complaint = errors.lines().rev().find(|line| !line.trim().is_empty());
        let complaint = complaint.map_or_else(|| status.to_string(), |line| line.trim().to_owned());
        return Err(refused(format!(
            "`{shown}` can't import saturn ({complaint}); name a Python in which Saturn {} is \
             installed",
            env!("CARGO_PKG_VERSION")
        )));
    };
    let (there, here) = (&itself.0, env!("CARGO_PKG_VERSION"));
    if there != here {
        return Err(refused(format!(
            "`{shown}` has Saturn {there}, and this program is Saturn {here}; name a Python in \
             which Saturn {here} is installed"
        )));
    }
    Ok(itself)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environments_folders_are_told_from_a_runs_own() {
        let libraries = ["python3.12", "python312.zip", "python3", "python3.9"];
        assert!(libraries.into_iter().all(is_library));
        let others = ["python", "python-tools", "pythonista", "python3-stuff", "my.zip"];
        assert!(!others.into_iter().any(is_library));
    }
}
