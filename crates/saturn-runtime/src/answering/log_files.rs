//! The output of a task's workers: the logs of its attempts' ranks, in the run directory.
//!
//! When an attempt ended well and a later attempt did too, the driver removes the earlier attempt's
//! directory. Lines that were not read by then are lost.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// An attempt and where its logs are.
#[derive(Debug)]
pub struct AttemptLogs {
    /// Its number; later attempts have higher ones.
    pub number: u64,
    /// What it does.
    pub kind: AttemptKind,
    /// Technique and device count, in words; empty for an inspection, which has none.
    pub strategy: String,
    directory: PathBuf,
}

/// What an attempt does. Of kinds that follow each other, the later says more about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptKind {
    /// It builds the model and calls the loader once. A task whose own functions raise may have no
    /// other attempt.
    Inspection,
    /// It measures a strategy.
    Trial,
    /// It trains.
    Training,
}

/// The fields of an attempt's `spec.json` that are needed here. An inspection has no strategy.
#[derive(Deserialize)]
struct Spec {
    kind: String,
    technique: Option<Technique>,
    gpus: Option<u32>,
}

#[derive(Deserialize)]
struct Technique {
    name: String,
}

impl AttemptLogs {
    /// The ranks that have a log, each with the log's path, in no order.
    pub fn ranks(&self) -> io::Result<Vec<(u32, PathBuf)>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let rank = name.strip_prefix("rank-").and_then(|name| name.strip_suffix(".log"));
            let Some(rank) = rank.and_then(|rank| rank.parse().ok()) else { continue };
            found.push((rank, path));
        }
        Ok(found)
    }
}

/// The attempts of the task in `task_dir`, the earliest first. An attempt whose spec is not written
/// yet is left out.
pub fn attempts(task_dir: &Path) -> io::Result<Vec<AttemptLogs>> {
    let entries = match std::fs::read_dir(task_dir.join("attempts")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let directory = entry?.path();
        let number = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
        let spec = std::fs::read(directory.join("spec.json")).ok();
        let spec = spec.and_then(|text| serde_json::from_slice::<Spec>(&text).ok());
        let (Some(number), Some(spec)) = (number, spec) else { continue };
        let kind = match spec.kind.as_str() {
            "train" => AttemptKind::Training,
            "inspect" => AttemptKind::Inspection,
            _ => AttemptKind::Trial,
        };
        let strategy = match (spec.technique, spec.gpus) {
            (Some(technique), Some(1)) => format!("{} on 1 device", technique.name),
            (Some(technique), Some(gpus)) => format!("{} on {gpus} devices", technique.name),
            _ => String::new(),
        };
        found.push(AttemptLogs { number, kind, strategy, directory });
    }
    found.sort_by_key(|attempt| attempt.number);
    Ok(found)
}

/// The newest attempt that trains, or else the newest trial, or else the newest inspection.
pub fn newest(attempts: Vec<AttemptLogs>) -> Option<AttemptLogs> {
    attempts.into_iter().max_by_key(|attempt| (attempt.kind, attempt.number))
}

/// The logs of an attempt, read as they grow.
#[derive(Debug)]
pub struct Logs {
    /// The attempt.
    pub attempt: AttemptLogs,
    only: Option<u32>,
    /// By rank.
    tails: Vec<Tail>,
}

impl Logs {
    /// Reads from the beginning of the logs; with `only`, only that rank's log.
    pub fn of(attempt: AttemptLogs, only: Option<u32>) -> Self {
        Self { attempt, only, tails: Vec::new() }
    }

    /// Whole lines that came since the last call, with their ranks. With `all`, also the unfinished
    /// last line.
    pub fn take(&mut self, all: bool) -> io::Result<Vec<(u32, String)>> {
        self.find_ranks()?;
        let mut lines = Vec::new();
        for tail in &mut self.tails {
            let rank = tail.rank;
            lines.extend(tail.take(all)?.into_iter().map(|line| (rank, line)));
        }
        Ok(lines)
    }

    /// How many ranks have a log.
    pub fn num_ranks(&self) -> usize {
        self.tails.len()
    }

