//! Finding a run: by its directory, by its name in `saturn_runs`, as the pool, or the newest in
//! `saturn_runs`.

use std::cmp::Reverse;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use saturn_store::io_words;
use saturn_view::words::shell_quoted;

use crate::exit::{Exit, fail};

/// The default directory of runs.
pub(crate) const RUNS_DIR: &str = "saturn_runs";
/// What the newest pool is called.
pub(crate) const POOL: &str = "pool";
/// Names that a message lists.
const MAX_LISTED: usize = 8;

/// An existing run.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its directory.
    pub(crate) path: PathBuf,
    /// Its name in a command, as a shell reads it back.
    pub(crate) shown: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The run of that path or name. If there is none, the error has been printed.
pub(crate) fn run(named: &Path) -> Result<Found, Exit> {
    let candidates = places(named);
    let shown = shell_quoted(&named.to_string_lossy());
    if let Some(path) = candidates.iter().find(|path| is_run(path)) {
        return Ok(Found { path: path.clone(), shown });
    }
    for path in &candidates {
        if let Some(reason) = saturn_runtime::elsewhere(path) {
            let message = format!("the run at `{}` is not here: {reason}", path.display());
            return Err(fail(Exit::BadInput, message));
        }
    }
    if named == Path::new(POOL) {
        return pool();
    }
    for path in &candidates {
        if let Err(error) = path.join("journal.db").symlink_metadata()
            && error.kind() == ErrorKind::PermissionDenied
        {
            let message = format!(
                "`{}` can't be looked into: {}; a run is seen and steered by its own user alone",
                path.display(),
                io_words(&error)
            );
            return Err(fail(Exit::BadInput, message));
        }
    }
    let others = listed(&all_in(Path::new(RUNS_DIR)).unwrap_or_default());
    let hint = if others.is_empty() {
        format!("there is no run in `{RUNS_DIR}` either")
    } else {
        format!("the runs in `{RUNS_DIR}` are {others}")
    };
    Err(fail(
        Exit::BadInput,
        format!("no run at `{}`: it has no journal.db; {hint}", named.display()),
    ))
}

/// The run of that path or name, for verbs that need its journal. A pool that this person has joined is
/// refused, since its journal is another person's.
pub(crate) fn with_journal(named: &Path) -> Result<Found, Exit> {
    let found = run(named)?;
    if !saturn_runtime::is_joined(&found.path) {
        return Ok(found);
    }
    let message = format!(
        "{0} is another person's pool, and only that person has its journal; what you can see of it: \
         saturn status {0}, saturn explain {0} TASK, saturn logs {0} TASK",
        found.shown
    );
    Err(fail(Exit::BadInput, message))
}

/// What to do where this person has no pool.
const NO_POOL: &str =
    "there is no pool; to start one: saturn serve; to use another person's: saturn join DOOR";

/// The pool that this person has joined, or else this person's newest. If there is none, the error
/// has been printed.
pub(crate) fn pool() -> Result<Found, Exit> {
    saturn_runtime::joined_pool().or_else(saturn_runtime::newest_pool).map_or_else(
        || Err(fail(Exit::BadInput, NO_POOL)),
        |path| Ok(Found { path, shown: POOL.to_owned() }),
    )
}

/// This person's newest pool, as other verbs find it: by its path where a run is called `pool`, or
/// another person's pool.
pub(crate) fn listed_pool() -> Option<Found> {
    let path = saturn_runtime::newest_pool()?;
    let is_hidden = saturn_runtime::joined_pool().is_some()
        || places(Path::new(POOL)).iter().any(|place| is_run(place));
    let shown = if is_hidden { shell_quoted(&path.to_string_lossy()) } else { POOL.to_owned() };
    Some(Found { path, shown })
}

/// Where a run of that name may be.
pub(crate) fn places(named: &Path) -> [PathBuf; 2] {
    [named.to_owned(), Path::new(RUNS_DIR).join(named)]
}

/// The run of that path or name, or the newest run, which is then named on standard error.
pub(crate) fn run_or_newest(named: Option<&Path>) -> Result<Found, Exit> {
    if let Some(named) = named {
        return run(named);
    }
    let Some(path) = all_in(Path::new(RUNS_DIR)).unwrap_or_default().into_iter().next() else {
        let message =
            format!("there is no run in `{RUNS_DIR}`; give the path of a run's directory");
        return Err(fail(Exit::BadInput, message));
    };
    let shown = shell_quoted(&path.file_name().unwrap_or_default().to_string_lossy());
    eprintln!("the newest run: {shown}");
    Ok(Found { path, shown })
}

/// All runs of a directory, the newest first.
pub(crate) fn all_in(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found: Vec<(Reverse<SystemTime>, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if is_run(&path) {
            found.push((Reverse(begun(&path)), path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// When a run began, as far as the file system tells.
pub(crate) fn begun(run: &Path) -> SystemTime {
    let journal = run.join("journal.db").metadata();
    journal.and_then(|of| of.created().or_else(|_| of.modified())).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Whether there is a run in this directory.
pub(crate) fn is_run(path: &Path) -> bool {
    path.join("journal.db").is_file()
}

fn listed(runs: &[PathBuf]) -> String {
    let names = runs.iter().filter_map(|path| path.file_name());
    let mut names: Vec<String> =
        names.map(|name| format!("`{}`", name.to_string_lossy())).collect();
    if names.len() > MAX_LISTED {
        let rest = names.len() - MAX_LISTED;
        names.truncate(MAX_LISTED);
        names.push(format!("and {rest} more"));
    }
    names.join(", ")
}
