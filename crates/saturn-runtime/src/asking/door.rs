//! The door of a shared pool: a directory in which other people of the machine reach the pool.
//!
//! - `control.sock`: the process that drives the pool takes requests here. Everybody may connect, and
//!   the kernel says who has.
//! - `agents/UID.sock`: the agent of a person, which starts the processes of this person's tasks.
//!   Everybody may make a socket here, as in `/tmp`, and nobody may remove another person's.
//!
//! Invariant: neither side trusts a name in this directory. The driver speaks only to an agent that
//! runs as the person whose agent it should be. An agent obeys only a process of the person whose
//! directory the door is.
//!
//! It holds no tasks and no results: these are each person's own.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Uid, User, geteuid};
use saturn_engine::Owner;

use crate::asking::sockets::socket_in;
use crate::system::error::RuntimeError;

/// Where agents have their sockets.
const AGENTS: &str = "agents";
/// Everybody may pass, its owner alone may write.
const DOOR_MODE: u32 = 0o755;
/// Everybody may make files, and remove their own.
const AGENTS_MODE: u32 = 0o1777;

/// An open door.
#[derive(Debug)]
pub(crate) struct Door {
    path: PathBuf,
    /// Keeps the paths of its sockets valid.
    directory: File,
    /// The directory of agents' sockets.
    agents: File,
    /// The person who drives the pool.
    host: u32,
}

impl Door {
    /// Makes the door of a pool of this person, or opens it again.
    pub(crate) fn make(path: &Path) -> Result<Self, RuntimeError> {
        for (made, mode) in [(path.to_owned(), DOOR_MODE), (path.join(AGENTS), AGENTS_MODE)] {
            match DirBuilder::new().mode(mode).create(&made) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(RuntimeError::file("make", &made)(error));
                }
                Err(_) => {}
                // The process's mask has taken rights from it.
                Ok(()) => std::fs::set_permissions(&made, Permissions::from_mode(mode))
                    .map_err(RuntimeError::file("open to others", &made))?,
            }
        }
        let door = Self::find(path)?;
        if door.host != geteuid().as_raw() {
            return Err(door.refused("it belongs to another person"));
        }
        Ok(door)
    }

    /// The door of somebody's pool.
    pub(crate) fn find(path: &Path) -> Result<Self, RuntimeError> {
        let open = |path: PathBuf| File::open(&path).map_err(RuntimeError::file("open", path));
        let (directory, agents) = (open(path.to_owned())?, open(path.join(AGENTS))?);
        let about = |file: &File| file.metadata().map_err(RuntimeError::file("look at", path));
        let (of_door, of_agents) = (about(&directory)?, about(&agents)?);
        let host = of_door.uid();
        let door = Self { path: path.to_owned(), directory, agents, host };
        // Whoever may write here could put a socket of another pool in place of this one's.
        if of_door.mode() & 0o022 != 0 {
            return Err(door.refused("others than its owner may write in it"));
        }
        let is_shared = of_agents.mode() & 0o002 != 0;
        if of_agents.uid() != host || is_shared && of_agents.mode() & 0o1000 == 0 {
            return Err(door.refused("a person could remove the socket of another person's agent"));
        }
        Ok(door)
    }

    fn refused(&self, why: &str) -> RuntimeError {
        let path = self.path.display();
        RuntimeError::Refused { reason: format!("`{path}` can't be the door of a pool: {why}") }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory, in which the driver listens.
    pub(crate) fn directory(&self) -> &File {
        &self.directory
    }

    /// The open directory of agents' sockets.
    pub(crate) fn agents(&self) -> &File {
        &self.agents
    }

    /// The number of the person who drives the pool.
    pub(crate) fn host(&self) -> u32 {
        self.host
    }

    /// A connection to the agent of a person, if it listens. Only a process of this very person is
    /// spoken to.
    pub(crate) fn agent_of(&self, uid: u32) -> Option<UnixStream> {
        let stream = UnixStream::connect(socket_in(&self.agents, &agent_socket(uid))).ok()?;
        (peer(&stream).ok()? == uid).then_some(stream)
    }
}

/// The name of the socket of a person's agent.
pub(crate) fn agent_socket(uid: u32) -> String {
    format!("{uid}.sock")
}

/// The person whose process is at the other end of a connection.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, PeerCredentials)?.uid())
}

/// The person at the other end of a connection to a process of this person; `None` for this person,
/// and for root, who may do everything in any case.
pub(crate) fn guest(stream: &UnixStream) -> io::Result<Option<Owner>> {
    let uid = peer(stream)?;
    if uid == geteuid().as_raw() || uid == 0 {
        return Ok(None);
    }
    Ok(Some(Owner { uid, name: login(Uid::from_raw(uid)) }))
}

/// The login name of a person of this machine.
pub(crate) fn login(uid: Uid) -> String {
    let user = User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("person {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_made_once_and_opened_again() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("door");
        let door = Door::make(&path).unwrap();
        assert_eq!(door.host(), geteuid().as_raw());
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&path.join(AGENTS))), (0o755, 0o1777));
        assert_eq!(Door::make(&path).unwrap().path(), path);
        assert!(door.agent_of(1001).is_none());
    }

    #[test]
    fn a_door_in_which_others_may_write_is_none() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("door");
        Door::make(&path).unwrap();
        for (changed, mode) in [(path.clone(), 0o757), (path.join(AGENTS), 0o777)] {
            let before = changed.metadata().unwrap().permissions();
            std::fs::set_permissions(&changed, Permissions::from_mode(mode)).unwrap();
            let error = Door::find(&path).unwrap_err().to_string();
            assert!(error.contains("can't be the door of a pool"), "{error}");
            std::fs::set_permissions(&changed, before).unwrap();
        }
        Door::find(&path).unwrap();
    }

    #[test]
    fn this_person_is_no_guest() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(guest(&one).unwrap(), None);
        assert_eq!(peer(&one).unwrap(), geteuid().as_raw());
    }
}
