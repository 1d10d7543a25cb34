//! Where runs, the store and temporary files go: free space, permissions, and whether a run's files
//! work there.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use saturn_runtime::probe;
use saturn_store::{home, io_words, with_causes};
use saturn_view::units::bytes;

use super::finding::{Finding, Mark};

/// Below this, a few checkpoints fill the disk.
const LITTLE_ROOM_BYTES: u64 = 10_000_000_000;
/// Below this, even a run's own small files hardly fit.
const NO_ROOM_BYTES: u64 = 100_000_000;
/// Above this, a slow disk delays runs noticeably, since the driver writes to the journal at every
/// step of a plan.
const SLOW_JOURNAL_S: f64 = 0.5;

/// Examines the directory where runs go, the user's store, and the directory of temporary files.
pub(super) fn examine(runs_dir: &Path) -> Vec<Finding> {
    let mut findings = vec![room("runs directory", runs_dir, "name another directory: runs_dir=")];
    findings.extend([journal(runs_dir), control_socket(runs_dir)]);
    findings.push(match home() {
        Some(home) => {
            let found = room("SATURN_HOME", &home, "set SATURN_HOME to a directory of your own");
            // A run works without the store.
            if found.mark == Mark::Bad { Finding { mark: Mark::Warn, ..found } } else { found }
        }
        None => Finding::warn(
            "SATURN_HOME",
            "neither SATURN_HOME nor HOME is set: what trials measure is not kept for later runs",
            "set SATURN_HOME to a directory of your own",
        ),
    });
    let temporary = std::env::temp_dir();
    findings.push(room("temporary files", &temporary, "set TMPDIR to a directory with room"));
    findings
}

/// Whether files can be written to `path`, and how much space is free.
fn room(subject: &str, path: &Path, advice: &str) -> Finding {
    let there = existing(path);
    let shown = path.display();
    if let Err(error) = tempfile::tempfile_in(&there) {
        let found = format!("nothing can be written to {shown}: {}", io_words(&error));
        return Finding::bad(subject, found, advice);
    }
    let Ok(stat) = statvfs(&there) else { return Finding::ok(subject, shown.to_string()) };
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    let found = format!("{shown}, {} free", bytes(free));
    if free < NO_ROOM_BYTES {
        Finding::bad(subject, found, advice)
    } else if free < LITTLE_ROOM_BYTES && subject == "runs directory" {
        Finding::warn(subject, found, "make room: two checkpoints of each task are kept there")
    } else {
        Finding::ok(subject, found)
    }
}

/// Whether a journal is durable there, and how fast.
fn journal(runs_dir: &Path) -> Finding {
    const SUBJECT: &str = "journal";
    let advice = "choose a directory on a local disk: runs_dir=";
    if let Some(kind) = probe::network_file_system(&existing(runs_dir)) {
        let found = format!("{} is on a network file system ({kind})", runs_dir.display());
        let home = home();
        return match home.filter(|home| probe::network_file_system(&existing(home)).is_none()) {
            Some(home) => {
                let journals = home.join("journals");
                Finding::ok(SUBJECT, format!("{found}; journals go to {}", journals.display()))
            }
            None => Finding::bad(SUBJECT, found, advice),
        };
    }
    match probe::try_journal(&existing(runs_dir)) {
        Err(error) => Finding::bad(SUBJECT, with_causes(&error), advice),
        Ok(took_s) if took_s > SLOW_JOURNAL_S => {
            let found = format!("a journal was written and synced in {took_s:.1} s, which is slow");
            Finding::warn(SUBJECT, found, advice)
        }
        Ok(took_s) => Finding::ok(
            SUBJECT,
            format!("a journal was written and synced in {:.0} ms", took_s * 1e3),
        ),
    }
}

/// Whether a run there could take its user's commands.
fn control_socket(runs_dir: &Path) -> Finding {
    const SUBJECT: &str = "control socket";
    let advice = "choose a directory whose file system has Unix sockets: runs_dir=";
    match probe::try_control_socket(&existing(runs_dir)) {
        Ok(()) => {
            Finding::ok(SUBJECT, "a run takes commands there, such as saturn pause and saturn stop")
        }
        Err(error) => Finding::bad(SUBJECT, with_causes(&error), advice),
    }
}

/// The path itself, or its nearest ancestor that exists: a run makes missing directories.
fn existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find(|one| one.exists());
    there.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_place_that_is_not_there_yet_is_examined_where_it_will_be() {
        let dir = TempDir::new().unwrap();
        let runs = dir.path().join("not/yet");
        assert_eq!(existing(&runs), dir.path());
        assert_ne!(journal(&runs).mark, Mark::Bad, "{:?}", journal(&runs));
        assert_eq!(control_socket(&runs).mark, Mark::Ok, "{:?}", control_socket(&runs));
        let found = room("runs directory", &runs, "");
        assert!(found.found.starts_with(&runs.display().to_string()), "{found:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays behind");
    }

    #[test]
    fn a_file_in_the_way_is_bad() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(room("runs directory", &file, "move it").mark, Mark::Bad);
        assert_eq!(journal(&file).mark, Mark::Bad);
        assert_eq!(control_socket(&file).mark, Mark::Bad);
    }
}
