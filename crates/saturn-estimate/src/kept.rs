//! Bytes that a layer keeps for its backward pass, and bytes that it moves.
//!
//! Symbols as in Korthikanti et al. (arXiv 2205.05198): a layer of width h, whose MLP has width f, keeps
//! so many bytes of h and of f for each token; with a heads and s tokens a sample the scores of eager
//! attention take (2·e+1)·a·s more, for e bytes a number.
//!
//! What fused kernels keep follows from the formulas ([`moved`]). Plain torch keeps more: norms and
//! activations of several kernels, and under autocast a copy of each product's input. Its coefficients
//! were counted by torch's `MemTracker` on layers of GPT-2, BERT, ViT, T5 and Llama of transformers 5
//! (`benches/profile/peaks.py` counts whole models).

use crate::shape::{Mlp, Shape};
use crate::workload::{Attention, Precision, Workload};

/// Bytes a token: of each unit of width, of each unit of width that keys have, of the MLP's width.
struct Kept {
    hidden: f64,
    keys: f64,
    feed_forward: f64,
}

/// What a layer of plain torch keeps in float32, and under autocast.
fn of_plain_torch(mlp: Mlp, precision: Precision) -> Kept {
    let is_autocast = precision.is_low() && precision != Precision::Bf16Params;
    let (hidden, keys, feed_forward) = match (mlp, is_autocast) {
        (Mlp::Plain, false) => (32.0, 0.0, 8.0),
        (Mlp::Plain, true) => (24.0, 0.0, 4.0),
        (Mlp::TanhGelu, false) => (35.0, 0.0, 20.0),
        (Mlp::TanhGelu, true) => (21.5, 0.0, 16.0),
        (Mlp::EncoderDecoder, false) => (62.7, 0.0, 9.0),
        (Mlp::EncoderDecoder, true) => (47.7, 0.0, 5.0),
        (Mlp::Gated, false) => (39.0, 12.0, 16.0),
        (Mlp::Gated, true) => (33.0, 8.0, 8.0),
    };
    // Everything is bfloat16 there.
    let part = if precision == Precision::Bf16Params { 0.5 } else { 1.0 };
    Kept { hidden: part * hidden, keys: part * keys, feed_forward: part * feed_forward }
}

/// Bytes that one layer keeps for its backward pass of `samples` samples, on each device, where
/// `tensor` devices share the layer.
pub(crate) fn in_memory(shape: &Shape, workload: &Workload, tensor: u32, samples: f64) -> f64 {
    if workload.is_fused() {
        return moved(shape, workload, tensor, samples);
    }
    let kept = of_plain_torch(shape.mlp, workload.precision);
    // Split are queries and attention's result, keys and values, and all of the MLP.
    let e = workload.precision.activation_bytes();
    let split = if kept.keys > 0.0 { 3.0 * e } else { 5.0 * e };
    let keys = kept.keys * f64::from(shape.kv_heads) / f64::from(shape.heads);
    let h = f64::from(shape.hidden);
    let split_bytes = (split + keys) * h + kept.feed_forward * f64::from(shape.feed_forward);
    let whole_bytes = (kept.hidden - split) * h;
    sum(shape, workload, tensor, samples, split_bytes, whole_bytes)
}

/// Bytes of the tensors that the backward pass of one layer reads. Each tensor counts once; arguments
/// as for [`in_memory`].
pub(crate) fn moved(shape: &Shape, workload: &Workload, tensor: u32, samples: f64) -> f64 {
    let (e, h) = (workload.precision.activation_bytes(), f64::from(shape.hidden));
    let mlp = if shape.mlp == Mlp::Gated { 4.0 } else { 2.0 } * f64::from(shape.feed_forward);
    let keys = 2.0 * h * f64::from(shape.kv_heads) / f64::from(shape.heads);
    // Queries, keys and values, attention's result and its product; two norms and their inputs.
    sum(shape, workload, tensor, samples, (3.0 * h + keys + mlp) * e, 4.0 * h * e)
}

/// Bytes of so many samples: parts that tensor parallelism splits, and parts that each device has.
fn sum(
    shape: &Shape,
    workload: &Workload,
    tensor: u32,
    samples: f64,
    split: f64,
    whole: f64,
) -> f64 {
    let (tensor, e) = (f64::from(tensor), workload.precision.activation_bytes());
    // Masks of dropout have a byte an element, one after attention and one after the MLP.
    let has_masks = shape.has_dropout && !workload.is_fused();
    let mask = if has_masks { f64::from(shape.hidden) } else { 0.0 };
    let scores = match workload.attention {
        Attention::Flash => 0.0,
        Attention::Eager => (2.0 * e + 1.0) * f64::from(shape.heads) * f64::from(workload.sequence),
    };
    workload.tokens(samples) * ((split + mask + scores) / tensor + whole + mask)
}
