//! The journal: a run's records in `journal.db`, in order. Each record is on disk before the driver
//! acts on it.
//!
//! The records of one decision are written in one transaction, so that a crash keeps all of them or
//! none. Pickled functions, checkpoints and metrics are files beside the journal. A run has no
//! other state.
//!
//! Version 3 stores records as `saturn_engine` defines them, except for plans (`plans`). A journal
//! of an earlier version is translated. The process that resumes the run translates it in place, in
//! one transaction (`open`). A process that only reads translates it in memory (`read`).

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use saturn_engine::Record;
use saturn_engine::migrate::VERSION;
use saturn_store::{Disk, Operation};

use crate::launching::settings::LaunchSettings;
use crate::run_files::contents::{self, Contents, Heading};
use crate::run_files::plans::Rows;
use crate::system::error::RuntimeError;
use crate::system::run_id::new_run_id;

const RECORD_TABLE: &str = "CREATE TABLE record (
    seq INTEGER PRIMARY KEY, at_s REAL NOT NULL,
    wall TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, record TEXT NOT NULL
);";

/// How far the driver has heard each agent of the run's ranks, where they have agents.
const HEARD_TABLE: &str = "CREATE TABLE IF NOT EXISTS heard (
    id INTEGER PRIMARY KEY, agent TEXT NOT NULL, number INTEGER NOT NULL
);";

/// The journal of a run that this process drives.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    connection: Connection,
    disk: Disk,
    rows: Rows,
    /// What the driver has heard, to be stored with the next records.
    heard: Vec<Heard>,
}

/// How far a driver has heard an agent: all words up to this number have had their effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The agent's name of its own, which no other agent ever had.
    pub(crate) agent: String,
    /// The number of the last word.
    pub(crate) number: u64,
}

impl Journal {
    /// Creates the journal of a run that begins with these records, at time 0. If this fails or
    /// crashes, `resume` does not mistake the remains for a run.
    pub(crate) fn create(
        path: &Path,
        settings: &LaunchSettings,
        records: &[Record],
        disk: Disk,
    ) -> Result<Self, RuntimeError> {
        let mut journal = Self::connect(path, OpenFlags::default(), disk)?;
        let settings = to_json(path, settings)?;
        let mut next = Rows::default();
        let rows = to_rows(path, &mut next, records)?;
        journal.transact(|transaction, disk| {
            transaction.execute_batch(RECORD_TABLE)?;
            transaction.execute_batch("CREATE TABLE settings (launch TEXT NOT NULL);")?;
            transaction.execute("INSERT INTO settings (launch) VALUES (?1)", params![settings])?;
            insert(transaction, &rows, 0.0, path, disk)?;
            transaction.pragma_update(None, "user_version", VERSION)
        })?;
        journal.rows = next;
        Ok(journal)
    }

    /// Opens the journal of an existing run to continue the run. Checks the journal and brings it
    /// to the present version. Tells each record with its time, in order; if this fails, what was
    /// told is not to be used.
    pub(crate) fn open(
        path: &Path,
        disk: Disk,
        told: &mut dyn FnMut(Record, f64),
    ) -> Result<(Self, LaunchSettings), RuntimeError> {
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
        let mut journal = Self::connect(path, flags, disk)?;
        if contents::version_of(path, &journal.connection)? == VERSION {
            let Heading { mut settings, rows, .. } =
                contents::tell(path, &journal.connection, told)?;
            if settings.run_id.is_empty() {
                settings.run_id = new_run_id()?;
                journal.change_settings(&settings)?;
            }
            journal.rows = rows;
            return Ok((journal, settings));
        }
        let mut contents = Contents::of(path, &journal.connection)?;
        contents.settings.run_id = new_run_id()?;
        journal.rewrite(&contents)?;
        journal.rows = Rows::after(&contents.records);
        contents.records.into_iter().for_each(|(record, at_s)| told(record, at_s));
        Ok((journal, contents.settings))
    }

    /// Tries whether a journal can be made and synced at `path`.
    pub(crate) fn try_out(path: &Path) -> Result<(), RuntimeError> {
        let tried = Self::connect(path, OpenFlags::default(), Disk::default())?;
        let made = tried.connection.execute_batch("CREATE TABLE tried (text); VACUUM");
        made.map_err(|source| RuntimeError::Journal { path: path.to_owned(), source })
    }

