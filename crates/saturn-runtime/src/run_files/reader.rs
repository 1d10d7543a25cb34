//! Reads a run's journal as it grows, without delaying the process that drives the run.
//!
//! The first read checks the whole journal. Each later read takes only the rows that came since,
//! so that following a run costs as much as its news. Nothing is written, and no lock is held
//! between two reads.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use saturn_engine::migrate::VERSION;
use saturn_engine::{Record, State};
use saturn_view::History;

use crate::run_files::contents::{Contents, reading};
use crate::run_files::plans::Rows;
use crate::run_files::run_dir::journal_of;
use crate::system::error::RuntimeError;

/// A run as its journal tells of it so far.
#[derive(Debug)]
pub struct RunReader {
    journal: PathBuf,
    read: Option<SoFar>,
}

/// What was read.
#[derive(Debug)]
struct SoFar {
    /// The version of the journal's file. A driver that resumes the run translates an old file.
    version: i64,
    /// The run's id in the journal's settings, so that another run of the same path is noticed.
    run_id: String,
    rows: Rows,
    /// The number of records that were read, which is the number of the last row.
    num_records: u64,
    state: State,
    history: History,
}

/// A record as it is read, with its number in the journal, counted from 1.
#[derive(Debug)]
pub struct ReadRecord<'a> {
    /// Its number.
    pub number: u64,
    /// When it was made, seconds on the run's clock.
    pub at_s: f64,
    /// The record.
    pub record: &'a Record,
    /// The state after it.
    pub state: &'a State,
    /// The history after it.
    pub history: &'a History,
}

/// What a journal says of itself, without its records being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalHead {
    /// The id of the run: another run of the same directory has another.
    pub run_id: String,
    /// The number of its newest record.
    pub newest: u64,
    /// When its first record was written, seconds of Unix time.
    pub begun_unix_s: u64,
}

/// The head of a run's journal.
pub fn journal_head(run_dir: &Path) -> Result<JournalHead, RuntimeError> {
    let journal = journal_of(run_dir);
    reading(&journal, &|connection| {
        let failed = |source| RuntimeError::Journal { path: journal.clone(), source };
        let settings: String = connection
            .query_row("SELECT launch FROM settings", [], |row| row.get(0))
            .map_err(failed)?;
        let settings: serde_json::Value = serde_json::from_str(&settings).unwrap_or_default();
        let newest: Option<i64> = connection
            .query_row("SELECT max(seq) FROM record", [], |row| row.get(0))
            .map_err(failed)?;
        let begun: Option<i64> = connection
            .query_row(
                "SELECT CAST(strftime('%s', wall) AS INTEGER) FROM record WHERE seq = 1",
                [],
                |row| row.get(0),
            )
            .unwrap_or_default();
        Ok(JournalHead {
            run_id: settings["run_id"].as_str().unwrap_or_default().to_owned(),
            newest: newest.and_then(|newest| newest.try_into().ok()).unwrap_or_default(),
            begun_unix_s: begun.and_then(|begun| begun.try_into().ok()).unwrap_or_default(),
        })
    })
}

/// When a record was written, as in `2026-11-28T20:37:48Z`; `None` if that is not known.
pub fn written_at(run_dir: &Path, number: u64) -> Option<String> {
    let number = i64::try_from(number).ok()?;
    let sql = "SELECT wall FROM record WHERE seq = ?1";
    let wall: Option<String> = reading(&journal_of(run_dir), &|connection| {
        Ok(connection.query_row(sql, [number], |row| row.get(0)).ok())
    })
    .ok()
    .flatten();
    // SQLite writes `2026-11-28 20:37:48`, in UTC.
    wall.map(|wall| wall.replace(' ', "T") + "Z")
}

/// Rows that are new to a reader.
struct News {
    rows: Vec<(f64, String)>,
}

impl RunReader {
    /// A reader of the run in this directory, which has read nothing yet.
    pub fn new(run_dir: &Path) -> Self {
        Self { journal: journal_of(run_dir), read: None }
    }

