//! Which programs compute on this machine's GPUs now, whoever runs them.
//!
//! NVML tells their processes, and `/proc` who owns them. Processes that `/proc` does not show are
//! left out: in a container, NVML names the processes of the whole machine by numbers that mean
//! nothing here, and this run's own are among them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Uid, User, geteuid};
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use saturn_view::units;

use crate::system::processes::{stat_of, variable_of};

/// Where Linux shows processes.
const PROC: &str = "/proc";
/// The variable that names its run to each process that a run launches, and to all that these start.
pub(crate) const RUN_VARIABLE: &str = "SATURN_RUN_ID";
/// How many parents of a process may be asked for its run.
const MAX_PARENTS: u32 = 16;
/// A service of NVIDIA's that computes for others, whose own processes are listed too.
const MPS: &str = "nvidia-cuda-mps";

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    /// `tomas (python, 31 GB)`.
    pub(crate) text: String,
    pub(crate) whose: Whose,
}

/// Which run a process belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    /// It is a rank of the run with this id, or such a rank has started it.
    Run(String),
    /// It belongs to no run of this user.
    Others,
    /// It runs as this user, and its environment can't be read.
    Unknown,
}

/// The programs on each GPU that has any, by the GPU's UUID.
pub(crate) type Programs = BTreeMap<String, Vec<Program>>;

/// Whether a run is to leave GPUs alone that others use: not if a person has named its GPUs for this
/// process. A run remembers which these were (`LaunchSettings::shared_gpus`).
pub(crate) fn is_to_be_left() -> bool {
    std::env::var_os("CUDA_VISIBLE_DEVICES").is_none()
}

/// The programs on this machine's GPUs, but for this one. None where the driver can't tell.
pub(crate) fn look() -> Programs {
    let Ok(nvml) = Nvml::init() else { return Programs::new() };
    let devices = (0..nvml.device_count().unwrap_or(0)).filter_map(|index| {
        let device = nvml.device_by_index(index).ok()?;
        let found = device.running_compute_processes().ok()?;
        let me = std::process::id();
        let others = found.into_iter().filter(|one| one.pid != me);
        let programs = others.filter_map(|one| {
            let bytes = match one.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            program(Path::new(PROC), one.pid, bytes)
        });
        let programs: Vec<Program> = programs.collect();
        (!programs.is_empty()).then_some(())?;
        Some((device.uuid().ok()?, programs))
    });
    devices.collect()
}

/// The process of this number, which holds so many bytes of a GPU; `None` if it can't be seen, or
/// computes for others.
fn program(proc: &Path, pid: u32, bytes: Option<u64>) -> Option<Program> {
    let process = proc.join(pid.to_string());
    let uid = fs::metadata(&process).ok()?.uid();
    let name = fs::read_to_string(process.join("comm")).ok()?;
    let name = name.trim();
    if name.starts_with(MPS) {
        return None;
    }
    let owner = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let owner = owner.map_or_else(|| format!("user {uid}"), |user| user.name);
    let memory = bytes.filter(|bytes| *bytes > 0).map(units::bytes);
    let memory = memory.map_or_else(String::new, |memory| format!(", {memory}"));
    Some(Program { pid, text: format!("{owner} ({name}{memory})"), whose: whose(proc, pid, uid) })
}

/// Whose a process of this user id is, by its environment.
fn whose(proc: &Path, pid: u32, uid: u32) -> Whose {
    match run_of(proc, pid) {
        Some(run) => Whose::Run(run),
        None if uid == geteuid().as_raw()
            && fs::read(proc.join(pid.to_string()).join("environ")).is_err() =>
        {
            Whose::Unknown
        }
        None => Whose::Others,
    }
}

/// The run that launched a process, by the process's environment or a parent's: a process may write
/// over its own environment, as programs do that change their titles.
fn run_of(proc: &Path, pid: u32) -> Option<String> {
    let mut process = proc.join(pid.to_string());
    for _ in 0..MAX_PARENTS {
        let run = variable_of(&process, RUN_VARIABLE);
        if run.is_some() {
            return run;
        }
        let parent = stat_of(&process)?.parent;
        if parent <= 1 {
            return None;
        }
        process = proc.join(parent.to_string());
    }
    None
}

/// The programs on one GPU in words.
pub(crate) fn in_words<'a>(programs: impl IntoIterator<Item = &'a Program>) -> String {
    let mut texts: Vec<&str> = programs.into_iter().map(|one| one.text.as_str()).collect();
    let num_more = texts.len().saturating_sub(2);
    let more = format!("{num_more} more");
    if num_more > 0 {
        texts.truncate(2);
        texts.push(&more);
    }
    texts.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_owner_its_name_and_its_memory() {
        let me = program(Path::new(PROC), std::process::id(), Some(31_000_000_000)).unwrap();
        let owner = User::from_uid(geteuid()).unwrap().unwrap().name;
        assert!(me.text.starts_with(&format!("{owner} (")), "{}", me.text);
        assert!(me.text.ends_with(", 31.0 GB)"), "{}", me.text);
        assert_eq!(program(Path::new(PROC), u32::MAX, None), None, "nobody has this number");
    }

    #[test]
    fn services_that_compute_for_others_do_not_count() {
        let proc = tempfile::TempDir::new().unwrap();
        let comm = |pid: u32, name: &str| {
            let process = proc.path().join(pid.to_string());
            fs::create_dir(&process).unwrap();
            fs::write(process.join("comm"), name).unwrap();
        };
        comm(7, "nvidia-cuda-mps-server\n");
        comm(8, "python\n");
        assert_eq!(program(proc.path(), 7, None), None);
        let text = program(proc.path(), 8, None).unwrap().text;
        assert!(text.ends_with(" (python)"), "{text}");
    }

    #[test]
    fn a_rank_and_what_it_has_started_are_known_by_their_run() {
        let proc = tempfile::TempDir::new().unwrap();
        let process = |pid: u32, parent: u32, environment: &str| {
            let process = proc.path().join(pid.to_string());
            fs::create_dir(&process).unwrap();
            fs::write(process.join("environ"), environment).unwrap();
            fs::write(process.join("stat"), format!("{pid} (a) b) S {parent} 1 1")).unwrap();
        };
        process(10, 1, "HOME=/h\0SATURN_RUN_ID=r1\0");
        process(11, 10, "it has written over its environment");
        process(12, 11, "");
        process(20, 1, "HOME=/h\0");
        process(21, 20, "MY_SATURN_RUN_ID=r1\0");
        let runs = [10, 11, 12, 20, 21, 99].map(|pid| run_of(proc.path(), pid));
        let run = Some("r1".to_owned());
        assert_eq!(runs, [run.clone(), run.clone(), run, None, None, None]);
        let me = geteuid().as_raw();
        assert_eq!(whose(proc.path(), 12, me), Whose::Run("r1".to_owned()));
        assert_eq!(whose(proc.path(), 21, me), Whose::Others);
        assert_eq!(whose(proc.path(), 99, me), Whose::Unknown, "it can't be read");
        assert_eq!(whose(proc.path(), 99, me + 1), Whose::Others, "another user's");
    }

    #[test]
    fn many_programs_are_counted() {
        let program = |pid| Program { pid, text: format!("p{pid}"), whose: Whose::Others };
        let many: Vec<Program> = (1..=4).map(program).collect();
        assert_eq!(in_words(&many[..1]), "p1");
        assert_eq!(in_words(&many[..2]), "p1 and p2");
        assert_eq!(in_words(&many), "p1 and p2 and 2 more");
    }
}
