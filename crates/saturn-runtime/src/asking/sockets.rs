//! Unix sockets in a directory: in a run's, which only the run's user can open, or in the door of a
//! shared pool.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::system::error::RuntimeError;

/// The path of a socket, valid while `directory`, the open run directory, stays open. It goes through
/// `/proc`, since the path of a socket may have at most 107 bytes, and a run's path may be longer.
pub(crate) fn socket_in(directory: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Who can open a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenTo {
    /// The person who listens.
    Own,
    /// Everybody on the machine: whoever listens asks the kernel who has connected.
    All,
}

/// Listens on a socket in the directory `within`, open as `directory`. Replaces the socket of a
/// process that was killed: nobody else may listen there now.
pub(crate) fn listen_in(
    directory: &File,
    name: &str,
    within: &Path,
    open_to: OpenTo,
) -> Result<UnixListener, RuntimeError> {
    let (path, short) = (within.join(name), socket_in(directory, name));
    match std::fs::remove_file(&short) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(RuntimeError::file("replace", path)(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&short).map_err(RuntimeError::file("listen on", &path))?;
    let mode = if open_to == OpenTo::Own { 0o600 } else { 0o666 };
    std::fs::set_permissions(&short, PermissionsExt::from_mode(mode))
        .map_err(RuntimeError::file("protect", &path))?;
    Ok(listener)
}