    /// Reads the records that came since the last call, and tells each. Begins again with the
    /// first record if the journal is another one now; `begin` is called before the first.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoRun`] and the other errors of journals. The reader then stands where it
    /// stood, unless a record could not be decoded: it begins again with the next call.
    pub fn advance(
        &mut self,
        mut begin: impl FnMut(),
        mut told: impl FnMut(ReadRecord<'_>),
    ) -> Result<(), RuntimeError> {
        if let Some(news) = self.news()? {
            let Some(so_far) = &mut self.read else { return Ok(()) };
            let mut damage = None;
            for (at_s, row) in news.rows {
                match so_far.rows.read(&row) {
                    Ok(record) => so_far.apply(&record, at_s, &mut told),
                    Err(error) => {
                        damage = Some(format!("record {}: {error}", so_far.num_records + 1));
                        break;
                    }
                }
            }
            return match damage {
                None => Ok(()),
                Some(reason) => {
                    self.read = None;
                    Err(RuntimeError::Damaged { path: self.journal.clone(), reason })
                }
            };
        }
        self.read = None;
        let contents = Contents::read(&self.journal)?;
        begin();
        let Some((Record::Began { config }, _)) = contents.records.first() else {
            return Err(RuntimeError::Damaged {
                path: self.journal.clone(),
                reason: "its first record is not a run's beginning".to_owned(),
            });
        };
        let mut so_far = SoFar {
            version: contents.version,
            run_id: contents.settings.run_id.clone(),
            rows: Rows::after(&contents.records),
            num_records: 0,
            state: State::new(config.clone()),
            history: History::default(),
        };
        for (record, at_s) in &contents.records {
            so_far.apply(record, *at_s, &mut told);
        }
        self.read = Some(so_far);
        Ok(())
    }

    /// The run's state and history, and the number of the last record that they hold; `None` before
    /// the first read.
    pub fn run(&self) -> Option<(&State, &History, u64)> {
        self.read.as_ref().map(|read| (&read.state, &read.history, read.num_records))
    }

    /// The id of the run that was read: another run of the same directory has another.
    pub fn run_id(&self) -> Option<&str> {
        self.read.as_ref().map(|read| read.run_id.as_str())
    }

    /// Notes how far a live attempt is, which no record says.
    pub fn observe(
        &mut self,
        attempt: saturn_engine::AttemptId,
        step: u64,
        loss: Option<f64>,
        at_s: f64,
    ) {
        if let Some(read) = &mut self.read {
            read.state.observe(attempt, step, loss, None, at_s);
        }
    }

    /// The rows that came since the last read; `None` if the journal has to be read from its
    /// beginning.
    fn news(&self) -> Result<Option<News>, RuntimeError> {
        let Some(known) = self.read.as_ref().filter(|read| read.version > 1) else {
            return Ok(None);
        };
        reading(&self.journal, &|connection| {
            let news = known.news(connection);
            news.map_err(|source| RuntimeError::Journal { path: self.journal.clone(), source })
        })
    }
}

impl SoFar {
    fn apply(&mut self, record: &Record, at_s: f64, told: &mut impl FnMut(ReadRecord<'_>)) {
        self.num_records += 1;
        self.state.apply(record, at_s);
        self.history.record(&self.state, record, at_s);
        let (state, history) = (&self.state, &self.history);
        told(ReadRecord { number: self.num_records, at_s, record, state, history });
    }

    fn news(&self, connection: &Connection) -> rusqlite::Result<Option<News>> {
        let snapshot = connection.unchecked_transaction()?;
        let version: i64 = snapshot.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let last: Option<i64> =
            snapshot.query_row("SELECT max(seq) FROM record", [], |row| row.get(0))?;
        let settings: String =
            snapshot.query_row("SELECT launch FROM settings", [], |row| row.get(0))?;
        let settings: serde_json::Value = serde_json::from_str(&settings).unwrap_or_default();
        let is_same_run = settings["run_id"].as_str().unwrap_or_default() == self.run_id;
        let known = i64::try_from(self.num_records).unwrap_or(i64::MAX);
        let is_longer = last.is_some_and(|last| last >= known);
        if version != self.version || version > VERSION || !is_same_run || !is_longer {
            return Ok(None);
        }
        let mut rows =
            snapshot.prepare("SELECT at_s, record FROM record WHERE seq > ?1 ORDER BY seq")?;
        let rows = rows.query_map([known], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Some(News { rows: rows.collect::<rusqlite::Result<_>>()? }))
    }
}
