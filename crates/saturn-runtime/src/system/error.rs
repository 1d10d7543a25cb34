//! Errors of a run as a whole. Errors of a task are data of the run.

use std::io;
use std::path::PathBuf;

use saturn_store::FileError;

/// An error that ends a run, or keeps it from starting.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// This version does not understand the request.
    #[error("malformed run request: {reason}")]
    Request {
        /// What is wrong with it.
        reason: String,
    },
    /// The request can't be fulfilled.
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// No process drives another person's pool, or that process does not answer.
    #[error(
        "the process that drives the pool {how}; the person whose pool it is starts it: saturn serve"
    )]
    PoolNotDriven {
        /// What is the matter with that process.
        how: &'static str,
    },
    /// The process that drives the run does not understand this version, or the reverse.
    #[error(
        "the process that drives the run is of another version of Saturn ({reason}); `saturn stop`, \
         then `saturn resume`: then this version drives the run, from its checkpoints"
    )]
    Answer {
        /// What is not understood.
        reason: String,
    },
    /// The machine can't give that many devices.
    #[error("`devices` is {asked}, {why}")]
    Devices {
        /// The device count that was asked for.
        asked: u32,
        /// Why it can't be had.
        why: String,
    },
    /// Other runs hold all devices, or too many of them.
    #[error(
        "{what}: {held}; to wait for devices: `wait=True` in Python, `--wait` of `saturn run`, \
         `sweep` and `resume`; to end the other run: `saturn stop`"
    )]
    DevicesHeld {
        /// The request that can't be met.
        what: String,
        /// Which run holds which devices.
        held: String,
    },
    /// A person stopped the run while it waited for devices.
    #[error("stopped waiting for devices: nothing was started")]
    WaitEnded,
    /// The machine lacks hardware that the run had.
    #[error(
        "{missing}; repair the machine, or allow other hardware: strategies that were not measured \
         on the new hardware are measured again"
    )]
    OtherHardware {
        /// The missing hardware.
        missing: String,
    },
    /// The directory of device locks can't be trusted.
    #[error("`{}` can't hold this user's device locks: {reason}", path.display())]
    LocksDirectory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The path has no run.
    #[error("no run at `{}`: {reason}", path.display())]
    NoRun {
        /// The path.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// Another process drives the run.
    #[error("{} drives the run `{}`", driver(*pid), path.display())]
    Busy {
        /// The run.
        path: PathBuf,
        /// The process that drives the run, if it takes commands.
        pid: Option<i32>,
    },
    /// The run's directory is no longer where it was when this process began to drive the run.
    #[error(
        "the run's directory `{}` was moved or removed while the run went on, so the run is stopped; \
         if it was moved, go on with it where it is now: saturn resume PATH", path.display()
    )]
    Moved {
        /// Where the directory was.
        path: PathBuf,
    },
    /// Workers of an earlier driver are still alive.
    #[error(
        "workers of an earlier process of the run `{}` are still alive{}; wait until they have \
         ended, or kill them", path.display(), listed(pids)
    )]
    WorkersAlive {
        /// The run.
        path: PathBuf,
        /// Their process ids, where known.
        pids: Vec<i32>,
    },
    /// The file system does not honour the locks and syncs that `SQLite` relies on.
    #[error(
        "`{}` is on a network file system ({kind}), and its journal would be \
         too, where it could be lost; choose a directory on a local disk with `runs_dir`, or set \
         SATURN_HOME to one", path.display()
    )]
    NetworkFileSystem {
        /// The run.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// The journal can't be read or written.
    #[error("failed to use the journal `{}`", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The journal does not contain what a run writes.
    #[error(
        "the journal `{}` is damaged: {reason}; replace the file with a copy of it, if you have \
         one; the checkpoints in `{}` load without the journal",
        path.display(), path.with_file_name("tasks").display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// This program can't read journals of this version.
    #[error(
        "the journal `{}` is of version {version}, and this program reads 1 to {newest}; use the \
         version of Saturn that wrote the journal, or a newer one", path.display()
    )]
    OtherVersion {
        /// The journal.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The newest version that this program reads.
        newest: i64,
    },
    /// A file or directory of the run can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The interpreter that ran a run's workers is gone.
    #[error(
        "the run's Python is gone: there is no program `{python}`; resume the run with another in \
         which Saturn and the tasks' packages are installed: saturn resume {} --python PATH",
        path.display()
    )]
    PythonGone {
        /// The run.
        path: PathBuf,
        /// The interpreter.
        python: String,
    },
    /// The directory that a run was started from is gone.
    #[error(
        "the run's working directory is gone: there is no directory `{}`, from which its tasks find \
         their files by relative paths; make it again, then resume the run", cwd.display()
    )]
    CwdGone {
        /// The directory.
        cwd: PathBuf,
    },
    /// The interpreter that runs workers can't be started.
    #[error("failed to start `{python}`")]
    Python {
        /// The interpreter.
        python: String,
        /// Why.
        source: io::Error,
    },
}

fn driver(pid: Option<i32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn listed(pids: &[i32]) -> String {
    if pids.is_empty() {
        return String::new();
    }
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    format!(" (processes {})", pids.join(", "))
}

impl RuntimeError {
    /// Makes a [`RuntimeError::File`] of an I/O error.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let of = FileError::of(action, path);
        move |source| Self::File(of(source))
    }

    /// Whether the user asked for something that can't be had, rather than the machine failed.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Request { .. }
                | Self::Refused { .. }
                | Self::PoolNotDriven { .. }
                | Self::Devices { .. }
                | Self::NoRun { .. }
                | Self::Busy { .. }
                | Self::PythonGone { .. }
                | Self::CwdGone { .. }
        )
    }

    /// Whether the disk is full or the user's quota is used up.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::File(error) => error.is_disk_full(),
            Self::Journal { source: rusqlite::Error::SqliteFailure(error, _), .. } => {
                // `SQLITE_IOERR_SHMSIZE`: the index of the write-ahead log could not grow.
                error.code == rusqlite::ErrorCode::DiskFull
                    || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
            }
            _ => false,
        }
    }
}
