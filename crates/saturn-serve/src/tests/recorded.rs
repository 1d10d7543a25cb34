//! Recorded runs of `benches/replay`, as run directories with journals.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use tempfile::TempDir;

/// A recorded run, and how many records of it a journal has so far.
pub(super) struct Recorded {
    pub(super) path: PathBuf,
    pub(super) rows: Vec<(f64, String)>,
    written: usize,
    connection: Connection,
}

/// A directory for runs.
pub(super) fn runs() -> TempDir {
    TempDir::new().unwrap()
}

impl Recorded {
    /// The recording of this name, of which the journal has the first `records` records.
    pub(super) fn new(dir: &Path, recording: &str, records: usize) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../benches/replay/runs")
            .join(recording)
            .with_extension("jsonl");
        let text = std::fs::read_to_string(file).unwrap();
        let rows = text.lines().skip(1).map(|line| {
            let line = line.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
            let (at_s, row) = line.split_once(',').unwrap();
            (at_s.trim().parse().unwrap(), row.to_owned())
        });
        let path = dir.join(recording);
        std::fs::create_dir(&path).unwrap();
        let connection = Connection::open(path.join("journal.db")).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection
            .execute_batch(
                "CREATE TABLE record (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL,
                 wall TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, record TEXT NOT NULL);
                 CREATE TABLE settings (launch TEXT NOT NULL);",
            )
            .unwrap();
        let settings = serde_json::json!({
            "python": "python", "python_path": [], "cwd": "/", "preload": [], "devices": null,
            "run_id": recording,
        });
        connection
            .execute("INSERT INTO settings (launch) VALUES (?1)", [settings.to_string()])
            .unwrap();
        connection.pragma_update(None, "user_version", 3).unwrap();
        let mut recorded = Self { path, rows: rows.collect(), written: 0, connection };
        recorded.write(records);
        recorded
    }

    /// Writes further records; at most as many as there are.
    pub(super) fn write(&mut self, records: usize) {
        let end = (self.written.saturating_add(records)).min(self.rows.len());
        for (at_s, row) in &self.rows[self.written..end] {
            self.connection
                .execute("INSERT INTO record (at_s, record) VALUES (?1, ?2)", params![at_s, row])
                .unwrap();
        }
        self.written = end;
    }

    /// Has the run begun long ago.
    pub(super) fn begin_earlier(&self) {
        let sql = "UPDATE record SET wall = '2020-02-29 12:00:00' WHERE seq = 1";
        assert_eq!(self.connection.execute(sql, []).unwrap(), 1);
    }

    /// Records that the journal does not have yet.
    pub(super) fn num_left(&self) -> usize {
        self.rows.len() - self.written
    }

    pub(super) fn num_records(&self) -> usize {
        self.rows.len()
    }
}