    fn connect(path: &Path, flags: OpenFlags, disk: Disk) -> Result<Self, RuntimeError> {
        let failed = |source| RuntimeError::Journal { path: path.to_owned(), source };
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        let (path, rows) = (path.to_owned(), Rows::default());
        Ok(Self { path, connection, disk, rows, heard: Vec::new() })
    }

    /// Rewrites settings and records in the present version. Each record keeps the time of day of
    /// the row that it came from, or else of the row before.
    fn rewrite(&mut self, contents: &Contents) -> Result<(), RuntimeError> {
        let path = self.path.clone();
        let settings = to_json(&path, &contents.settings)?;
        let mut rows = Rows::default();
        let rows: Vec<(f64, String)> = contents
            .records
            .iter()
            .map(|(record, at_s)| Ok((*at_s, to_row(&path, &mut rows, record)?)))
            .collect::<Result<_, RuntimeError>>()?;
        self.transact(|transaction, _| {
            transaction.execute("UPDATE settings SET launch = ?1", params![settings])?;
            transaction.execute_batch("ALTER TABLE record RENAME TO translated")?;
            transaction.execute_batch(RECORD_TABLE)?;
            transaction.execute_batch("CREATE INDEX by_time ON translated (at_s);")?;
            let mut insert = transaction.prepare(
                "INSERT INTO record (at_s, wall, record) VALUES (?1, coalesce(
                     (SELECT wall FROM translated WHERE at_s <= ?1 ORDER BY at_s DESC LIMIT 1),
                     CURRENT_TIMESTAMP), ?2)",
            )?;
            for (at_s, row) in &rows {
                insert.execute(params![at_s, row])?;
            }
            drop(insert);
            transaction.execute_batch("DROP TABLE translated")?;
            transaction.pragma_update(None, "user_version", VERSION)
        })
    }

    /// Notes that the run's trials were measured on several platforms, so that none of them is taken
    /// for a trial of one.
    pub(crate) fn forget_platform(
        &mut self,
        settings: &LaunchSettings,
    ) -> Result<(), RuntimeError> {
        self.change_settings(&LaunchSettings { platform: None, ..settings.clone() })
    }

    /// Stores other settings, for this resume and all later ones.
    pub(crate) fn change_settings(
        &mut self,
        settings: &LaunchSettings,
    ) -> Result<(), RuntimeError> {
        let changed = to_json(&self.path, settings)?;
        self.transact(|transaction, _| {
            transaction.execute("UPDATE settings SET launch = ?1", params![changed]).map(|_| ())
        })
    }

    /// Stores other settings for the next resume, in a journal of any version that can be read.
    pub(crate) fn replace_settings(
        path: &Path,
        settings: &LaunchSettings,
        disk: Disk,
    ) -> Result<(), RuntimeError> {
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
        Self::connect(path, flags, disk)?.change_settings(settings)
    }

    /// Notes how far the driver has heard all agents. It is stored together with the next records, so
    /// that each word has its effect once, whenever the driver dies.
    pub(crate) fn hear(&mut self, heard: Vec<Heard>) {
        self.heard = heard;
    }

    /// The number of the last word of an agent that has had its effect; 0 if none has.
    pub(crate) fn heard(&self, agent: &str) -> Result<u64, RuntimeError> {
        let failed = |source| RuntimeError::Journal { path: self.path.clone(), source };
        self.connection.execute_batch(HEARD_TABLE).map_err(failed)?;
        let asked = "SELECT number FROM heard WHERE agent = ?1";
        let found = self.connection.query_row(asked, params![agent], |row| row.get(0)).optional();
        let number: i64 = found.map_err(failed)?.unwrap_or(0);
        Ok(u64::try_from(number).unwrap_or(0))
    }

    /// How many records it has.
    pub(crate) fn num_records(&self) -> Result<u64, RuntimeError> {
        let asked = "SELECT max(seq) FROM record";
        let last: rusqlite::Result<i64> = self.connection.query_row(asked, [], |row| row.get(0));
        let last =
            last.map_err(|source| RuntimeError::Journal { path: self.path.clone(), source })?;
        Ok(u64::try_from(last).unwrap_or(0))
    }

    /// Appends records that were all made at `now_s`. Returns once they are on disk.
    pub(crate) fn append(&mut self, records: &[Record], now_s: f64) -> Result<(), RuntimeError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut next = self.rows.clone();
        let rows = to_rows(&self.path, &mut next, records)?;
        let (path, heard) = (self.path.clone(), self.heard.clone());
        let done = self.transact(|transaction, disk| {
            if !heard.is_empty() {
                transaction.execute_batch(HEARD_TABLE)?;
                transaction.execute("DELETE FROM heard", [])?;
            }
            for Heard { agent, number } in &heard {
                let number = i64::try_from(*number).unwrap_or(i64::MAX);
                let store = "INSERT INTO heard (agent, number) VALUES (?1, ?2)";
                transaction.execute(store, params![agent, number])?;
            }
            insert(transaction, &rows, now_s, &path, disk)
        });
        // Later rows may refer only to a plan that is on disk.
        if !matches!(done, Err(RuntimeError::Journal { .. })) {
            self.rows = next;
            self.heard.clear();
        }
        done
    }

    /// Does all of the work durably, or none of it. In the second case the error is
    /// [`RuntimeError::Journal`].
    fn transact(
        &mut self,
        work: impl FnOnce(&Transaction<'_>, &Disk) -> rusqlite::Result<()>,
    ) -> Result<(), RuntimeError> {
        let (disk, path) = (&self.disk, &self.path);
        let done = (|| {
            disk.before(Operation::Begin, path).map_err(|error| as_sqlite(&error))?;
            let transaction = self.connection.transaction()?;
            work(&transaction, disk)?;
            disk.before(Operation::Commit, path).map_err(|error| as_sqlite(&error))?;
            transaction.commit()
        })();
        done.map_err(|source| {
            let source = if is_write_error(&source) && disk.lacks_space(path) {
                failure(rusqlite::ffi::SQLITE_FULL, "the user's share of the disk is used up")
            } else {
                source
            };
            RuntimeError::Journal { path: path.clone(), source }
        })?;
        disk.before(Operation::Committed, path).map_err(RuntimeError::file("write", path))
    }
}

