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
        let mut records = Vec::new();
        let heading = tell(path, connection, &mut |record, at_s| records.push((record, at_s)))?;
        let Heading { version, settings, .. } = heading;
        Ok(Self { version, records, settings })
    }
}

/// What a journal holds beside its records.
pub(super) struct Heading {
    /// The version of the file.
    pub(super) version: i64,
    /// The settings for launching the run's workers.
    pub(super) settings: LaunchSettings,
    /// To write the rows that follow, if the file is of the present version.
    pub(super) rows: Rows,
}

/// Folds the records of a journal that another process may drive, without holding all of them in
/// memory. `begin` may be called several times; only what came of the last call counts.
pub(crate) fn fold<T>(
    path: &Path,
    begin: &dyn Fn() -> T,
    take: &dyn Fn(&mut T, Record, f64),
) -> Result<(T, LaunchSettings), RuntimeError> {
    reading(path, &|connection| {
        let mut so_far = begin();
        let heading = tell(path, connection, &mut |record, at_s| take(&mut so_far, record, at_s))?;
        Ok((so_far, heading.settings))
    })
}

/// The settings for launching a run's workers. No record is read.
pub(crate) fn settings_of(path: &Path) -> Result<LaunchSettings, RuntimeError> {
    reading(path, &|connection| {
        version_of(path, connection)?;
        read_settings(path, connection)
    })
}

/// Reads and checks an open journal, and tells each record with the time at which it was made, in
/// order. If this fails, what was told is not to be used. Errors name the journal at `path`.
pub(super) fn tell(
    path: &Path,
    connection: &Connection,
    told: &mut dyn FnMut(Record, f64),
) -> Result<Heading, RuntimeError> {
    let failed = failures(path);
    // A transaction gives one view of the file, even if a driver appends meanwhile.
    let snapshot = connection.unchecked_transaction().map_err(&failed)?;
    let version = version_of(path, &snapshot)?;
    let check: String =
        snapshot.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(&failed)?;
    if check != "ok" {
        return Err(damaged(path, check.lines().collect::<Vec<_>>().join(", ")));
    }
    let settings = read_settings(path, &snapshot)?;
    let mut begins = None;
    let told = &mut |record: Record, at_s: f64| {
        begins.get_or_insert(matches!(record, Record::Began { .. }));
        told(record, at_s);
    };
    let mut decoder = Decoder::of(version);
    let asked = "SELECT seq, at_s, record FROM record ORDER BY seq";
    let mut statement = snapshot.prepare(asked).map_err(&failed)?;
    let mut rows = statement.query([]).map_err(&failed)?;
    let wrong = |(row, error): (usize, String)| damaged(path, format!("record {row}: {error}"));
    let mut last = 0;
    while let Some(row) = rows.next().map_err(&failed)? {
        let seq: i64 = row.get(0).map_err(&failed)?;
        // Rows have consecutive numbers, as no row is ever removed.
        if seq != last + 1 {
            return Err(damaged(path, format!("records before record {seq} are missing")));
        }
        last = seq;
        let (at_s, record): (f64, String) =
            row.get(1).and_then(|at_s| Ok((at_s, row.get(2)?))).map_err(&failed)?;
        decoder.take(&record, at_s, told).map_err(wrong)?;
    }
    let rows = decoder.end(told).map_err(wrong)?;
    if begins != Some(true) {
        return Err(damaged(path, "its first record is not a run's beginning".to_owned()));
    }
    Ok(Heading { version, settings, rows })
}

/// The version of an open journal, if it is one that can be read.
pub(super) fn version_of(path: &Path, connection: &Connection) -> Result<i64, RuntimeError> {
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failures(path))?;
    if version == 0 {
        let run = path.parent().unwrap_or(path).to_owned();
        let reason = "its journal is empty: the run never began".to_owned();
        return Err(RuntimeError::NoRun { path: run, reason });
    }
    if !(1..=VERSION).contains(&version) {
        return Err(RuntimeError::OtherVersion { path: path.to_owned(), version, newest: VERSION });
    }
    Ok(version)
}

fn read_settings(path: &Path, connection: &Connection) -> Result<LaunchSettings, RuntimeError> {
    let settings: String = connection
        .query_row("SELECT launch FROM settings", [], |row| row.get(0))
        .map_err(failures(path))?;
    serde_json::from_str(&settings).map_err(|error| damaged(path, format!("settings: {error}")))
}

fn damaged(path: &Path, reason: String) -> RuntimeError {
    RuntimeError::Damaged { path: path.to_owned(), reason }
}

/// What an error of `SQLite` says about the journal at `path`.
fn failures(path: &Path) -> impl Fn(rusqlite::Error) -> RuntimeError {
    |source| match damage(&source) {
        Some(reason) => damaged(path, reason.to_owned()),
        None => RuntimeError::Journal { path: path.to_owned(), source },
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
    let mut records = Vec::new();
    let told = &mut |record, at_s| records.push((record, at_s));
    let mut decoder = Decoder::of(version);
    for (at_s, row) in rows {
        decoder.take(row, *at_s, told)?;
    }
    decoder.end(told)?;
    Ok(records)
}

/// Decodes the rows of a journal one by one. An error has the number of the wrong row, counted from
/// 1, and the reason.
struct Decoder {
    read: Rows,
    num_rows: usize,
    /// The rows of a journal of version 1, which are translated together.
    of_v1: Option<Vec<(Value, f64)>>,
}

impl Decoder {
    fn of(version: i64) -> Self {
        let of_v1 = (version == 1).then(Vec::new);
        Self { read: Rows::default(), num_rows: 0, of_v1 }
    }

    fn take(
        &mut self,
        row: &str,
        at_s: f64,
        told: &mut dyn FnMut(Record, f64),
    ) -> Result<(), (usize, String)> {
        self.num_rows += 1;
        let number = self.num_rows;
        if let Some(rows) = &mut self.of_v1 {
            let value = serde_json::from_str(row).map_err(|error| (number, error.to_string()))?;
            rows.push((value, at_s));
        } else {
            told(self.read.read(row).map_err(|error| (number, error))?, at_s);
        }
        Ok(())
    }

    fn end(self, told: &mut dyn FnMut(Record, f64)) -> Result<Rows, (usize, String)> {
        let translated = self.of_v1.map(migrate_v1).transpose();
        let translated = translated.map_err(|error| (error.row, error.reason))?;
        for (record, at_s) in translated.into_iter().flatten() {
            told(record, at_s);
        }
        Ok(self.read)
    }
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
