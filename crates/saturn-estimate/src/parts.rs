//! The parts of a step's seconds: their names, and the papers that their formulas are from.

use std::fmt;

/// What a part of a step's seconds goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Matrix products.
    Matrix,
    /// Activations that go to and from device memory.
    Activations,
    /// The device waits for the host, which launches kernels.
    Launches,
    /// All-reduces of split layers.
    Tensor,
    /// FSDP's gathering and reducing that the compute does not hide.
    Sharding,
    /// Layers that are streamed from the host, as far as the compute does not hide them.
    Streaming,
    /// The pipeline fills and drains.
    Bubble,
    /// Activations go from stage to stage.
    HandOver,
    /// Gradient traffic that the backward pass does not hide.
    Gradients,
    /// The optimizer on the device.
    Optimizer,
    /// The optimizer on the host.
    HostOptimizer,
    /// What a step of any model costs.
    Constant,
}

impl Part {
    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix products",
            Self::Activations => "activations' memory traffic",
            Self::Launches => "waiting for kernel launches",
            Self::Tensor => "tensor-parallel traffic",
            Self::Sharding => "sharding traffic not hidden",
            Self::Streaming => "layers from the host",
            Self::Bubble => "pipeline bubble",
            Self::HandOver => "pipeline hand-overs",
            Self::Gradients => "gradient traffic not hidden",
            Self::Optimizer => "optimizer",
            Self::HostOptimizer => "optimizer on the host",
            Self::Constant => "constant of a step",
        }
    }

    /// Where the formula is from.
    pub fn source(self) -> &'static str {
        match self {
            Self::Matrix => "Megatron, arXiv 2104.04473",
            Self::Activations => "bytes kept: arXiv 2205.05198; moved for each: counted",
            Self::Launches => "kernels counted, seconds of each fitted",
            Self::Tensor => "Shoeybi et al., arXiv 1909.08053; nccl-tests",
            Self::Sharding => "ZeRO, arXiv 1910.02054; FSDP, arXiv 2304.11277",
            Self::Streaming => "ZeRO-Offload, arXiv 2101.06840",
            Self::Bubble | Self::HandOver => "1F1B of Megatron, arXiv 2104.04473",
            Self::Gradients => "nccl-tests; overlap: Rubick, arXiv 2408.08586",
            Self::Optimizer => "bytes a parameter, fitted",
            Self::HostOptimizer => "Rubick, arXiv 2408.08586; ZeRO-Offload, arXiv 2101.06840",
            Self::Constant => "fitted",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A part of a step's seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// What they go into.
    pub part: Part,
    /// How many; all terms of an estimate add up to its seconds.
    pub seconds: f64,
}
