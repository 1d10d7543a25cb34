//! Bytes that a layer keeps for its backward pass, and bytes that it moves.
//!
//! The symbols are from Korthikanti et al. (arXiv 2205.05198). A layer has width h, and its MLP has
//! width f. For each token, the layer keeps a number of bytes for each unit of h and of f. With
//! eager attention the layer also keeps (2·e+1)·a·s bytes for each token, where a is the number of
//! heads, s the sequence length, and e the bytes of a number.
//!
//! With fused kernels the formulas give what is kept ([`moved`]). Plain torch keeps more: norms and
//! activations of several kernels, and under autocast a copy of each product's input. The
//! coefficients for plain torch were counted by torch's `MemTracker` on layers of GPT-2, BERT, ViT,
//! T5 and Llama of transformers 5 (`benches/profile/peaks.py` counts whole models).

use crate::shape::{Mlp, Shape};
use crate::workload::{Attention, Precision, Workload};

/// Bytes for each token: for each unit of width, for each unit of width of the keys, and for each
/// unit of the MLP's width.
struct Kept {
    hidden: f64,
    keys: f64,
    feed_forward: f64,
}

/// The bytes that a layer of plain torch keeps, in float32 and under autocast.
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
    // Under `bf16-params` everything is bfloat16.
    let part = if precision == Precision::Bf16Params { 0.5 } else { 1.0 };
    Kept { hidden: part * hidden, keys: part * keys, feed_forward: part * feed_forward }
}

/// Bytes on each device that one layer keeps for the backward pass of `samples` samples. `tensor`
/// devices share the layer.
pub(crate) fn in_memory(shape: &Shape, workload: &Workload, tensor: u32, samples: f64) -> f64 {
    if workload.is_fused() {
        return moved(shape, workload, tensor, samples);
    }
    let kept = of_plain_torch(shape.mlp, workload.precision);
    // Tensor parallelism splits queries, attention's result, keys, values and the whole MLP.
    let e = workload.precision.activation_bytes();
    let split = if kept.keys > 0.0 { 3.0 * e } else { 5.0 * e };
    let keys = kept.keys * f64::from(shape.kv_heads) / f64::from(shape.heads);
    let h = f64::from(shape.hidden);
    let split_bytes = (split + keys) * h + kept.feed_forward * f64::from(shape.feed_forward);
    let whole_bytes = (kept.hidden - split) * h;
    sum(shape, workload, tensor, samples, split_bytes, whole_bytes)
}

/// Bytes of the tensors that the backward pass of one layer reads; each tensor counts once.
/// Arguments are those of [`in_memory`].
pub(crate) fn moved(shape: &Shape, workload: &Workload, tensor: u32, samples: f64) -> f64 {
    let (e, h) = (workload.precision.activation_bytes(), f64::from(shape.hidden));
    let mlp = if shape.mlp == Mlp::Gated { 4.0 } else { 2.0 } * f64::from(shape.feed_forward);
    let keys = 2.0 * h * f64::from(shape.kv_heads) / f64::from(shape.heads);
    // Split: queries, keys and values, attention's result and its product, and the MLP. Whole: two
    // norms and their inputs.
    sum(shape, workload, tensor, samples, (3.0 * h + keys + mlp) * e, 4.0 * h * e)
}

/// Bytes for `samples` samples: `split` is divided by tensor parallelism, and `whole` is on each
/// device.
fn sum(
    shape: &Shape,
    workload: &Workload,
    tensor: u32,
    samples: f64,
    split: f64,
    whole: f64,
) -> f64 {
    let (tensor, e) = (f64::from(tensor), workload.precision.activation_bytes());
    // A dropout mask has one byte for each element. There is one mask after attention and one after
    // the MLP.
    let has_masks = shape.has_dropout && !workload.is_fused();
    let mask = if has_masks { f64::from(shape.hidden) } else { 0.0 };
    let scores = match workload.attention {
        Attention::Flash => 0.0,
        Attention::Eager => (2.0 * e + 1.0) * f64::from(shape.heads) * f64::from(workload.sequence),
    };
    workload.tokens(samples) * ((split + mask + scores) / tensor + whole + mask)
}
