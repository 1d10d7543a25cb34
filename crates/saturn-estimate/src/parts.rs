//! The parts of a step's seconds: their names, and the papers of their formulas.

use std::fmt;

/// A part of a step's seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Matrix products.
    Matrix,
    /// Traffic of activations to and from device memory.
    Activations,
    /// Waiting of the device for the host to launch kernels.
    Launches,
    /// All-reduces of split layers.
    Tensor,
    /// FSDP's gathering and reducing, as far as compute does not hide it.
    Sharding,
    /// Streaming of layers from the host, as far as compute does not hide it.
    Streaming,
    /// The time in which the pipeline fills and drains.
    Bubble,
    /// Transfer of activations from stage to stage.
    HandOver,
    /// Traffic of gradients, as far as the backward pass does not hide it.
    Gradients,
    /// The optimizer's step on the device.
    Optimizer,
    /// The optimizer's step on the host.
    HostOptimizer,
    /// The constant cost of a step of any model.
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

    /// The source of its formula.
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

/// The seconds of one part of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// The part.
    pub part: Part,
    /// Its seconds. All terms of an estimate add up to its seconds.
    pub seconds: f64,
}
