//! Parts of the logs of a task's workers.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use saturn_runtime::logs::{AttemptKind, AttemptLogs, attempts, newest};

use crate::answers::data::{LogAttempt, LogPart, LogQuery};
use crate::answers::failure::{Failure, FailureKind};

/// The most bytes of a part.
const MAX_BYTES: u64 = 1 << 20;

/// A part of a log of the task in this directory.
pub(super) fn part(task_dir: &Path, query: &LogQuery) -> Result<LogPart, Failure> {
    let failed = |error: io::Error| {
        let reason = format!("failed to read the logs: {}", saturn_store::io_words(&error));
        FailureKind::Internal.because(reason)
    };
    let mut all = attempts(task_dir).map_err(failed)?;
    let listed = all.iter().map(|one| LogAttempt {
        attempt: one.number,
        is_training: one.kind == AttemptKind::Training,
        strategy: one.strategy.clone(),
    });
    let listed: Vec<LogAttempt> = listed.collect();
    let chosen: Option<AttemptLogs> = match query.attempt {
        Some(number) => {
            let at = all.iter().position(|one| one.number == number).ok_or_else(|| {
                FailureKind::NotThere.because(format!("there are no logs of an attempt {number}"))
            })?;
            Some(all.swap_remove(at))
        }
        None => newest(all),
    };
    let mut part = LogPart {
        attempts: listed,
        attempt: chosen.as_ref().map(|one| one.number),
        ranks: Vec::new(),
        rank: None,
        from: 0,
        to: 0,
        size: 0,
        text: String::new(),
    };
    let Some(chosen) = chosen else { return Ok(part) };
    let mut ranks = chosen.ranks().map_err(failed)?;
    ranks.sort_unstable();
    part.ranks = ranks.iter().map(|(rank, _)| *rank).collect();
    let found = match query.rank {
        Some(wanted) => ranks.into_iter().find(|(rank, _)| *rank == wanted).ok_or_else(|| {
            FailureKind::NotThere.because(format!("there is no log of a rank {wanted}"))
        })?,
        None => match ranks.into_iter().next() {
            Some(first) => first,
            None => return Ok(part),
        },
    };
    part.rank = Some(found.0);
    read(&found.1, query, &mut part).map_err(failed)?;
    Ok(part)
}

fn read(path: &Path, query: &LogQuery, part: &mut LogPart) -> io::Result<()> {
    let mut file = match File::open(path) {
        // The attempt's directory was removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    part.size = file.metadata()?.len();
    let most = query.bytes.clamp(1, MAX_BYTES);
    let from = query.from.unwrap_or(part.size.saturating_sub(most)).min(part.size);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    // A tail begins with a whole line. A part ends with a whole character, which the next part
    // would begin with otherwise.
    let mut skipped = 0;
    if query.from.is_none() && from > 0 {
        skipped = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    }
    let end = bytes.len() - torn(&bytes);
    let kept = &bytes[skipped.min(end)..end];
    part.from = from + skipped.min(end) as u64;
    part.to = part.from + kept.len() as u64;
    part.text = String::from_utf8_lossy(kept).into_owned();
    Ok(())
}

/// The number of bytes at the end that begin a character and do not complete it.
fn torn(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        if byte & 0b1100_0000 == 0b1000_0000 {
            continue;
        }
        let length = match byte {
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            _ => 1,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_in_parts_of_whole_characters_and_from_its_end() {
        let task = tempfile::tempdir().unwrap();
        let wanted = |from, bytes| LogQuery { from, bytes, ..LogQuery::default() };
        assert_eq!(part(task.path(), &wanted(None, 9)).unwrap().attempt, None);
        let attempt = task.path().join("attempts/3");
        std::fs::create_dir_all(&attempt).unwrap();
        let spec = r#"{"kind":"train","technique":{"name":"ddp"},"gpus":1}"#;
        std::fs::write(attempt.join("spec.json"), spec).unwrap();
        assert_eq!(part(task.path(), &wanted(None, 9)).unwrap().ranks, [0u32; 0]);
        std::fs::write(attempt.join("rank-0.log"), "one\ntwö\nthree\n").unwrap();
        let whole = part(task.path(), &wanted(None, 1000)).unwrap();
        assert_eq!((whole.text.as_str(), whole.to, whole.size), ("one\ntwö\nthree\n", 15, 15));
        let tail = part(task.path(), &wanted(None, 8)).unwrap();
        assert_eq!((tail.text.as_str(), tail.from), ("three\n", 9));
        let (mut from, mut text) = (0, String::new());
        while from < 15 {
            let next = part(task.path(), &wanted(Some(from), 7)).unwrap();
            assert!(next.to > from && !next.text.contains('\u{fffd}'), "{next:?}");
            text += &next.text;
            from = next.to;
        }
        assert_eq!(text, "one\ntwö\nthree\n");
        let no_rank = LogQuery { rank: Some(4), ..wanted(None, 9) };
        assert_eq!(part(task.path(), &no_rank).unwrap_err().kind, FailureKind::NotThere);
        let no_attempt = LogQuery { attempt: Some(4), ..wanted(None, 9) };
        assert_eq!(part(task.path(), &no_attempt).unwrap_err().kind, FailureKind::NotThere);
    }
}
