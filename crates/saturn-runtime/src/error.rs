//! What can go wrong with a run as a whole. What goes wrong with a task is data of the run.

use std::path::PathBuf;

/// An error that ends a run, or keeps it from starting.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The request is not one that this version understands.
    #[error("malformed run request: {reason}")]
    Request {
        /// What is wrong with it.
        reason: String,
    },
    /// A device count that can't be had.
    #[error("`devices` is {asked}, {why}")]
    Devices {
        /// What was asked for.
        asked: u32,
        /// What would be right.
        why: String,
    },
    /// There is no run there.
    #[error("no run at `{}`: {reason}", path.display())]
    NoRun {
        /// The path.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// Another process drives it.
    #[error("another process drives the run `{}`", path.display())]
    Busy {
        /// The run.
        path: PathBuf,
    },
    /// Workers of an earlier driver live on.
    #[error("workers of an earlier process of the run `{}` are still alive", path.display())]
    WorkersAlive {
        /// The run.
        path: PathBuf,
    },
    /// `SQLite` can't keep its promises there.
    #[error(
        "`{}` is on a network file system ({kind}), where the journal could be lost; \
         choose a directory on a local disk with `runs_dir`", path.display()
    )]
    NetworkFileSystem {
        /// The run.
        path: PathBuf,
        /// Its kind.
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
    /// The journal holds what this version can't read.
    #[error("the journal `{}` is damaged or of another version: {reason}", path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file or directory of the run can't be used.
    #[error("failed to {action} `{}`", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The interpreter that runs workers can't be started.
    #[error("failed to start `{python}`")]
    Python {
        /// The interpreter.
        python: String,
        /// Why.
        source: std::io::Error,
    },
}

impl RuntimeError {
    /// Makes a [`RuntimeError::File`] of an I/O error.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    /// Whether what the user gave is wrong, rather than the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::Devices { .. } | Self::NoRun { .. })
    }
}

/// An error and its causes in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some errors repeat their cause in their own words.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
