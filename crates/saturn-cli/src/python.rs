//! Which Python is the user's: the one that has the package beside this program.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The interpreter of the environment that this program is installed in, else of the active
/// environment, else the first `python3` on the path. `None` where there is none at all.
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
