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
    /// It trains; otherwise it is a trial.
    pub is_training: bool,
    /// Technique and device count, in words.
    pub strategy: String,
    directory: PathBuf,
}

/// The fields of an attempt's `spec.json` that are needed here.
#[derive(Deserialize)]
struct Spec {
    kind: String,
    technique: Technique,
    gpus: u32,
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
        let devices = if spec.gpus == 1 { "device" } else { "devices" };
        found.push(AttemptLogs {
            number,
            is_training: spec.kind == "train",
            strategy: format!("{} on {} {devices}", spec.technique.name, spec.gpus),
            directory,
        });
    }
    found.sort_by_key(|attempt| attempt.number);
    Ok(found)
}

/// The newest attempt that trains, or else the newest trial.
pub fn newest(mut attempts: Vec<AttemptLogs>) -> Option<AttemptLogs> {
    let training = attempts.iter().rposition(|attempt| attempt.is_training);
    training.map(|index| attempts.swap_remove(index)).or_else(|| attempts.pop())
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
        let chosen =
            || newest(attempts(task.path()).unwrap()).map(|one| (one.number, one.is_training));
        assert_eq!(chosen(), None);
        attempt(task.path(), 9, "trial");
        assert_eq!(chosen(), Some((9, false)));
        attempt(task.path(), 10, "train");
        attempt(task.path(), 11, "trial");
        // Its spec is being written.
        std::fs::create_dir_all(task.path().join("attempts/12")).unwrap();
        assert_eq!(chosen(), Some((10, true)));
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
