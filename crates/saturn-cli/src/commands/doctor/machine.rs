//! The doctor's view of devices, driver, memory and limits on processes.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use saturn_runtime::probe::Machine;
use saturn_store::{io_words, with_causes};
use saturn_view::units::{bytes, count};

use super::finding::Finding;

/// Below this, ranks leave little memory for models: each needs some for itself.
const LITTLE_MEMORY_BYTES: u64 = 4_000_000_000;
/// Batches of loaders with workers, and NCCL's buffers, are passed through shared memory.
const LITTLE_SHARED_BYTES: u64 = 1_000_000_000;
/// A run holds a file and a connection for each rank, and some more for each loader's worker.
const FEW_FILES: u64 = 1024;
/// A rank has tens of threads, which count as processes.
const FEW_PROCESSES: u64 = 1024;
/// Where systems and containers put the memory that processes share.
const SHARED_MEMORY: &str = "/dev/shm";

/// Examines the machine.
pub(super) fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = gpus(machine);
    findings.extend([cores(machine.num_cores, machine.allowed_cores), held(machine)]);
    findings.extend(used_outside(&machine.used_outside));
    findings.extend([memory(machine), shared_memory(Path::new(SHARED_MEMORY))]);
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    findings.extend(open_files(&limits));
    findings.extend(processes(&limits, machine.allowed_processes));
    findings.extend(locked_memory(&limits));
    findings
}

fn gpus(machine: &Machine) -> Vec<Finding> {
    let gpus = match &machine.gpus {
        Ok(gpus) => gpus,
        Err(why) => {
            let advice = "repair the driver (does nvidia-smi work?), or set CUDA_VISIBLE_DEVICES \
                          to the GPUs that are there; until then runs train on CPU slots";
            return vec![Finding::bad("GPUs", why.as_str(), advice)];
        }
    };
    if let Some(others) = &machine.other_gpus {
        return vec![Finding::warn(
            "GPUs",
            others.as_str(),
            "runs train on CPU slots; for GPUs, use a machine with those of NVIDIA",
        )];
    }
    if gpus.is_empty() {
        let hidden = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        return vec![match (nvidia_cards(Path::new("/sys/bus/pci/devices")), hidden) {
            (0, _) => Finding::ok("GPUs", "no NVIDIA GPU: runs train on CPU slots"),
            (cards, Some(hidden)) => Finding::warn(
                "GPUs",
                format!("{} in the machine, of which none is used", count(cards, "NVIDIA card")),
                format!("CUDA_VISIBLE_DEVICES is `{hidden}`: unset it to use them"),
            ),
            (cards, None) => Finding::warn(
                "GPUs",
                format!("{} in the machine, but no driver", count(cards, "NVIDIA card")),
                "install NVIDIA's driver, or start the container with --gpus all; until then runs \
                 train on CPU slots",
            ),
        }];
    }
    let each: Vec<String> = gpus
        .iter()
        .map(|(model, memory_bytes)| format!("{model} ({})", bytes(*memory_bytes)))
        .collect();
    let driver = machine.driver.as_deref().unwrap_or("of unknown version");
    vec![
        Finding::ok("GPUs", format!("{}: {}", gpus.len(), each.join(", "))),
        Finding::ok("driver", driver),
    ]
}

/// The number of NVIDIA's display and compute cards that the kernel lists, with or without a
/// driver.
fn nvidia_cards(devices: &Path) -> usize {
    let is_card = |path: &Path| {
        let text = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        text("vendor").trim() == "0x10de" && text("class").starts_with("0x03")
    };
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    entries.filter(|entry| is_card(&entry.path())).count()
}

fn cores(num: usize, allowed: Option<f64>) -> Finding {
    let there = count(num, "core");
    match allowed {
        Some(allowed) if allowed < num as f64 - 0.01 => Finding::warn(
            "cores",
            format!("{there}, of which the control group allows the time of {allowed:.1}"),
            "CPU slots would share cores, and trials would measure wrong times: give the container \
             whole cores (--cpuset-cpus), or each run fewer CPU slots (devices=)",
        ),
        _ => Finding::ok("cores", format!("{there} that this process may use")),
    }
}

fn held(machine: &Machine) -> Finding {
    const SUBJECT: &str = "device locks";
    match &machine.held {
        Err(error) => Finding::bad(
            SUBJECT,
            with_causes(error),
            "set SATURN_LOCKS_DIR to a directory of your own, the same one for all runs",
        ),
        Ok(held) if held.is_empty() => Finding::ok(SUBJECT, "no run holds a device"),
        Ok(held) => {
            let held: Vec<String> =
                held.iter().map(|(device, holder)| format!("{device}: {holder}")).collect();
            Finding::warn(
                SUBJECT,
                format!("runs hold devices: {}", held.join(", ")),
                "a new run takes the devices that are free; saturn runs DIR lists the runs in DIR",
            )
        }
    }
}

/// GPUs that other programs use; `None` if there is none.
fn used_outside(used: &[(String, String)]) -> Option<Finding> {
    let used: Vec<String> = used.iter().map(|(gpu, user)| format!("{gpu}: {user}")).collect();
    (!used.is_empty()).then(|| {
        Finding::warn(
            "other programs",
            format!("GPUs are used outside Saturn: {}", used.join(", ")),
            "runs leave them alone until they are free; to use one all the same, name it in \
             CUDA_VISIBLE_DEVICES",
        )
    })
}

