//! A workload: batch, sample length, precision, optimizer and kernels of a training.

use std::str::FromStr;

/// The arithmetic of a step, as a task's `precision` and `tf32` name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Float32 without tensor cores, which is torch's default.
    Fp32,
    /// Float32, with matrix products in TF32.
    Tf32,
    /// Autocast to float16: parameters and gradients stay float32.
    Fp16,
    /// Autocast to bfloat16: parameters and gradients stay float32.
    Bf16,
    /// FSDP gathers and computes in bfloat16, and its shards are float32.
    Bf16Params,
}

impl Precision {
    /// Every precision, with its name.
    pub const ALL: [(Self, &str); 5] = [
        (Self::Fp32, "fp32"),
        (Self::Tf32, "tf32"),
        (Self::Fp16, "fp16"),
        (Self::Bf16, "bf16"),
        (Self::Bf16Params, "bf16-params"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }

    /// Bytes of an activation.
    pub(crate) fn activation_bytes(self) -> f64 {
        if self.is_low() { 2.0 } else { 4.0 }
    }

    /// Bytes of a gathered parameter, and of each number that a layer passes to the next on its
    /// device.
    pub(crate) fn stream_bytes(self) -> f64 {
        if self == Self::Bf16Params { 2.0 } else { 4.0 }
    }

    /// Whether activations have two bytes.
    pub(crate) fn is_low(self) -> bool {
        matches!(self, Self::Fp16 | Self::Bf16 | Self::Bf16Params)
    }
}

impl FromStr for Precision {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        named(&Self::ALL, text)
    }
}

/// The optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimizer {
    /// AdamW, or Adam: two float32 numbers a parameter.
    AdamW,
    /// SGD without momentum: no state.
    Sgd,
    /// SGD with momentum: one float32 number a parameter.
    Momentum,
}

impl Optimizer {
    /// Every optimizer, with its name.
    pub const ALL: [(Self, &str); 3] =
        [(Self::AdamW, "adamw"), (Self::Sgd, "sgd"), (Self::Momentum, "sgd-momentum")];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }

    /// Bytes of its state for each parameter.
    pub(crate) fn state_bytes(self) -> f64 {
        match self {
            Self::AdamW => 8.0,
            Self::Sgd => 0.0,
            Self::Momentum => 4.0,
        }
    }

    /// The work of a step relative to AdamW's, by the bytes that a fused step reads and writes (28
    /// for AdamW).
    pub(crate) fn work(self) -> f64 {
        (12.0 + 2.0 * self.state_bytes()) / 28.0
    }
}

impl FromStr for Optimizer {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        named(&Self::ALL, text)
    }
}

/// The error of an unknown name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it has no such value; known are {0}")]
pub struct UnknownName(String);

fn named<T: Copy>(all: &[(T, &str)], text: &str) -> Result<T, UnknownName> {
    let found = all.iter().find(|(_, name)| *name == text).map(|(one, _)| *one);
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    found.ok_or_else(|| UnknownName(names.join(", ")))
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Scores are kept for the backward pass.
    Eager,
    /// Scores are computed twice and never kept, as in torch's `sdpa` and flash attention.
    Flash,
}

/// How the operations between matrix products are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// One kernel an operation, as plain torch does; dropout keeps masks.
    Eager,
    /// Fused kernels, loss and optimizer; no dropout.
    Fused,
}

/// What an estimate needs to know of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// The samples of a step, over all devices.
    pub batch: u32,
    /// The tokens of a sample, or the patches of an image.
    pub sequence: u32,
    /// The arithmetic.
    pub precision: Precision,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// How attention is computed.
    pub attention: Attention,
    /// How operations between matrix products are computed.
    pub kernels: Kernels,
}

impl Workload {
    /// The number of tokens in this many samples.
    pub(crate) fn tokens(&self, samples: f64) -> f64 {
        samples * f64::from(self.sequence)
    }

    pub(crate) fn is_fused(&self) -> bool {
        self.kernels == Kernels::Fused
    }
}
