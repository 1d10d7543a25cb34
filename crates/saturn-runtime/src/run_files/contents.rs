//! Reading a journal, whether or not a process drives the run.
//!
//! A reader writes nothing, not even the files that `SQLite` keeps beside an open database. So it
//! can read a run whose directory it can't write to, or that is on a disk mounted read-only.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use saturn_engine::Record;
use saturn_engine::migrate::{VERSION, migrate_v1};
use serde_json::Value;

use crate::launching::settings::LaunchSettings;
use crate::run_files::journal_location;
use crate::run_files::plans::Rows;
use crate::system::error::RuntimeError;

/// How often a reader opens a journal again because a driver opened it meanwhile.
const MAX_TRIES: usize = 5;

/// The content of a journal.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The version of the file. The records below are of the present version in any case.
    pub(super) version: i64,
    /// The records in order, with the times at which they were made. The first is
    /// [`Record::Began`].
    pub(crate) records: Vec<(Record, f64)>,
    /// The settings for launching the run's workers.
    pub(crate) settings: LaunchSettings,
}

impl Contents {
    /// Reads the journal of a run that another process may drive.
    pub(crate) fn read(path: &Path) -> Result<Self, RuntimeError> {
        reading(path, &|connection| Self::of(path, connection))
    }

    /// Reads and checks an open journal. Errors name the journal at `path`.
    pub(super) fn of(path: &Path, connection: &Connection) -> Result<Self, RuntimeError> {
        let damaged = |reason: String| RuntimeError::Damaged { path: path.to_owned(), reason };
        let failed = |source| match damage(&source) {
            Some(reason) => damaged(reason.to_owned()),
            None => RuntimeError::Journal { path: path.to_owned(), source },
        };
        // A transaction gives one view of the file, even if a driver appends meanwhile.
        let snapshot = connection.unchecked_transaction().map_err(failed)?;
        let version: i64 =
            snapshot.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
        if version == 0 {
            let run = path.parent().unwrap_or(path).to_owned();
            let reason = "its journal is empty: the run never began".to_owned();
            return Err(RuntimeError::NoRun { path: run, reason });
        }
        if !(1..=VERSION).contains(&version) {
            return Err(RuntimeError::OtherVersion {
                path: path.to_owned(),
                version,
                newest: VERSION,
            });
        }
        let check: String =
            snapshot.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
        if check != "ok" {
            return Err(damaged(check.lines().collect::<Vec<_>>().join(", ")));
        }
        let rows: Vec<(i64, f64, String)> = snapshot
            .prepare("SELECT seq, at_s, record FROM record ORDER BY seq")
            .and_then(|mut rows| {
                rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
            })
            .map_err(failed)?;
        // Rows have consecutive numbers, as no row is ever removed.
        if let Some((seq, ..)) =
            (1..).zip(&rows).find_map(|(seq, row)| (row.0 != seq).then_some(row))
        {
            return Err(damaged(format!("records before record {seq} are missing")));
        }
        let rows: Vec<(f64, String)> = rows.into_iter().map(|(_, at_s, row)| (at_s, row)).collect();
        let settings: String = snapshot
            .query_row("SELECT launch FROM settings", [], |row| row.get(0))
            .map_err(failed)?;
        let settings = serde_json::from_str(&settings)
            .map_err(|error| damaged(format!("settings: {error}")))?;
        let records = decoded(version, &rows)
            .map_err(|(row, error)| damaged(format!("record {row}: {error}")))?;
        if !matches!(records.first(), Some((Record::Began { .. }, _))) {
            return Err(damaged("its first record is not a run's beginning".to_owned()));
        }
        Ok(Self { version, records, settings })
    }
}

