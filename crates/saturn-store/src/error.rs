//! What goes wrong with files, and errors in words.

use std::io;
use std::path::PathBuf;

/// A file or directory can't be used.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{}`", path.display())]
pub struct FileError {
    /// The operation that failed.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl FileError {
    /// Makes an error of an I/O error.
    pub fn of(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { action, path, source }
    }

    /// Whether the disk is full or the user's quota is used up.
    pub fn is_disk_full(&self) -> bool {
        is_full(&self.source)
    }
}

/// Whether an error means that there is no space to write.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An I/O error in plain words, without the system's error number if a word exists.
pub fn io_words(error: &io::Error) -> String {
    let words = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::IsADirectory => "it is a directory, not a file",
        io::ErrorKind::NotADirectory => "what should be a directory on its path is a file",
        io::ErrorKind::AlreadyExists => "it exists already",
        io::ErrorKind::InvalidData => "it is not text in UTF-8",
        io::ErrorKind::ReadOnlyFilesystem => "its file system is read-only",
        io::ErrorKind::StorageFull => "no space is left on the disk",
        io::ErrorKind::QuotaExceeded => "the user's share of the disk is used up",
        _ => return error.to_string(),
    };
    words.to_owned()
}

/// An error and its causes in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.downcast_ref().map_or_else(|| cause.to_string(), io_words);
        // Some errors already contain their cause's text.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_in_words() {
        let source = io::Error::from_raw_os_error(2);
        let error = FileError::of("open", "/a")(source);
        assert_eq!(with_causes(&error), "failed to open `/a`: there is no such file or directory");
    }
}