fn memory(machine: &Machine) -> Finding {
    const SUBJECT: &str = "host memory";
    let (Some(total), Some(available)) = (machine.memory_bytes, machine.available_bytes) else {
        let found = "/proc/meminfo can't be read";
        return Finding::warn(
            SUBJECT,
            found,
            "say how much memory a run may take: host_memory=\"16GB\"",
        );
    };
    let found = format!("{}, of which runs may take {}", bytes(total), bytes(available));
    if available < LITTLE_MEMORY_BYTES {
        let advice = "end other programs that hold memory, or give the container more: each rank \
                      needs about half a gigabyte besides its part of the model";
        Finding::warn(SUBJECT, found, advice)
    } else {
        Finding::ok(SUBJECT, found)
    }
}

fn shared_memory(path: &Path) -> Finding {
    let subject = "shared memory";
    let advice = "give the container more (--shm-size=8g), or use DataLoaders with num_workers=0";
    let tried = tempfile::tempfile_in(path);
    let (Ok(_), Ok(stat)) = (&tried, statvfs(path)) else {
        let error = tried.err().map(|error| io_words(&error)).unwrap_or_default();
        let found = format!("{} can't be used: {error}", path.display());
        return Finding::bad(
            subject,
            found,
            "mount a tmpfs there: NCCL and DataLoaders with workers need shared memory",
        );
    };
    let size = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
    let free = size(stat.blocks_available());
    let found =
        format!("{} in {}, {} free", bytes(size(stat.blocks())), path.display(), bytes(free));
    if free < LITTLE_SHARED_BYTES {
        Finding::warn(subject, found, advice)
    } else {
        Finding::ok(subject, found)
    }
}

fn open_files(limits: &str) -> Option<Finding> {
    let (soft, hard) = limit(limits, "Max open files")?;
    let found = most(soft, "a process");
    Some(if soft.is_some_and(|soft| soft < FEW_FILES) {
        let allowed = most(hard, "").trim_end().to_owned();
        let advice = format!("before a run: ulimit -n {FEW_FILES} (allowed: {allowed})");
        Finding::warn("open files", found, advice)
    } else {
        Finding::ok("open files", found)
    })
}

fn processes(limits: &str, allowed: Option<u64>) -> Option<Finding> {
    let (soft, _) = limit(limits, "Max processes")?;
    let least = [soft, allowed].into_iter().flatten().min();
    let found = most(least, "processes and threads");
    Some(if least.is_some_and(|least| least < FEW_PROCESSES) {
        let advice = "raise the limit (ulimit -u, or the container's --pids-limit): each rank has \
                      tens of threads";
        Finding::warn("processes", found, advice)
    } else {
        Finding::ok("processes", found)
    })
}

fn locked_memory(limits: &str) -> Option<Finding> {
    let (soft, _) = limit(limits, "Max locked memory")?;
    let found =
        soft.map_or_else(|| "no limit".to_owned(), |soft| format!("at most {}", bytes(soft)));
    // InfiniBand's verbs pin the memory that they transfer, within this limit. CUDA's driver pins
    // memory too, but needs no limit.
    let has_infiniband =
        fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some());
    Some(if has_infiniband && soft.is_some() {
        let advice = "NCCL may fail to open InfiniBand: raise the limit (ulimit -l unlimited), or \
                      set NCCL_IB_DISABLE=1";
        Finding::warn("locked memory", found, advice)
    } else {
        Finding::ok("locked memory", found)
    })
}

/// The soft and the hard limit in a line of `/proc/self/limits`. An inner `None` means unlimited.
fn limit(text: &str, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn most(limit: Option<u64>, of: &str) -> String {
    limit.map_or_else(|| "no limit".to_owned(), |limit| format!("at most {limit} {of}"))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::commands::doctor::finding::Mark;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                          Max processes             512                  95870                processes\n\
                          Max open files            256                  524288               files\n\
                          Max locked memory         unlimited            unlimited            bytes\n";

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let files = open_files(LIMITS).unwrap();
        assert_eq!(files.mark, Mark::Warn);
        assert_eq!(files.advice.unwrap(), "before a run: ulimit -n 1024 (allowed: at most 524288)");
        assert_eq!(open_files("Max open files   4096  4096  files\n").unwrap().mark, Mark::Ok);
        assert_eq!(processes(LIMITS, None).unwrap().mark, Mark::Warn);
        let many = "Max processes   unlimited   unlimited   processes\n";
        assert_eq!(processes(many, None).unwrap().found, "no limit");
        assert_eq!(processes(many, Some(100)).unwrap().mark, Mark::Warn);
        assert_eq!(locked_memory(LIMITS).unwrap().mark, Mark::Ok);
        assert_eq!(open_files(""), None);
    }

    #[test]
    fn a_share_of_the_cores_is_warned_of() {
        assert_eq!(cores(4, None).mark, Mark::Ok);
        assert_eq!(cores(4, Some(4.0)).mark, Mark::Ok);
        assert_eq!(cores(4, Some(2.0)).mark, Mark::Warn);
    }

    #[test]
    fn cards_without_a_driver_are_seen() {
        let devices = TempDir::new().unwrap();
        for (slot, vendor, class) in
            [("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")]
        {
            let device = devices.path().join(slot);
            fs::create_dir(&device).unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
        }
        assert_eq!(nvidia_cards(devices.path()), 1);
        assert_eq!(nvidia_cards(Path::new("/nowhere")), 0);
    }

    #[test]
    fn without_shared_memory_nothing_is_shared() {
        assert_eq!(shared_memory(Path::new("/nowhere")).mark, Mark::Bad);
        let there = TempDir::new().unwrap();
        assert_ne!(shared_memory(there.path()).mark, Mark::Bad);
    }
}