/// Opens the journal of a run that another process may drive, and reads it. `read` may be called
/// several times, if a driver opens the journal meanwhile.
pub(super) fn reading<T>(
    path: &Path,
    read: &dyn Fn(&Connection) -> Result<T, RuntimeError>,
) -> Result<T, RuntimeError> {
    if !path.is_file() {
        let run = path.parent().unwrap_or(path).to_owned();
        let reason = journal_location::missing(&run);
        return Err(RuntimeError::NoRun { path: run, reason });
    }
    // The journal may be a link to another disk. SQLite keeps its log beside what the link leads to.
    let path = &path.canonicalize().map_err(RuntimeError::file("find", path))?;
    let log = with_ending(path, "-wal");
    for _ in 1..MAX_TRIES {
        if log.exists() {
            break;
        }
        // Without a log the file is complete and nobody writes to it. This holds if there is
        // still no log after reading.
        let contents = read(&open(path, "immutable=1")?);
        if !log.exists() {
            return contents;
        }
    }
    match open(path, "mode=ro&readonly_shm=1").and_then(|one| read(&one)) {
        // A driver that died left its log without an index. `SQLite` makes the index again, in
        // a copy.
        Err(RuntimeError::Journal { .. }) => reading_copy(path, &log, read),
        contents => contents,
    }
}

fn reading_copy<T>(
    path: &Path,
    log: &Path,
    read: &dyn Fn(&Connection) -> Result<T, RuntimeError>,
) -> Result<T, RuntimeError> {
    let directory = tempfile::tempdir()
        .map_err(RuntimeError::file("create a directory in", std::env::temp_dir()))?;
    let copy = directory.path().join("journal.db");
    std::fs::copy(path, &copy).map_err(RuntimeError::file("copy", path))?;
    if log.exists() {
        std::fs::copy(log, with_ending(&copy, "-wal")).map_err(RuntimeError::file("copy", log))?;
    }
    let connection = Connection::open(&copy)
        .map_err(|source| RuntimeError::Journal { path: path.to_owned(), source })?;
    read(&connection)
}

/// Decodes the rows of a journal of some version. An error has the number of the wrong row, counted
/// from 1, and the reason.
pub(crate) fn decoded(
    version: i64,
    rows: &[(f64, String)],
) -> Result<Vec<(Record, f64)>, (usize, String)> {
    if version == 1 {
        let values = (1..).zip(rows).map(|(number, (at_s, row))| {
            let value: serde_json::Result<Value> = serde_json::from_str(row);
            value.map(|value| (value, *at_s)).map_err(|error| (number, error.to_string()))
        });
        let values: Vec<(Value, f64)> = values.collect::<Result<_, _>>()?;
        return migrate_v1(values).map_err(|error| (error.row, error.reason));
    }
    let mut read = Rows::default();
    (1..)
        .zip(rows)
        .map(|(number, (at_s, row))| match read.read(row) {
            Ok(record) => Ok((record, *at_s)),
            Err(error) => Err((number, error)),
        })
        .collect()
}

/// The damage to the file that an error implies; `None` if the error is of another kind.
fn damage(error: &rusqlite::Error) -> Option<&'static str> {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error {
        rusqlite::Error::SqliteFailure(error, _) if error.code == NotADatabase => {
            Some("it is no SQLite database")
        }
        rusqlite::Error::SqliteFailure(error, _) if error.code == DatabaseCorrupt => {
            Some("a part of the file is missing or overwritten")
        }
        // A table or a row is missing, or is not as the journal made it.
        rusqlite::Error::SqliteFailure(error, _) if error.code == rusqlite::ErrorCode::Unknown => {
            Some("a table is missing")
        }
        rusqlite::Error::SqlInputError { .. } => Some("a table is missing"),
        rusqlite::Error::QueryReturnedNoRows => Some("a row is missing"),
        rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..) => {
            Some("a row holds something else than was written")
        }
        _ => None,
    }
}

fn open(path: &Path, parameters: &str) -> Result<Connection, RuntimeError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let failed = |source| RuntimeError::Journal { path: path.to_owned(), source };
    let connection = Connection::open_with_flags(uri(path, parameters), flags).map_err(failed)?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(failed)?;
    Ok(connection)
}

/// A path as a URI of `SQLite`, with parameters.
fn uri(path: &Path, parameters: &str) -> PathBuf {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    let mut uri = b"file:".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.extend(format!("%{byte:02x}").into_bytes()),
            _ => uri.push(*byte),
        }
    }
    uri.extend(format!("?{parameters}").into_bytes());
    PathBuf::from(OsString::from_vec(uri))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
