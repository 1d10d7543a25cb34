//! The journal: a run's records in `journal.db`, in order, each on disk before it is acted upon.
//!
//! A decision's records are written in one transaction, so a crash keeps all of them or none. Pickled
//! functions, checkpoints and metrics are files beside it; nothing else is state.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params};
use saturn_engine::Record;

use crate::error::RuntimeError;
use crate::request::LaunchSettings;

/// Grows with every change that an older reader would misread.
const VERSION: i64 = 1;

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    connection: Connection,
}

impl Journal {
    /// Creates the journal of a new run.
    pub(crate) fn create(path: &Path, settings: &LaunchSettings) -> Result<Self, RuntimeError> {
        let journal = Self::open(path, OpenFlags::default())?;
        let settings = to_json(path, settings)?;
        journal.durably(|connection| {
            connection.execute_batch(
                "CREATE TABLE record (
                     seq INTEGER PRIMARY KEY, at_s REAL NOT NULL,
                     wall TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, record TEXT NOT NULL
                 );
                 CREATE TABLE settings (launch TEXT NOT NULL);",
            )?;
            connection.execute("INSERT INTO settings (launch) VALUES (?1)", params![settings])?;
            connection.pragma_update(None, "user_version", VERSION)
        })?;
        Ok(journal)
    }

    /// Opens the journal of a run that exists.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, RuntimeError> {
        if !path.is_file() {
            let run = path.parent().unwrap_or(path).to_owned();
            return Err(RuntimeError::NoRun { path: run, reason: "it has no journal.db".into() });
        }
        let journal = Self::open(path, OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE)?;
        let version: i64 = journal.durably(|connection| {
            connection.pragma_query_value(None, "user_version", |row| row.get(0))
        })?;
        if version != VERSION {
            let reason = format!("its version is {version}; this program reads {VERSION}");
            return Err(journal.damaged(reason));
        }
        Ok(journal)
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Self, RuntimeError> {
        let connection = Connection::open_with_flags(path, flags)
            .map_err(|source| RuntimeError::Journal { path: path.to_owned(), source })?;
        let journal = Self { path: path.to_owned(), connection };
        journal.durably(|connection| {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")
        })?;
        Ok(journal)
    }

    /// Appends records, all of which were made at `now_s`; returns once they are on disk.
    pub(crate) fn append(&mut self, records: &[Record], now_s: f64) -> Result<(), RuntimeError> {
        if records.is_empty() {
            return Ok(());
        }
        let rows: Vec<String> =
            records.iter().map(|record| to_json(&self.path, record)).collect::<Result<_, _>>()?;
        let path = self.path.clone();
        let written = (|| {
            let transaction = self.connection.transaction()?;
            {
                let mut insert = transaction
                    .prepare_cached("INSERT INTO record (at_s, record) VALUES (?1, ?2)")?;
                for row in &rows {
                    insert.execute(params![now_s, row])?;
                }
            }
            transaction.commit()
        })();
        written.map_err(|source| RuntimeError::Journal { path, source })
    }

    /// All records, in order, with the times at which they were made.
    pub(crate) fn records(&self) -> Result<Vec<(Record, f64)>, RuntimeError> {
        let rows: Vec<(f64, String)> = self.durably(|connection| {
            connection
                .prepare("SELECT at_s, record FROM record ORDER BY seq")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        rows.into_iter()
            .enumerate()
            .map(|(index, (at_s, row))| match serde_json::from_str(&row) {
                Ok(record) => Ok((record, at_s)),
                Err(error) => Err(self.damaged(format!("record {}: {error}", index + 1))),
            })
            .collect()
    }

    /// How the run's workers are launched.
    pub(crate) fn settings(&self) -> Result<LaunchSettings, RuntimeError> {
        let row: String = self.durably(|connection| {
            connection.query_row("SELECT launch FROM settings", [], |row| row.get(0))
        })?;
        serde_json::from_str(&row).map_err(|error| self.damaged(format!("settings: {error}")))
    }

    fn damaged(&self, reason: String) -> RuntimeError {
        RuntimeError::Damaged { path: self.path.clone(), reason }
    }

    fn durably<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RuntimeError> {
        work(&self.connection)
            .map_err(|source| RuntimeError::Journal { path: self.path.clone(), source })
    }
}

fn to_json(path: &Path, value: &impl serde::Serialize) -> Result<String, RuntimeError> {
    serde_json::to_string(value).map_err(|error| RuntimeError::Damaged {
        path: path.to_owned(),
        reason: format!("a record can't be written: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use saturn_core::Cluster;
    use saturn_engine::{RunEnd, TaskId};
    use tempfile::TempDir;

    use super::*;

    fn settings() -> LaunchSettings {
        LaunchSettings {
            python: "python3".to_owned(),
            python_path: vec!["/somewhere".to_owned()],
            cwd: PathBuf::from("/"),
            preload: Vec::new(),
            devices: Some(2),
        }
    }

    /// A journal of three records, and the directory that holds it.
    fn written() -> (TempDir, PathBuf, Vec<Record>) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("journal.db");
        let records = vec![
            Record::Resumed { cluster: Cluster::default(), device_memory_bytes: Some(1) },
            Record::Noted { task: TaskId(3), text: "a `word` \"for\" you\n".to_owned() },
            Record::RunEnded { end: RunEnd::Complete },
        ];
        let mut journal = Journal::create(&path, &settings()).unwrap();
        journal.append(&records[..2], 0.25).unwrap();
        journal.append(&[], 0.5).unwrap();
        journal.append(&records[2..], 1.75).unwrap();
        (dir, path, records)
    }

    #[test]
    fn what_was_appended_is_read_back_in_order_with_its_times() {
        let (_dir, path, records) = written();
        let journal = Journal::open_existing(&path).unwrap();
        let times = [0.25, 0.25, 1.75];
        let expected: Vec<_> = records.into_iter().zip(times).collect();
        assert_eq!(journal.records().unwrap(), expected);
        assert_eq!(journal.settings().unwrap().devices, Some(2));
    }

    #[test]
    fn a_decision_is_kept_whole_or_not_at_all() {
        let (_dir, path, _) = written();
        let mut journal = Journal::open_existing(&path).unwrap();
        // A second writer holds the journal: as a full disk would, this makes the commit fail.
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        journal.connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        let decision =
            [Record::Interrupted { at_once: false }, Record::Interrupted { at_once: true }];
        assert!(matches!(journal.append(&decision, 2.0), Err(RuntimeError::Journal { .. })));
        drop(other);
        assert_eq!(journal.records().unwrap().len(), 3);
        journal.append(&decision, 2.0).unwrap();
        assert_eq!(journal.records().unwrap().len(), 5);
    }

    #[test]
    fn damage_is_named() {
        let (_dir, path, _) = written();
        let tamper = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        tamper("UPDATE record SET record = '{\"record\": \"unheard_of\"}' WHERE seq = 2");
        let error = Journal::open_existing(&path).unwrap().records().unwrap_err().to_string();
        assert!(error.contains("record 2") && error.contains("unheard_of"), "{error}");
        tamper("PRAGMA user_version = 9");
        let error = Journal::open_existing(&path).unwrap_err().to_string();
        assert!(error.contains("its version is 9; this program reads 1"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_journal_is_an_error() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("journal.db");
        std::fs::write(&path, "not a database at all, but long enough to look like one".repeat(9))
            .unwrap();
        assert!(matches!(Journal::open_existing(&path), Err(RuntimeError::Journal { .. })));
    }
}
