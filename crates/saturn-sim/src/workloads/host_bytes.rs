//! What a gang takes of a node's host memory, worked out from what the engine promises.
//!
//! In this world the optimizer's state is twice the size of the trained parameters. Every trial
//! that can run measures the same bytes on each device.

use saturn_core::{Finding, Inspection, Strategy};
use saturn_engine::DeviceKind;

use crate::workloads::truth::PEAK_MEMORY_BYTES;

/// A strategy on a type of device, of a model that was inspected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taker<'a> {
    pub(crate) found: &'a Inspection,
    pub(crate) kind: DeviceKind,
    pub(crate) strategy: &'a Strategy,
    pub(crate) gpu_type: &'a str,
    pub(crate) is_measured: bool,
}

impl Taker<'_> {
    /// Bytes of host memory that this many ranks on one node take: the weights, or the ranks'
    /// training state in host memory if that is larger.
    pub(crate) fn bytes(self, ranks: u64) -> u64 {
        let Self { found, kind, strategy, is_measured, .. } = self;
        let gpus = u64::from(strategy.gpus);
        let least = self.least_of_a_device().map(|least| least * gpus);
        let of_all = match kind {
            DeviceKind::Cuda => least.map_or(0, |held| state_bytes(found).saturating_sub(held)),
            DeviceKind::Cpu => {
                let peak = if is_measured { PEAK_MEMORY_BYTES * gpus } else { 0 };
                peak.max(least.unwrap_or(0))
            }
        };
        found.parameter_bytes.max(of_all / gpus.max(1) * ranks)
    }

    /// Bytes that each device holds at least, if that is known.
    fn least_of_a_device(self) -> Option<u64> {
        let Self { found, strategy, gpu_type, .. } = self;
        let mut of_it = found.verdicts.iter().filter(|one| {
            one.technique == strategy.technique
                && one.gpus == strategy.gpus
                && one.gpu_type == gpu_type
        });
        match of_it.next()?.finding {
            Finding::CanRun { least_memory_bytes, .. } => least_memory_bytes,
            Finding::NotApplicable { .. } | Finding::OutOfMemory { .. } => None,
        }
    }
}

/// Parameters, gradients, and twice as much of the optimizer's state.
fn state_bytes(found: &Inspection) -> u64 {
    found.parameter_bytes + 3 * found.trainable_bytes
}
