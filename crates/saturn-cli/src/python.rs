//! Scripts and sweeps become tasks in Python, by the package `saturn`.
//!
//! The interpreter is the user's: the interpreter whose environment has the package beside this
//! program.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use saturn_runtime::Interpreter;
use serde_json::Value;

use crate::exit::{Exit, fail};

/// What Python runs: `python -m saturn.verbs`, but a Python without the package, or without a package
/// that it needs, says so in a sentence. 5 is [`Exit::Machine`].
const START: &str = "\
import runpy, sys
try:
    import saturn
except ModuleNotFoundError as error:
    told = str(error)
    if error.name == 'saturn':
        told = (f'{sys.executable} does not have the package `saturn`, which this command needs; '
                f'in a checkout of Saturn: {sys.executable} -m pip install .')
    sys.stderr.write(f'error: {told}\\n')
    sys.exit(5)
runpy.run_module('saturn.verbs', run_name='__main__', alter_sys=True)
";

/// Replaces this process by Python, which does the verb's work. Returns only if there is no Python.
pub(crate) fn become_verb(verb: &str, arguments: &Value) -> Exit {
    let error = command(verb, arguments).exec();
    fail(Exit::Machine, format!("failed to start `{}`: {error}", interpreter().display()))
}

/// Replaces this process by the Python of a run, which does the verb's work. Returns only if that
/// Python is gone.
pub(crate) fn become_verb_in(of_run: &Interpreter, verb: &str, arguments: &Value) -> Exit {
    let Interpreter { python, python_path } = of_run;
    let mut command = Command::new(python);
    command.env("PYTHONPATH", python_path.join(":")).env("PYTHONSAFEPATH", "1");
    let error = command.args(["-c", START, verb, &arguments.to_string()]).exec();
    fail(Exit::Machine, format!("failed to start `{python}`: {error}"))
}

/// Python's output for a verb. If it fails, it has printed the reason, and its exit code is
/// returned.
pub(crate) fn output_of(verb: &str, arguments: &Value) -> Result<String, Exit> {
    let output = command(verb, arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| {
        fail(Exit::Machine, format!("failed to start `{}`: {error}", interpreter().display()))
    })?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(1) => Err(Exit::TaskFailed),
        Some(2) => Err(Exit::BadInput),
        Some(130) => Err(Exit::Interrupted),
        _ => Err(Exit::Machine),
    }
}

fn command(verb: &str, arguments: &Value) -> Command {
    let mut command = Command::new(interpreter());
    command.args(["-c", START, verb, &arguments.to_string()]);
    command
}

fn interpreter() -> PathBuf {
    of_user().unwrap_or_else(|| PathBuf::from("python3"))
}

/// The interpreter of the environment in which this program is installed, else of the active
/// environment, else the first `python3` on the path. `None` if there is none.
pub(crate) fn of_user() -> Option<PathBuf> {
    // Links to the program are followed: pipx and uv put them elsewhere.
    let beside = std::env::current_exe().ok().and_then(|program| of_directory(program.parent()?));
    let active = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    beside
        .or_else(|| of_directory(&active?.join("bin")))
        .or_else(|| on_path(&std::env::var_os("PATH")?))
}

fn on_path(path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).find_map(|directory| of_directory(&directory))
}

fn of_directory(directory: &Path) -> Option<PathBuf> {
    let python = ["python3", "python"].map(|name| directory.join(name));
    python.into_iter().find(|path| {
        let permissions = path.metadata().map(|file| file.permissions().mode());
        path.is_file() && permissions.is_ok_and(|mode| mode & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_python_is_a_program_of_that_name() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, there) = (dir.path().join("empty"), dir.path().join("bin"));
        fs::create_dir_all(&empty).unwrap();
        fs::create_dir_all(&there).unwrap();
        fs::write(there.join("python3"), "").unwrap();
        fs::write(there.join("python"), "").unwrap();
        assert_eq!(of_directory(&there), None);
        let program = there.join("python");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of_directory(&there), Some(program.clone()));
        let path = std::env::join_paths([&empty, &there]).unwrap();
        assert_eq!(on_path(&path), Some(program));
        assert_eq!(on_path(OsStr::new("")), None);
    }
}
