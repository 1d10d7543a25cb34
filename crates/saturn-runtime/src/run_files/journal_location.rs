//! The place of a run's journal: in the run's directory, or on this machine's own disk if that
//! directory is on a network file system. In the second case the run's directory has a link to the
//! journal.
//!
//! `SQLite` can't trust locks and syncs on a network file system
//! (<https://sqlite.org/faq.html#q5>). It follows the link, so that readers on this machine see no
//! difference. On another machine the link is broken, so a run can only be continued, and asked
//! about, where it began. The link's path contains that machine's name.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use nix::unistd::gethostname;
use saturn_store::home;

use crate::run_files::run_dir::{journal_of, network_file_system_of};
use crate::system::error::RuntimeError;
use crate::system::run_id::new_run_id;

/// Makes sure that a run's journal is, or will be, on a file system that can be trusted.
pub(crate) fn move_off_network_disk(run: &Path) -> Result<(), RuntimeError> {
    let Some(kind) = network_file_system_of(run) else { return Ok(()) };
    let refused = || RuntimeError::NetworkFileSystem { path: run.to_owned(), kind };
    let home = home().ok_or_else(refused)?;
    // The home may not exist yet.
    let known = home.ancestors().find(|path| path.exists());
    if known.and_then(network_file_system_of).is_some() {
        return Err(refused());
    }
    keep_in(&home, run, kind)
}

/// Keeps the journal of a run on a network file system below `home`, with a link in the run's
/// directory.
fn keep_in(home: &Path, run: &Path, kind: &'static str) -> Result<(), RuntimeError> {
    let link = journal_of(run);
    if link.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
        // The run began on another file system and was moved.
        return Err(RuntimeError::NetworkFileSystem { path: run.to_owned(), kind });
    }
    if link.is_symlink() {
        return match elsewhere(run) {
            None => Ok(()),
            Some(reason) => Err(RuntimeError::NoRun { path: run.to_owned(), reason }),
        };
    }
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    let host = gethostname().ok().and_then(|name| name.into_string().ok());
    let host = host.unwrap_or_else(|| "unnamed".to_owned());
    let directory = home.join("journals").join(host).join(format!("{name}-{}", new_run_id()?));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(RuntimeError::file("create", &directory))?;
    symlink(directory.join("journal.db"), &link).map_err(RuntimeError::file("link", &link))
}

/// Where to ask about a run whose journal is on another machine; `None` if it is not.
pub fn elsewhere(run: &Path) -> Option<String> {
    let target = journal_of(run).read_link().ok().filter(|target| !target.exists())?;
    // HOME/journals/HOST/NAME-ID/journal.db
    let host = target.ancestors().nth(2)?.file_name()?.to_string_lossy().into_owned();
    Some(format!(
        "its journal is on another machine, `{host}`, at {}: resume the run, or ask about it, on \
         that machine",
        target.display()
    ))
}

/// Why a directory without a journal is not a run on this machine.
pub(crate) fn missing(run: &Path) -> String {
    elsewhere(run).unwrap_or_else(|| "it has no journal.db".to_owned())
}

#[cfg(test)]
mod tests {
    use saturn_engine::{DeviceKind, Mode, Policy, Record, RunConfig};

    use super::*;
    use crate::launching::settings::LaunchSettings;
    use crate::run_files::contents::Contents;
    use crate::run_files::journal::Journal;
    use saturn_store::Disk;

    #[test]
    fn a_journal_is_kept_on_this_machine_and_found_by_its_link() {
        let (home, run) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
        keep_in(home.path(), run.path(), "NFS").unwrap();
        let link = journal_of(run.path());
        let settings: LaunchSettings = serde_json::from_value(serde_json::json!({
            "python": "python", "python_path": [], "cwd": "/", "preload": [], "devices": null,
            "run_id": "one",
        }))
        .unwrap();
        let config = RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cpu,
            device_memory_bytes: None,
            techniques: Vec::new(),
            policy: Policy::default(),
        };
        let began = [Record::Began { config }];
        let mut journal = Journal::create(&link, &settings, &began, Disk::default()).unwrap();
        // The files that SQLite puts beside the journal are there too.
        let names = |directory: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(directory).unwrap();
            let mut names: Vec<String> =
                entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(run.path()), ["journal.db"]);
        let there = link.read_link().unwrap();
        assert!(there.starts_with(home.path().join("journals")));
        assert!(names(there.parent().unwrap()).contains(&"journal.db-wal".to_owned()));
        // Others read it while the run goes on.
        journal.append(&[Record::Closed], 1.0).unwrap();
        assert_eq!(Contents::read(&link).unwrap().records.len(), 2);
        drop(journal);
        // The same machine resumes the run.
        keep_in(home.path(), run.path(), "NFS").unwrap();
        let mut num_records = 0;
        Journal::open(&link, Disk::default(), &mut |_, _| num_records += 1).unwrap();
        assert_eq!(num_records, 2);
        // Another machine, simulated by removing the link's target.
        std::fs::remove_dir_all(home.path().join("journals")).unwrap();
        let error = keep_in(home.path(), run.path(), "NFS").unwrap_err().to_string();
        let host = gethostname().unwrap().into_string().unwrap();
        assert!(error.contains(&format!("its journal is on another machine, `{host}`")), "{error}");
        let error = Contents::read(&link).unwrap_err().to_string();
        assert!(error.contains("or ask about it, on that machine"), "{error}");
    }

    #[test]
    fn a_journal_that_lies_on_the_network_is_refused() {
        let (home, run) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
        std::fs::write(journal_of(run.path()), "").unwrap();
        let error = keep_in(home.path(), run.path(), "NFS").unwrap_err().to_string();
        assert!(error.contains("is on a network file system (NFS)"), "{error}");
    }
}
