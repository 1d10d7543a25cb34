//! The pool: a user's open run, which takes the tasks of any program. Here it is only found; the
//! Python package starts it (`saturn/runs/serving.py`).

use std::path::{Path, PathBuf};

use saturn_store::home;

/// The directory of this user's newest pool; `None` if there is none.
pub fn newest_pool() -> Option<PathBuf> {
    let pools = std::fs::read_dir(home()?.join("pools")).ok()?;
    let paths = pools.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    // A pool is named by the time at which it began, so names are in the order of time.
    paths.filter(|path| path.join("journal.db").is_file()).max()
}

/// The directory of the pool of another person that this person has joined; `None` if there is none.
/// It has no journal. The Python package makes it (`saturn/runs/joined.py`).
pub fn joined_pool() -> Option<PathBuf> {
    home()?.join("joined").join("pool").canonicalize().ok()
}

/// Whether this is the directory of another person's pool.
pub fn is_joined(directory: &Path) -> bool {
    joined_pool().is_some_and(|joined| directory.canonicalize().is_ok_and(|path| path == joined))
}
