//! `saturn submit`.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::run_failed;
use crate::args::SubmitArgs;
use crate::exit::{Exit, fail};
use crate::find;
use crate::python;

pub(crate) fn run(args: &SubmitArgs) -> Exit {
    let run = match args.to.as_deref().map_or_else(find::pool, find::run) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let of_run = match saturn_runtime::interpreter_of(&run.path) {
        Ok(interpreter) => interpreter.python,
        Err(error) => return run_failed(&error),
    };
    let of_user = python::of_user();
    if let Some(of_user) = of_user.filter(|of_user| place(of_user) != place(Path::new(&of_run))) {
        let message = format!(
            "the run's workers are of {of_run}, and this program's Python is {}: tasks can only be \
             submitted from the environment that trains them",
            of_user.display()
        );
        return fail(Exit::BadInput, message);
    }
    let asked = json!({
        "file": args.file,
        "run_dir": run.path,
        "run": run.shown,
        "name": args.name,
        "priority": args.priority,
        "due": args.due,
        "preview": args.preview,
        "wait": args.wait,
        "json": args.json,
    });
    python::become_verb("submit", &asked)
}

/// The environment of an interpreter. Environments may link to one and the same program, so the
/// directory counts and not what it holds.
fn place(python: &Path) -> Option<PathBuf> {
    let directory = python.parent()?;
    directory.canonicalize().ok().or_else(|| Some(directory.to_owned()))
}
