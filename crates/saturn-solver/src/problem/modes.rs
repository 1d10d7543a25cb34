//! Modes: a task's strategies on one kind of device, and which of them are worth choosing.

use saturn_core::Candidate;

/// A strategy on one kind that fits into one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mode {
    /// Devices held.
    pub(crate) gpus: u32,
    /// Seconds.
    pub(crate) runtime: f64,
    /// Index into the task's strategies.
    pub(crate) strategy: u32,
    /// Bytes of host memory; 0 where host memory does not bind.
    pub(crate) host: u64,
}

impl Mode {
    /// GPU-seconds.
    #[inline]
    pub(crate) fn area(&self) -> f64 {
        f64::from(self.gpus) * self.runtime
    }
}

/// A strategy on one kind that takes several nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WideMode {
    /// Devices that the strategy asks for; whole nodes may hold more.
    pub(crate) gpus: u32,
    /// Fewest devices that its nodes can hold together.
    pub(crate) held: u32,
    pub(crate) runtime: f64,
    pub(crate) strategy: u32,
    pub(crate) kind: usize,
    pub(crate) pack: bool,
    /// Bytes of host memory on each node; 0 where host memory does not bind.
    pub(crate) host: u64,
}

/// Narrow modes by the bytes of host memory that a node must have for them.
pub(crate) type ByMemory = Vec<(u64, Vec<Mode>)>;

/// The modes that some node can hold, without the modes that are no faster than a narrower mode.
pub(crate) fn pruned(mut modes: Vec<Mode>, can_hold: impl Fn(&Mode) -> bool) -> Vec<Mode> {
    let mut shortest = f64::INFINITY;
    modes.retain(|mode| {
        let is_faster = mode.runtime < shortest && can_hold(mode);
        if is_faster {
            shortest = mode.runtime;
        }
        is_faster
    });
    modes
}

/// The wide modes that are faster than every narrow mode, without those that a narrower mode is as good
/// as in devices, seconds and bytes. The modes ascend in devices.
pub(crate) fn wide_pruned(modes: Vec<WideMode>, narrow_best: f64) -> Vec<WideMode> {
    let mut kept: Vec<WideMode> = Vec::new();
    for mode in modes {
        let is_dominated = kept.iter().any(|other| {
            other.pack == mode.pack
                && other.gpus <= mode.gpus
                && other.runtime <= mode.runtime
                && other.host <= mode.host
        });
        if mode.runtime < narrow_best && !is_dominated {
            kept.push(mode);
        }
    }
    kept
}

/// For each size of host memory that some mode takes, the modes that take no more, without those that
/// another mode is as good as in devices, seconds and bytes. Where bytes are short, a slow mode that
/// takes few of them is worth choosing.
pub(crate) fn by_memory(modes: &[Mode]) -> ByMemory {
    let mut sizes: Vec<u64> = modes.iter().map(|mode| mode.host).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of_size = |size: u64| {
        let mut kept: Vec<Mode> = Vec::new();
        for mode in modes.iter().filter(|mode| mode.host <= size) {
            let stands_for =
                |other: &Mode| other.runtime <= mode.runtime && other.host <= mode.host;
            if !kept.iter().any(stands_for) {
                kept.push(*mode);
            }
        }
        (size, kept)
    };
    sizes.into_iter().map(of_size).collect()
}

pub(crate) fn holds_on(strategy: &Candidate, kind: &str) -> bool {
    strategy.gpu_type.as_deref().is_none_or(|wanted| wanted == kind)
}
