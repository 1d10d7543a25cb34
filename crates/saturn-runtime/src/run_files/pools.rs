//! The pool: a user's open run, which takes the tasks of any program. Here it is only found; the
//! Python package starts it (`saturn/runs/serving.py`).

use std::path::PathBuf;

use saturn_store::home;

/// The directory of this user's newest pool; `None` if there is none.
pub fn newest_pool() -> Option<PathBuf> {
    let pools = std::fs::read_dir(home()?.join("pools")).ok()?;
    let paths = pools.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    // A pool is named by the time at which it began, so names are in the order of time.
    paths.filter(|path| path.join("journal.db").is_file()).max()
}