    fn find_ranks(&mut self) -> io::Result<()> {
        for (rank, path) in self.attempt.ranks()? {
            let is_wanted = self.only.is_none_or(|only| only == rank);
            if is_wanted && self.tails.iter().all(|tail| tail.rank != rank) {
                self.tails.push(Tail { rank, path, num_read: 0, begun: Vec::new() });
            }
        }
        self.tails.sort_by_key(|tail| tail.rank);
        Ok(())
    }
}

/// A rank's log.
#[derive(Debug)]
struct Tail {
    rank: u32,
    path: PathBuf,
    /// Bytes that were read.
    num_read: u64,
    /// The beginning of a line that has no end yet.
    begun: Vec<u8>,
}

impl Tail {
    fn take(&mut self, all: bool) -> io::Result<Vec<String>> {
        match File::open(&self.path) {
            Ok(mut file) => {
                file.seek(SeekFrom::Start(self.num_read))?;
                let had = self.begun.len();
                file.read_to_end(&mut self.begun)?;
                self.num_read += (self.begun.len() - had) as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let end = match self.begun.iter().rposition(|byte| *byte == b'\n') {
            _ if all => self.begun.len(),
            Some(newline) => newline + 1,
            None => 0,
        };
        let whole: Vec<u8> = self.begun.drain(..end).collect();
        Ok(String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use tempfile::TempDir;

    use super::*;

    fn attempt(task: &Path, number: u64, kind: &str) -> PathBuf {
        let directory = task.join(format!("attempts/{number}"));
        std::fs::create_dir_all(&directory).unwrap();
        let spec = serde_json::json!({
            "kind": kind, "technique": {"name": "ddp"}, "gpus": 2, "more": 1,
        });
        std::fs::write(directory.join("spec.json"), spec.to_string()).unwrap();
        directory
    }

    #[test]
    fn the_newest_attempt_that_trains_is_chosen() {
        let task = TempDir::new().unwrap();
        let chosen = || newest(attempts(task.path()).unwrap()).map(|one| (one.number, one.kind));
        assert_eq!(chosen(), None);
        // An inspection's spec names all techniques, and no devices.
        let inspection = task.path().join("attempts/8");
        std::fs::create_dir_all(&inspection).unwrap();
        let spec = r#"{"kind": "inspect", "techniques": [{"name": "ddp"}]}"#;
        std::fs::write(inspection.join("spec.json"), spec).unwrap();
        assert_eq!(chosen(), Some((8, AttemptKind::Inspection)));
        attempt(task.path(), 9, "trial");
        assert_eq!(chosen(), Some((9, AttemptKind::Trial)));
        attempt(task.path(), 10, "train");
        attempt(task.path(), 11, "trial");
        // Its spec is being written.
        std::fs::create_dir_all(task.path().join("attempts/12")).unwrap();
        assert_eq!(chosen(), Some((10, AttemptKind::Training)));
    }

    #[test]
    fn lines_come_once_and_whole() {
        let task = TempDir::new().unwrap();
        let directory = attempt(task.path(), 1, "train");
        let chosen = newest(attempts(task.path()).unwrap()).unwrap();
        assert_eq!(chosen.strategy, "ddp on 2 devices");
        let mut logs = Logs::of(chosen, None);
        assert_eq!(logs.take(true).unwrap(), []);
        let path = directory.join("rank-0.log");
        let mut text = "one\ntw".to_owned();
        std::fs::write(&path, &text).unwrap();
        assert_eq!(logs.take(false).unwrap(), [(0, "one".to_owned())]);
        assert_eq!(logs.take(false).unwrap(), []);
        write!(text, "o\nthr").unwrap();
        std::fs::write(&path, &text).unwrap();
        std::fs::write(directory.join("rank-1.log"), b"od\xffd\n").unwrap();
        let lines = [(0, "two".to_owned()), (1, "od\u{fffd}d".to_owned())];
        assert_eq!(logs.take(false).unwrap(), lines);
        assert_eq!(logs.take(true).unwrap(), [(0, "thr".to_owned())]);
        assert_eq!(logs.num_ranks(), 2);
        let mut second = Logs::of(newest(attempts(task.path()).unwrap()).unwrap(), Some(1));
        assert_eq!(second.take(true).unwrap(), lines[1..]);
    }
}
