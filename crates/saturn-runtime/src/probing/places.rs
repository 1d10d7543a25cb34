//! Tries what a run does in its directory. `dir` exists, and what is tried there is removed again.

use std::path::Path;
use std::sync::Arc;

use crate::asking::control::{self, ControlError, Query, Reply, Request};
use crate::asking::server::ControlSocket;
use crate::run_files::journal::Journal;
use crate::run_files::run_dir::network_file_system_of;
use crate::system::clock::RunClock;
use crate::system::error::RuntimeError;

/// Why a run would not hear its user's commands in a directory.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Nothing can listen there.
    #[error(transparent)]
    Listen(#[from] RuntimeError),
    /// A socket listens there, but commands to it get no answer.
    #[error(transparent)]
    Ask(#[from] ControlError),
}

/// The name of a path's file system, if it is a network file system or may be one.
pub fn network_file_system(path: &Path) -> Option<&'static str> {
    network_file_system_of(path)
}

/// Makes a journal in a directory and syncs it; the seconds that this took.
pub fn try_journal(dir: &Path) -> Result<f64, RuntimeError> {
    let clock = RunClock::starting_at(0.0);
    let there = trial_directory(dir)?;
    Journal::try_out(&there.path().join("journal.db"))?;
    Ok(clock.now_s())
}

/// Listens in a directory as a run does for its user's commands, and sends itself one.
pub fn try_control_socket(dir: &Path) -> Result<(), SocketError> {
    let there = trial_directory(dir)?;
    let _listening = ControlSocket::listen(there.path(), Arc::new(|_, _| Reply::done()))?;
    control::ask(there.path(), &Request::Query(Query::Status))?;
    Ok(())
}

fn trial_directory(dir: &Path) -> Result<tempfile::TempDir, RuntimeError> {
    let made = tempfile::Builder::new().prefix(".saturn-doctor-").tempdir_in(dir);
    made.map_err(RuntimeError::file("create a directory in", dir))
}
