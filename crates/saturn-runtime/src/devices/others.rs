//! GPUs of other makers, which Saturn does not use: a person is told so, and does not wonder why
//! training is slow.
//!
//! They are counted from what Linux shows under `/sys`, without any library of theirs. Graphics that
//! are part of a processor don't count: nobody trains large models on them.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux shows its devices.
pub(super) const SYS: &str = "/sys";
/// Intel's number among the makers of PCI devices.
const INTEL: &str = "0x8086";
/// Where Intel's processors have their own graphics on the PCI bus.
const INTEL_IN_PROCESSOR: &str = "0000:00:02.0";

/// The GPUs of other makers, in words; `None` if the machine has none.
pub(super) fn look(sys: &Path) -> Option<String> {
    let found = [("AMD", num_amd(sys)), ("Intel", num_intel(sys))];
    let words = |(maker, number): (&str, usize)| match number {
        0 => None,
        1 => Some(format!("1 GPU of {maker}")),
        more => Some(format!("{more} GPUs of {maker}")),
    };
    let found: Vec<String> = found.into_iter().filter_map(words).collect();
    if found.is_empty() {
        return None;
    }
    Some(format!("the machine has {}, and Saturn uses only GPUs of NVIDIA", found.join(" and ")))
}

/// Nodes of AMD's driver for computing that have GPU cores and no processor cores.
fn num_amd(sys: &Path) -> usize {
    let is_gpu = |node: &PathBuf| {
        let properties = fs::read_to_string(node.join("properties")).unwrap_or_default();
        let number = |name: &str| {
            let values = properties.lines().filter_map(|line| line.split_once(' '));
            let mut values = values.filter(|(key, _)| *key == name);
            values.next().and_then(|(_, value)| value.trim().parse::<u64>().ok())
        };
        number("simd_count").is_some_and(|cores| cores > 0) && number("cpu_cores_count") == Some(0)
    };
    entries(&sys.join("class/kfd/kfd/topology/nodes")).iter().filter(|node| is_gpu(node)).count()
}

/// Intel's devices that draw or compute, except for those in processors.
fn num_intel(sys: &Path) -> usize {
    let is_gpu = |node: &PathBuf| {
        let is_render = node
            .file_name()
            .is_some_and(|name| name.to_str().is_some_and(|name| name.starts_with("renderD")));
        let device = node.join("device");
        let vendor = fs::read_to_string(device.join("vendor")).unwrap_or_default();
        let address = fs::canonicalize(&device).unwrap_or_default();
        is_render && vendor.trim() == INTEL && !address.ends_with(INTEL_IN_PROCESSOR)
    };
    entries(&sys.join("class/drm")).iter().filter(|node| is_gpu(node)).count()
}

/// The entries of a folder; none if the folder can't be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes `sys` show a node of AMD's driver with these cores.
    pub(crate) fn amd(sys: &Path, node: u32, processor_cores: u32, gpu_cores: u32) {
        let path = sys.join(format!("class/kfd/kfd/topology/nodes/{node}/properties"));
        write(&path, &format!("cpu_cores_count {processor_cores}\nsimd_count {gpu_cores}\n"));
    }

    fn drawing(sys: &Path, name: &str, address: &str, vendor: &str) {
        let device = sys.join("devices").join(address);
        write(&device.join("vendor"), vendor);
        let node = sys.join("class/drm").join(name);
        fs::create_dir_all(&node).unwrap();
        std::os::unix::fs::symlink(device, node.join("device")).unwrap();
    }

    #[test]
    fn gpus_of_amd_and_intel_are_counted_and_graphics_in_processors_are_not() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(look(sys.path()), None, "an empty machine");
        amd(sys.path(), 0, 64, 0);
        amd(sys.path(), 1, 16, 12);
        drawing(sys.path(), "renderD128", "0000:00:02.0", "0x8086\n");
        drawing(sys.path(), "card1", "0000:03:00.0", "0x8086\n");
        drawing(sys.path(), "renderD129", "0000:04:00.0", "0x10de\n");
        assert_eq!(look(sys.path()), None, "processors, and a GPU of NVIDIA without its driver");
        amd(sys.path(), 2, 0, 304);
        amd(sys.path(), 3, 0, 304);
        let one = "the machine has 2 GPUs of AMD, and Saturn uses only GPUs of NVIDIA";
        assert_eq!(look(sys.path()).unwrap(), one);
        drawing(sys.path(), "renderD130", "0000:05:00.0", "0x8086\n");
        let two = "the machine has 2 GPUs of AMD and 1 GPU of Intel, and Saturn uses only GPUs of \
                   NVIDIA";
        assert_eq!(look(sys.path()).unwrap(), two);
    }
}
