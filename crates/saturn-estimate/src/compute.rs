//! Seconds of computation for one micro-batch on one device.
//!
//! A forward pass takes 2 FLOP for each parameter in matrix products and token, 4·s·h FLOP for each
//! token and layer for attention, and the FLOP of the head. A backward pass takes twice as many.
//! Checkpointing adds one forward pass (Megatron). Between matrix products, activations go to
//! device memory and back. A pass takes at least the time in which the host launches its kernels.

use crate::constants::Constants;
use crate::device::Device;
use crate::error::EstimateError;
use crate::kept;
use crate::memory::logits;
use crate::shape::Shape;
use crate::strategy::Strategy;
use crate::workload::{Attention, Workload};

/// The number of kernels in a layer's forward pass: in plain torch, and fused.
const KERNELS_EAGER: f64 = 30.0;
const KERNELS_FUSED: f64 = 12.0;
/// The number of parameter tensors in a layer.
pub(crate) const TENSORS: f64 = 12.0;

/// FLOP of a forward pass.
#[derive(Debug, Clone, Copy)]
struct Flops {
    layers: f64,
    attention: f64,
    head: f64,
}

impl Flops {
    fn of(shape: &Shape, workload: &Workload, samples: f64) -> Self {
        let (h, tokens) = (f64::from(shape.hidden), workload.tokens(samples));
        let s = f64::from(workload.sequence);
        Self {
            layers: 2.0 * shape.body() * tokens,
            attention: 4.0 * s * h * f64::from(shape.layers) * tokens,
            head: 2.0 * f64::from(shape.vocabulary) * h * tokens,
        }
    }
}

/// The FLOP of a step that the model itself needs: forward and backward, without the second forward
/// pass of checkpointing.
pub(crate) fn model_flops(shape: &Shape, workload: &Workload) -> f64 {
    let flops = Flops::of(shape, workload, f64::from(workload.batch));
    3.0 * (flops.layers + flops.attention + flops.head)
}

/// The seconds of a pass, by part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    pub(crate) matrix: f64,
    pub(crate) activations: f64,
    pub(crate) launches: f64,
}

impl Pass {
    fn new(matrix: f64, activations: f64, kernels_s: f64) -> Self {
        Self { matrix, activations, launches: (kernels_s - matrix - activations).max(0.0) }
    }

    pub(crate) fn total(&self) -> f64 {
        self.matrix + self.activations + self.launches
    }
}

/// The forward and the backward pass of one micro-batch on one device.
pub(crate) fn passes(
    shape: &Shape,
    workload: &Workload,
    device: &Device,
    strategy: &Strategy,
    constants: &Constants,
) -> Result<[Pass; 2], EstimateError> {
    let peak = device.peak(workload.precision)?;
    let samples = f64::from(strategy.micro.max(1));
    let flops = Flops::of(shape, workload, samples);
    let part = 1.0 / f64::from(strategy.tensor * strategy.pipeline);
    let rate = peak * constants.matrix;
    // Flash attention may reach a smaller share of the peak than other matrix products.
    let slower = match (workload.attention, &device.attention_share) {
        (Attention::Flash, Some(figure)) => (constants.matrix / figure.value).max(1.0),
        _ => 1.0,
    };
    let body_s = (flops.layers + flops.attention * slower) * part / rate;
    let head_s = flops.head * part / rate;
    let moved = if workload.is_fused() { constants.moved_fused } else { constants.moved_eager };
    let layers = f64::from(shape.layers) / f64::from(strategy.pipeline);
    let kept = layers * kept::moved(shape, workload, strategy.tensor, samples)
        + logits(shape, workload, strategy, samples) / f64::from(strategy.pipeline);
    // The forward pass moves a third of these bytes.
    let moved_s = kept * moved / device.memory_bytes_s.value / 3.0;
    let kernels = if workload.is_fused() { KERNELS_FUSED } else { KERNELS_EAGER };
    let kernels_s = layers * kernels * constants.launch_s;
    let again = f64::from(u8::from(strategy.checkpointing));
    Ok([
        Pass::new(body_s + head_s, moved_s, kernels_s),
        Pass::new(
            2.0 * (body_s + head_s) + again * body_s,
            (2.0 + again) * moved_s,
            (2.0 + again) * kernels_s,
        ),
    ])
}