fn insert(
    transaction: &Transaction<'_>,
    rows: &[String],
    now_s: f64,
    path: &Path,
    disk: &Disk,
) -> rusqlite::Result<()> {
    let mut insert =
        transaction.prepare_cached("INSERT INTO record (at_s, record) VALUES (?1, ?2)")?;
    for row in rows {
        disk.before(Operation::Insert, path).map_err(|error| as_sqlite(&error))?;
        insert.execute(params![now_s, row])?;
    }
    Ok(())
}

/// A fault of the disk as `SQLite` would report it. `SQLite` has a code for a full disk, but none
/// for an exceeded quota.
fn as_sqlite(error: &std::io::Error) -> rusqlite::Error {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull => rusqlite::ffi::SQLITE_FULL,
        std::io::ErrorKind::QuotaExceeded => rusqlite::ffi::SQLITE_IOERR_WRITE,
        _ => rusqlite::ffi::SQLITE_IOERR,
    };
    failure(code, &error.to_string())
}

fn failure(code: i32, text: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(text.to_owned()))
}

/// Whether an error says that something could not be written, for any reason.
fn is_write_error(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_FSYNC, SQLITE_IOERR_WRITE};
    let rusqlite::Error::SqliteFailure(error, _) = error else { return false };
    matches!(error.extended_code, SQLITE_IOERR_WRITE | SQLITE_IOERR_FSYNC)
}

fn to_rows(path: &Path, rows: &mut Rows, records: &[Record]) -> Result<Vec<String>, RuntimeError> {
    records.iter().map(|record| to_row(path, rows, record)).collect()
}

fn to_row(path: &Path, rows: &mut Rows, record: &Record) -> Result<String, RuntimeError> {
    rows.write(record).map_err(|error| unwritten(path, &error))
}

fn to_json(path: &Path, value: &impl serde::Serialize) -> Result<String, RuntimeError> {
    serde_json::to_string(value).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &serde_json::Error) -> RuntimeError {
    let reason = format!("a record can't be written: {error}");
    RuntimeError::Damaged { path: path.to_owned(), reason }
}

#[cfg(test)]
pub(crate) mod tests;
