//! Removes the sockets of drivers and agents that were killed.
//!
//! A process that is killed leaves the directory of its socket behind (`ranks`). It is removed by the
//! next driver or agent of the same user: if the directory is as that user's processes make it, holds
//! nothing but the socket, and nobody listens there any more. A process that just begins to listen
//! is not heard for a moment, so young directories stay.

use std::fs::{self, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::geteuid;

/// The beginning of the directories' names. Six letters and digits follow.
pub(super) const PREFIX: &str = "saturn-";
const NUM_RANDOM: usize = 6;
/// The socket in a directory.
pub(super) const SOCKET: &str = "ranks";
/// No process takes longer from its directory to the first that it hears.
const YOUNG: Duration = Duration::from_mins(5);

/// Removes what this user's killed processes have left in a directory such as `/tmp`.
pub(super) fn remove(from: &Path) {
    remove_older(from, YOUNG);
}

fn remove_older(from: &Path, age: Duration) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_str().is_some_and(is_name);
        if is_named && is_left(&entry.path(), age) {
            // Another process may be doing the same. A directory that is not empty stays.
            let _ = fs::remove_file(entry.path().join(SOCKET));
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn is_name(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|random| {
        random.len() == NUM_RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Whether a directory was left behind. No link is followed: anybody can make a link in `/tmp`, and
/// in a directory that only this user may open nobody else can.
fn is_left(directory: &Path, age: Duration) -> bool {
    let is_own =
        |path: &Path| path.symlink_metadata().ok().filter(|one| one.uid() == geteuid().as_raw());
    let is_private = |one: &Metadata| one.is_dir() && one.mode() & 0o777 == 0o700;
    // A clock that was set back makes everything young.
    let is_old = |one: &Metadata| {
        one.modified().is_ok_and(|made| made.elapsed().is_ok_and(|passed| passed >= age))
    };
    let Some(found) = is_own(directory) else { return false };
    if !is_private(&found) || !is_old(&found) {
        return false;
    }
    let path = directory.join(SOCKET);
    let is_alone = fs::read_dir(directory).is_ok_and(|entries| {
        let mut names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        matches!(names.next(), Some(Ok(name)) if name == SOCKET) && names.next().is_none()
    });
    is_alone && is_own(&path).is_some_and(|one| one.file_type().is_socket()) && is_deaf(&path)
}

/// Whether nobody listens on a socket. A process that is slow to accept listens.
fn is_deaf(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let asked = socket(AddressFamily::Unix, SockType::Stream, flags, None);
    let (Ok(asked), Ok(address)) = (asked, UnixAddr::new(path)) else { return false };
    connect(asked.as_raw_fd(), &address) == Err(Errno::ECONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    use tempfile::TempDir;

    use super::*;

    /// A directory with a socket, and who listens there.
    fn made(root: &Path, name: &str) -> UnixListener {
        let directory = root.join(name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        UnixListener::bind(directory.join(SOCKET)).unwrap()
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_nothing_else() {
        let root = TempDir::new().unwrap();
        let at = |name: &str| root.path().join(name);
        let left = |name: &str| drop(made(root.path(), name));
        left("saturn-gone01");
        let _lives = made(root.path(), "saturn-lives1");
        // Its backlog is full, and it accepts nobody: it must neither be waited for nor removed.
        let _stands = made(root.path(), "saturn-stands");
        let mut waiting = Vec::new();
        let flags = SockFlag::SOCK_NONBLOCK;
        loop {
            let client = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
            let to = UnixAddr::new(&at("saturn-stands").join(SOCKET)).unwrap();
            if connect(client.as_raw_fd(), &to) == Err(Errno::EAGAIN) {
                break;
            }
            waiting.push(client);
        }
        // Others that are not as a process leaves them.
        left("saturn-gone");
        left("saturn-gone-2");
        left("other-gone01");
        left("saturn-shared");
        fs::set_permissions(at("saturn-shared"), Permissions::from_mode(0o755)).unwrap();
        left("saturn-more01");
        fs::write(at("saturn-more01").join("notes"), "mine").unwrap();
        fs::create_dir(at("saturn-empty1")).unwrap();
        left("elsewhere");
        symlink(at("elsewhere"), at("saturn-link01")).unwrap();
        let linked = at("saturn-link02");
        fs::create_dir(&linked).unwrap();
        fs::set_permissions(&linked, Permissions::from_mode(0o700)).unwrap();
        symlink(at("elsewhere").join(SOCKET), linked.join(SOCKET)).unwrap();
        let names = || {
            let names = fs::read_dir(root.path()).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        remove_older(root.path(), YOUNG);
        assert_eq!(names(), before, "all of them are young");
        remove_older(root.path(), Duration::ZERO);
        let mut kept = before;
        kept.retain(|name| name != "saturn-gone01");
        assert_eq!(names(), kept);
        assert!(UnixStream::connect(at("saturn-lives1").join(SOCKET)).is_ok());
        assert!(at("elsewhere").join(SOCKET).exists(), "no link was followed");
    }
}
