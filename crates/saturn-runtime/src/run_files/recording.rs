//! Recordings of runs: a journal as lines of JSON, which travels without its run.
//!
//! The first line is a header, `{"recording": 1, "journal": 3, "run": "demo", …}`: the versions of
//! the recording and of the journal that it was made from, and what the run is called. Each further
//! line is `[seconds, row]`, a row of the journal as the journal has it. `benches/replay/record.py`
//! writes them.

use std::path::Path;

use saturn_engine::Record;
use saturn_engine::migrate::VERSION;
use serde::Deserialize;

use crate::run_files::contents::{Contents, decoded};
use crate::run_files::run_dir::journal_of;
use crate::system::error::RuntimeError;

/// The version of recordings.
const RECORDING: i64 = 1;

/// A run as its journal tells of it.
#[derive(Debug)]
pub struct Recorded {
    /// The run's name: that of the recording's file, else that of the run's directory.
    pub name: String,
    /// Its records, each with the time at which it was made, seconds on the run's clock.
    pub records: Vec<(Record, f64)>,
}

#[derive(Deserialize)]
struct Header {
    recording: i64,
    journal: i64,
    run: String,
}

/// Reads a run from its directory, or from a recording. Nothing is written.
///
/// # Errors
///
/// [`RuntimeError::NoRun`] and the other errors of journals for a directory;
/// [`RuntimeError::Refused`] for a file that is no recording, and [`RuntimeError::OtherVersion`]
/// for one of a later version of Saturn.
pub fn recorded(path: &Path) -> Result<Recorded, RuntimeError> {
    if path.is_file() {
        let text = std::fs::read_to_string(path).map_err(RuntimeError::file("read", path))?;
        return parse(path, &text);
    }
    let records = Contents::read(&journal_of(path))?.records;
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = full.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Recorded { name, records })
}

fn parse(path: &Path, text: &str) -> Result<Recorded, RuntimeError> {
    let refused = |line: usize, reason: String| RuntimeError::Refused {
        reason: format!(
            "`{}` is no recording of a run: line {line}: {reason}; expected a run's directory, or \
             a file that `benches/replay/record.py` wrote",
            path.display()
        ),
    };
    let mut lines = text.lines();
    let header: Header = serde_json::from_str(lines.next().unwrap_or_default())
        .map_err(|error| refused(1, error.to_string()))?;
    let other =
        |version, newest| RuntimeError::OtherVersion { path: path.to_owned(), version, newest };
    if header.recording != RECORDING {
        return Err(other(header.recording, RECORDING));
    }
    if !(1..=VERSION).contains(&header.journal) {
        return Err(other(header.journal, VERSION));
    }
    let rows = (2..).zip(lines).map(|(number, line)| {
        row(line).ok_or_else(|| refused(number, "expected `[seconds, record]`".to_owned()))
    });
    let rows: Vec<(f64, String)> = rows.collect::<Result<_, _>>()?;
    let records = decoded(header.journal, &rows).map_err(|(row, error)| refused(row + 1, error))?;
    if !matches!(records.first(), Some((Record::Began { .. }, _))) {
        return Err(refused(2, "it is not a run's beginning".to_owned()));
    }
    Ok(Recorded { name: header.run, records })
}

/// A line's time, and its row as the journal has it.
fn row(line: &str) -> Option<(f64, String)> {
    let (at_s, row) = line.strip_prefix('[')?.strip_suffix(']')?.split_once(',')?;
    Some((at_s.trim().parse().ok()?, row.to_owned()))
}
