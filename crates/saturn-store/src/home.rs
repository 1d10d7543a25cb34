//! The Saturn home: the directory for what outlives the runs of a user.

use std::path::PathBuf;

/// The directory for what outlives runs of this user: `SATURN_HOME`, else
/// `$XDG_DATA_HOME/saturn`, else `~/.local/share/saturn`. `None` if the user has no home directory.
pub fn home() -> Option<PathBuf> {
    let directory =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    directory("SATURN_HOME")
        .or_else(|| directory("XDG_DATA_HOME").map(|data| data.join("saturn")))
        .or_else(|| directory("HOME").map(|home| home.join(".local/share/saturn")))
}
