//! Numbers that no data sheet has: the shares of peaks that real kernels reach, and costs of
//! software.
//!
//! The fitted constants come from those rows of `benches/profile/a800-measured.csv` that have
//! equally many devices on each node; `tests/all/fit.rs` fits them again. The other constants are
//! counted or cited, as their comments say.

/// Shares of peaks, and costs of software.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// The share of the peak that matrix products reach. Fitted.
    pub matrix: f64,
    /// Bytes moved to and from device memory for each byte of activations that is kept. This covers
    /// forward and backward, with one kernel for each operation. Counted, not fitted.
    pub moved_eager: f64,
    /// The same with fused kernels, where an activation is written once and read twice, and its
    /// gradient is written and read.
    pub moved_fused: f64,
    /// Seconds that the host needs to launch a kernel. Fitted.
    pub launch_s: f64,
    /// The share of the bandwidth inside a node that a ring reaches. Fitted.
    pub link: f64,
    /// The share of the bandwidth between nodes that a ring reaches. Fitted.
    pub network: f64,
    /// The share of the host bus that copies reach: 25 GB/s of PCIe 4's 31.5 with pinned memory.
    pub bus: f64,
    /// How well backward pass and gradient traffic overlap: 1 is not at all, infinity is completely
    /// (Rubick). Fitted.
    pub overlap: f64,
    /// The same under FSDP, which gathers layers ahead. Not fitted: no measured row has FSDP.
    pub overlap_fsdp: f64,
    /// Bytes moved to and from device memory for each parameter by an unfused AdamW step with
    /// clipping. Fitted.
    pub adam_bytes: f64,
    /// The same for a fused step. It reads parameter, gradient and two moments, writes three of
    /// them, and computes the norm.
    pub adam_fused_bytes: f64,
    /// Core-seconds that AdamW on the host takes for each parameter (Rubick). Fitted.
    pub host_core_s: f64,
    /// Seconds for each parameter and node that more host cores do not shorten, since host memory
    /// limits them. Fitted.
    pub host_memory_s: f64,
    /// Seconds of a step that no other part explains: loader, logging, synchronising. Fitted.
    pub constant_s: f64,
    /// Seconds of latency for each rank of a collective.
    pub latency_s: f64,
    /// Bytes of a device that the model can't use: context, collective buffers, workspace.
    pub reserve_bytes: f64,
    /// Bytes that the allocator holds for each byte in use.
    pub fragmentation: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            matrix: 0.645,
            moved_eager: 9.0,
            moved_fused: 5.0,
            launch_s: 4.5e-6,
            link: 0.56,
            network: 0.64,
            bus: 0.8,
            overlap: 1.0,
            overlap_fsdp: 4.0,
            adam_bytes: 126.0,
            adam_fused_bytes: 36.0,
            host_core_s: 1.3e-8,
            host_memory_s: 3.15e-10,
            constant_s: 2.74e-2,
            latency_s: 2e-5,
            reserve_bytes: 1.2e9,
            fragmentation: 1.05,
        }
    }
}
