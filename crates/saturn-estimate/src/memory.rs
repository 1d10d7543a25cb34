//! Bytes of the fullest device, by part.
//!
//! Parameters, gradients and optimizer state are counted as in ZeRO (arXiv 1910.02054). Parameters
//! are float32, as Saturn keeps them.

use crate::constants::Constants;
use crate::kept;
use crate::shape::Shape;
use crate::strategy::{HostState, Sharding, Strategy};
use crate::workload::Workload;

/// Bytes of a parameter; its gradient has as many.
const PARAMETER: f64 = 4.0;
/// The parameters in each of the two buffers in which ZeRO-2 reduces gradients.
const BUCKET: f64 = 5e8;

/// Bytes of the fullest device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Parameters, gradients, optimizer state, and copies of parameters.
    pub states: f64,
    /// Activations that layers keep for the backward pass.
    pub activations: f64,
    /// Logits with their copies and gradients.
    pub logits: f64,
    /// Context, buffers of collectives, and memory that the allocator holds without using it.
    pub reserve: f64,
}

impl Memory {
    /// The sum of all parts.
    pub fn total(&self) -> f64 {
        self.states + self.activations + self.logits + self.reserve
    }
}

/// Bytes of the fullest device under a strategy.
pub fn memory(
    shape: &Shape,
    workload: &Workload,
    strategy: &Strategy,
    constants: &Constants,
) -> Memory {
    let states = states(shape, workload, strategy);
    let micro = f64::from(strategy.micro.max(1));
    let one = activations(shape, workload, strategy, micro);
    let logits = logits(shape, workload, strategy, micro);
    let num_micro = f64::from(strategy.num_micro(workload));
    // Under 1F1B (Megatron) the first stage keeps as many micro-batches as there are stages. The
    // last stage keeps one, and has the logits.
    let first = one * f64::from(strategy.pipeline).min(num_micro);
    let (activations, logits) =
        if strategy.pipeline > 1 && first > one + logits { (first, 0.0) } else { (one, logits) };
    let in_use = states + activations + logits;
    let reserve = constants.reserve_bytes + (constants.fragmentation - 1.0) * in_use;
    Memory { states, activations, logits, reserve }
}

/// The parameters that a device of the fullest stage computes with.
pub(crate) fn stage_parameters(shape: &Shape, strategy: &Strategy) -> f64 {
    let tensor = f64::from(strategy.tensor);
    if strategy.pipeline < 2 {
        return shape.parameters / tensor;
    }
    // The first stage holds the whole embedding, or the last one the whole head.
    let end = f64::from(shape.vocabulary) * f64::from(shape.hidden);
    (shape.body() / f64::from(strategy.pipeline) + end) / tensor
}

fn states(shape: &Shape, workload: &Workload, strategy: &Strategy) -> f64 {
    let n = stage_parameters(shape, strategy);
    let data = f64::from(strategy.data);
    let optimizer = workload.optimizer.state_bytes();
    let gathered = workload.precision.stream_bytes();
    let layer = shape.largest_layer() / f64::from(strategy.tensor);
    match strategy.host {
        HostState::Layers => {
            let outside = 2.0 * PARAMETER * shape.vocabulary_parameters();
            return 3.0 * layer * PARAMETER + outside;
        }
        HostState::Optimizer => {
            return n * PARAMETER + n * PARAMETER / data + 2.0 * n.min(BUCKET) * PARAMETER;
        }
        HostState::Nothing => {}
    }
    let all = 2.0 * PARAMETER + optimizer;
    match strategy.sharding {
        // Autocast keeps a two-byte copy of each weight until the backward pass has used it.
        Sharding::Nothing if workload.precision.is_low() => n * (all + 2.0),
        Sharding::Nothing => n * all,
        Sharding::Gradients => {
            let split = n * (PARAMETER + optimizer) / data;
            n * PARAMETER + split + 2.0 * n.min(BUCKET) * PARAMETER
        }
        // Two layers are gathered at once, and one gradient is not split yet.
        Sharding::Everything => n * all / data + 3.0 * layer * gathered,
        Sharding::KeptGathered => n * all / data + n * gathered + 2.0 * layer * gathered,
    }
}

/// Bytes that the layers of a stage keep for `samples` samples.
fn activations(shape: &Shape, workload: &Workload, strategy: &Strategy, samples: f64) -> f64 {
    let layers = f64::from(shape.layers) / f64::from(strategy.pipeline);
    let one = kept::in_memory(shape, workload, strategy.tensor, samples);
    if strategy.checkpointing {
        let input = workload.precision.stream_bytes() * f64::from(shape.hidden);
        layers * input * workload.tokens(samples) + one
    } else {
        layers * one
    }
}

/// Bytes of logits: the logits themselves, a float32 copy, softmax and gradient. A fused loss keeps
/// only the logits and one float32 copy, which it changes in place.
pub(crate) fn logits(shape: &Shape, workload: &Workload, strategy: &Strategy, samples: f64) -> f64 {
    let bytes = match (workload.is_fused(), workload.precision.is_low()) {
        (true, _) => 6.0,
        (false, false) => 12.0,
        (false, true) => 13.0,
    };
    let tokens = workload.tokens(samples);
    tokens * f64::from(shape.vocabulary) * bytes / f64::from(strategy.tensor)
}
