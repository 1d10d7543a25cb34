//! The machine's own memory: how much a run may take, and whether the kernel killed a process
//! because memory ran out. Also the other limits of control groups.
//!
//! The numbers come from `/proc` and from the control groups (version 2) of this process. If these
//! can't be read, they limit nothing.

use std::fs;
use std::path::{Path, PathBuf};

use saturn_engine::MachineMemory;

/// The memory of this machine for a new run; `None` if it can't be read.
pub(crate) fn of_machine() -> Option<MachineMemory> {
    let available_bytes = available_bytes()?;
    let groups = control_groups();
    let limits = groups.iter().filter_map(|group| limit_of(group));
    let total_bytes = limits.chain(total_bytes()).min().map_or(available_bytes, |total| {
        // Two readings of a machine at work may differ.
        total.max(available_bytes)
    });
    Some(MachineMemory { available_bytes, ..total_bytes.into() })
}

/// How much memory a new run may take, bytes: the least of what is available now and what each
/// control group still allows.
pub(crate) fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let groups = control_groups();
    let allowed = groups.iter().filter_map(|group| allowed_by(group));
    allowed.chain(machine).min()
}

/// The machine's total memory, bytes.
pub(crate) fn total_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    kilobytes(&text, "MemTotal:")
}

/// How many cores' worth of time the control groups allow this process; `None`: no limit.
pub(crate) fn allowed_cores() -> Option<f64> {
    let limits = control_groups().into_iter().filter_map(|group| {
        let text = fs::read_to_string(group.join("cpu.max")).ok()?;
        cores_in(&text)
    });
    limits.min_by(f64::total_cmp)
}

/// How many processes and threads the control groups allow this process; `None`: no limit.
pub(crate) fn allowed_processes() -> Option<u64> {
    let texts =
        control_groups().into_iter().map(|group| fs::read_to_string(group.join("pids.max")));
    texts.filter_map(|text| text.ok()?.trim().parse().ok()).min()
}

/// Counts the processes that the kernel killed because memory ran out, to find out whether a dead
/// rank was one of them.
#[derive(Debug)]
pub(crate) struct OomKills {
    sources: Vec<PathBuf>,
    /// How many of the kernel's kills have been assigned to a dead rank or forgotten.
    seen: u64,
}

impl OomKills {
    /// Starts counting now.
    pub(crate) fn from_now() -> Self {
        let groups = control_groups();
        let events = groups.iter().map(|group| group.join("memory.events"));
        let sources = events.chain([PathBuf::from("/proc/vmstat")]).collect();
        Self::reading(sources)
    }

    fn reading(sources: Vec<PathBuf>) -> Self {
        let mut kills = Self { sources, seen: 0 };
        kills.seen = kills.count();
        kills
    }

    /// Whether there was a kill that is not assigned to a dead rank yet. Assigns it.
    pub(crate) fn take_one(&mut self) -> bool {
        let is_new = self.count() > self.seen;
        self.seen += u64::from(is_new);
        is_new
    }

    /// Forgets earlier kills. Called when a gang starts, since those kills were not of its ranks.
    pub(crate) fn forget(&mut self) {
        self.seen = self.count();
    }

    /// The number of kills so far. The kernel counts a kill for the machine and for each control
    /// group above the process, so the largest count includes all of them.
    fn count(&self) -> u64 {
        let texts = self.sources.iter().filter_map(|source| fs::read_to_string(source).ok());
        texts.filter_map(|text| value_of(&text, "oom_kill")).max().unwrap_or(0)
    }
}

/// The control groups of this process, innermost first.
fn control_groups() -> Vec<PathBuf> {
    let Ok(text) = fs::read_to_string("/proc/self/cgroup") else { return Vec::new() };
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let root = Path::new("/sys/fs/cgroup");
    Path::new(path).ancestors().map(|group| root.join(group)).collect()
}

/// How much memory a control group still allows, bytes; `None` if it has no limit. Cached pages of
/// files don't count as used, since the kernel can drop them.
fn allowed_by(group: &Path) -> Option<u64> {
    let limit = limit_of(group)?;
    let used = number_in(&group.join("memory.current")).unwrap_or(0);
    let files = fs::read_to_string(group.join("memory.stat")).ok();
    let files = files.and_then(|text| value_of(&text, "file")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

/// How much memory a control group allows in all, bytes; `None` if it has no limit.
fn limit_of(group: &Path) -> Option<u64> {
    number_in(&group.join("memory.max"))
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn available(meminfo: &str) -> Option<u64> {
    kilobytes(meminfo, "MemAvailable:")
}

/// The value in a line of `/proc/meminfo`, bytes.
fn kilobytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The cores' worth of time that a line of `cpu.max` allows. The line has microseconds in each
/// period, or `max`.
fn cores_in(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// The number that follows a name at the start of a line.
fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_is_available_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:       24576000 kB\nMemAvailable:   20480000 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(20_480_000 * 1024));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert!(total_bytes() >= available_bytes());
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        let all = of_machine().unwrap();
        assert!(all.total_bytes > all.available_bytes, "this test itself takes memory: {all:?}");
    }

    #[test]
    fn a_control_group_leaves_its_limit_less_what_cannot_be_dropped() {
        let group = TempDir::new().unwrap();
        assert_eq!(allowed_by(group.path()), None);
        fs::write(group.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(allowed_by(group.path()), None);
        fs::write(group.path().join("memory.max"), "1000\n").unwrap();
        fs::write(group.path().join("memory.current"), "700\n").unwrap();
        fs::write(group.path().join("memory.stat"), "anon 300\nfile 400\nfile_mapped 7\n").unwrap();
        assert_eq!(allowed_by(group.path()), Some(700));
        assert_eq!(limit_of(group.path()), Some(1000));
    }

    #[test]
    fn a_control_group_allows_shares_of_cores() {
        assert_eq!(cores_in("150000 100000\n"), Some(1.5));
        assert_eq!(cores_in("max 100000\n"), None);
    }

    #[test]
    fn each_kill_is_accounted_to_one_death() {
        let directory = TempDir::new().unwrap();
        let (group, machine) = (directory.path().join("events"), directory.path().join("vmstat"));
        let write = |in_group: u32, in_all: u32| {
            fs::write(&group, format!("oom 9\noom_kill {in_group}\noom_group_kill 0\n")).unwrap();
            fs::write(&machine, format!("pgfault 3\noom_kill {in_all}\n")).unwrap();
        };
        write(0, 4);
        let mut kills = OomKills::reading(vec![group.clone(), machine.clone()]);
        assert!(!kills.take_one(), "those were before");
        write(2, 6);
        assert!(kills.take_one() && kills.take_one());
        assert!(!kills.take_one());
        write(3, 7);
        kills.forget();
        assert!(!kills.take_one());
        assert!(!OomKills::reading(vec![directory.path().join("none")]).take_one());
    }
}
