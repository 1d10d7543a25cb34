//! The pool: a user's open run, which takes the tasks of any program. Here it is only found; the
//! Python package starts it (`saturn/runs/serving.py`).

use std::path::{Path, PathBuf};

use saturn_store::home;

use crate::asking::control::SOCKET;

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

/// Whether this is this person's directory of another person's pool. There, `control.sock` leads to the
/// pool's door; in the directory of a run it is a socket.
pub fn is_joined(directory: &Path) -> bool {
    directory.join(SOCKET).is_symlink()
}

/// The directory of a task that this person has submitted to another person's pool; `None` if there is
/// none. It is for the time in which no process drives the pool, since its journal is not this
/// person's. The Python package names the directories (`saturn/tasks/directories.py`).
pub fn own_task(joined: &Path, task: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(joined.join("tasks")).ok()?;
    let is_it = |directory: &PathBuf| match std::fs::read_to_string(directory.join("name.txt")) {
        Ok(name) => name == task,
        Err(_) => directory.file_name().is_some_and(|name| name == task),
    };
    let found = entries.flatten().map(|entry| entry.path()).filter(is_it);
    // A submission that the pool refused may have left a directory in which nothing has trained.
    found.max_by_key(|directory| directory.join("attempts").is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn a_task_is_found_by_the_name_of_its_directory_or_by_the_name_in_its_file() {
        let joined = tempfile::tempdir().unwrap();
        let tasks = joined.path().join("tasks");
        for (directory, name) in [("plain", None), ("task-1", Some("a/b")), ("task-2", Some("a/b"))]
        {
            create_dir_all(tasks.join(directory)).unwrap();
            name.map_or(Ok(()), |name| write(tasks.join(directory).join("name.txt"), name))
                .unwrap();
        }
        create_dir_all(tasks.join("task-1/attempts")).unwrap();
        assert_eq!(own_task(joined.path(), "plain"), Some(tasks.join("plain")));
        assert_eq!(own_task(joined.path(), "a/b"), Some(tasks.join("task-1")));
        assert_eq!(own_task(joined.path(), "task-1"), None, "that is no task's name");
        assert_eq!(own_task(&joined.path().join("nowhere"), "plain"), None);
    }
}
