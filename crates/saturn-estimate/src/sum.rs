//! Adds up the seconds of a step from their parts.
//!
//! Invariants: the terms add up to the seconds. The seconds are never below [`Estimate::bound_s`],
//! the time that the devices need at their peak.

use std::fmt;

use crate::compute::{TENSORS, model_flops, passes};
use crate::constants::Constants;
use crate::device::Device;
use crate::error::EstimateError;
use crate::memory::{Memory, memory, stage_parameters};
use crate::parts::{Part, Term};
use crate::residual::Residuals;
use crate::shape::{Shape, ShapeSource};
use crate::strategy::{HostState, Sharding, Strategy};
use crate::traffic::{Ring, hand_over};
use crate::workload::Workload;

/// An 80% band extends by this many standard deviations to each side.
const BAND: f64 = 1.2816;
/// The standard deviation of log seconds if layers and widths are guessed.
const SD_GUESSED: f64 = 0.15;

/// A value, with a band that holds 8 of 10 true values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// The most likely value.
    pub value: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The band around a value whose logarithm has this standard deviation. No end is below
    /// `least`.
    pub fn around(value: f64, sd: f64, least: f64) -> Self {
        let factor = (BAND * sd).exp();
        let value = value.max(least);
        Self { low: (value / factor).max(least), value, high: value * factor }
    }

    /// The band, multiplied by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let Self { low, value, high } = self;
        Self { low: low * factor, value: value * factor, high: high * factor }
    }
}

/// The source of an estimate's seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Training of this strategy.
    Trained,
    /// A trial of this strategy.
    Measured,
    /// The model, corrected by this number of trials of other strategies.
    Trials(usize),
    /// The model alone.
    Model,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trained => out.write_str("trained"),
            Self::Measured => out.write_str("measured"),
            Self::Trials(1) => out.write_str("one trial"),
            Self::Trials(number) => write!(out, "{number} trials"),
            Self::Model => out.write_str("model"),
        }
    }
}

/// The estimate for a strategy.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Seconds a step.
    pub step_s: Interval,
    /// The source of these seconds.
    pub source: Source,
    /// The parts of the model's own seconds. They add up to the model's seconds, not to corrected
    /// ones.
    pub terms: Vec<Term>,
    /// Bytes of the fullest device.
    pub memory: Memory,
    /// The FLOP that the model needs for a step.
    pub flops: f64,
    /// Seconds in which all devices at their peak compute these FLOP. No step is faster.
    pub bound_s: f64,
    /// The standard deviation of log seconds that measurements of other strategies do not reduce.
    own_sd: f64,
}

impl Estimate {
    /// The part that takes the most seconds.
    pub fn bounded_by(&self) -> Part {
        let most = self.terms.iter().max_by(|one, other| one.seconds.total_cmp(&other.seconds));
        most.map_or(Part::Constant, |term| term.part)
    }

    /// Seconds by the model alone.
    pub fn model_s(&self) -> f64 {
        self.terms.iter().map(|term| term.seconds).sum()
    }

    /// The share of the devices' peak that the model uses (MFU).
    pub fn utilisation(&self) -> f64 {
        self.bound_s / self.step_s.value
    }

    /// The same estimate, corrected by measurements of other strategies.
    #[must_use]
    pub fn corrected(mut self, residuals: &Residuals, technique: &str) -> Self {
        let (mean, sd) = residuals.correction(technique);
        let sd = sd.hypot(self.own_sd);
        self.step_s = Interval::around(self.model_s() * mean.exp(), sd, self.bound_s);
        self.source = match residuals.len() {
            0 => Source::Model,
            number => Source::Trials(number),
        };
        self
    }

    /// The same estimate with measured seconds, and their relative standard error. A time below the
    /// bound is kept: see [`Estimate::is_too_fast`].
    #[must_use]
    pub fn measured(mut self, step_s: f64, relative_error: f64, source: Source) -> Self {
        self.step_s = Interval::around(step_s, relative_error, 0.0);
        self.source = source;
        self
    }

    /// Whether the seconds are below the bound of the devices' peak. Then they can't belong to this
    /// model, batch and length.
    pub fn is_too_fast(&self) -> bool {
        self.step_s.value < self.bound_s
    }
}

/// The seconds and bytes of a step under a strategy, by the model alone.
///
/// # Errors
/// The strategy can't train the model, or the device lacks the precision.
pub fn estimate(
    shape: &Shape,
    workload: &Workload,
    device: &Device,
    strategy: &Strategy,
    constants: &Constants,
) -> Result<Estimate, EstimateError> {
    strategy.check(shape, workload)?;
    let mut step = Step { shape, workload, device, strategy, constants, terms: Vec::new() };
    step.add_compute()?;
    step.add_optimizer();
    step.add(Part::Constant, constants.constant_s);
    let terms = step.terms;
    let flops = model_flops(shape, workload);
    let bound_s = flops / (device.peak(workload.precision)? * f64::from(strategy.gpus()));
    let own_sd = if shape.source == ShapeSource::Guessed { SD_GUESSED } else { 0.0 };
    let without = Interval { low: bound_s, value: bound_s, high: bound_s };
    let memory = memory(shape, workload, strategy, constants);
    let bare =
        Estimate { step_s: without, source: Source::Model, terms, memory, flops, bound_s, own_sd };
    Ok(bare.corrected(&Residuals::default(), strategy.technique()))
}

/// Seconds of two activities together. `overlap` is 1 if they do not overlap, and infinite if they
/// overlap completely (Rubick).
fn together(one: f64, other: f64, overlap: f64) -> f64 {
    (one.powf(overlap) + other.powf(overlap)).powf(1.0 / overlap)
}

/// A step whose terms are being added.
struct Step<'a> {
    shape: &'a Shape,
    workload: &'a Workload,
    device: &'a Device,
    strategy: &'a Strategy,
    constants: &'a Constants,
    terms: Vec<Term>,
}

impl Step<'_> {
    fn add(&mut self, part: Part, seconds: f64) {
        if seconds > 0.0 {
            self.terms.push(Term { part, seconds });
        }
    }

    /// Adds forward and backward passes of all micro-batches, and all traffic.
    fn add_compute(&mut self) -> Result<(), EstimateError> {
        let (workload, strategy, constants) = (self.workload, self.strategy, self.constants);
        let passes = passes(self.shape, workload, self.device, strategy, constants)?;
        let [forward, backward] = passes;
        let num_micro = f64::from(strategy.num_micro(workload));
        let both =
            |of: fn(&crate::compute::Pass) -> f64| num_micro * passes.iter().map(of).sum::<f64>();
        self.add(Part::Matrix, both(|pass| pass.matrix));
        self.add(Part::Activations, both(|pass| pass.activations));
        self.add(Part::Launches, both(|pass| pass.launches));
        let [tensor_f, tensor_b] = self.tensor_traffic();
        self.add(Part::Tensor, num_micro * (tensor_f + tensor_b));
        let (mut forward_s, mut backward_s) =
            (forward.total() + tensor_f, backward.total() + tensor_b);
        let [sharding_f, sharding_b] = self.sharding_traffic(forward_s, backward_s);
        self.add(Part::Sharding, num_micro * (sharding_f + sharding_b));
        (forward_s, backward_s) = (forward_s + sharding_f, backward_s + sharding_b);
        if strategy.host == HostState::Layers {
            let bus = self.device.bus_bytes_s.value * constants.bus;
            let stream_s = 4.0 * self.shape.parameters / bus;
            let (more_f, more_b) =
                ((stream_s - forward_s).max(0.0), (2.0 * stream_s - backward_s).max(0.0));
            self.add(Part::Streaming, num_micro * (more_f + more_b));
            (forward_s, backward_s) = (forward_s + more_f, backward_s + more_b);
        }
        let stages = f64::from(strategy.pipeline);
        self.add(Part::Bubble, (stages - 1.0) * (forward_s + backward_s));
        if strategy.pipeline > 1 {
            let bytes = self.boundary_bytes();
            let one = 2.0 * hand_over(bytes, strategy, self.device, constants);
            self.add(Part::HandOver, (num_micro + stages - 1.0) * one);
        }
        self.add_gradients(backward_s);
        Ok(())
    }

    /// Bytes that a micro-batch has between two layers.
    fn boundary_bytes(&self) -> f64 {
        let tokens = self.workload.tokens(f64::from(self.strategy.micro.max(1)));
        self.workload.precision.activation_bytes() * tokens * f64::from(self.shape.hidden)
    }

    /// Seconds of tensor-parallel traffic in each pass. Each layer has two all-reduces in each
    /// pass, and checkpointing repeats those of the forward pass.
    fn tensor_traffic(&self) -> [f64; 2] {
        let ring = Ring::of_tensor(self.strategy);
        let one = ring.seconds(self.boundary_bytes(), 2.0, self.device, self.constants);
        let layers = f64::from(self.shape.layers) / f64::from(self.strategy.pipeline);
        let again = if self.strategy.checkpointing { 2.0 } else { 1.0 };
        [2.0 * layers * one, 2.0 * again * layers * one]
    }

    /// Seconds in which `share` times the stage's parameters, of `bytes` bytes each, go round the
    /// ring.
    fn data_ring(&self, bytes: f64, share: f64) -> f64 {
        let n = self.shape.parameters / f64::from(self.strategy.tensor * self.strategy.pipeline);
        Ring::of_data(self.strategy).seconds(n * bytes, share, self.device, self.constants)
    }

    /// The seconds that FSDP's traffic adds to the passes of one micro-batch. In a pipeline,
    /// parameters are gathered once a step, and this is counted with the gradients.
    fn sharding_traffic(&self, forward_s: f64, backward_s: f64) -> [f64; 2] {
        let gather = self.data_ring(self.workload.precision.stream_bytes(), 1.0);
        let reduce = self.data_ring(4.0, 1.0);
        let (in_forward, in_backward) = match self.strategy.sharding {
            _ if self.strategy.pipeline > 1 => return [0.0; 2],
            Sharding::Nothing | Sharding::Gradients => return [0.0; 2],
            Sharding::Everything => (gather, gather + reduce),
            Sharding::KeptGathered => (gather, reduce),
        };
        let more = |pass, traffic| together(pass, traffic, self.constants.overlap_fsdp) - pass;
        [more(forward_s, in_forward), more(backward_s, in_backward)]
    }

    /// Adds the gradient traffic that the last backward pass does not hide.
    fn add_gradients(&mut self, backward_s: f64) {
        let is_offloaded = self.strategy.host == HostState::Optimizer;
        let (under_backward, after) = match self.strategy.sharding {
            // Gradients are reduced during the backward pass, and parameters are gathered after the
            // optimizer's step.
            _ if is_offloaded => (self.data_ring(4.0, 1.0), self.data_ring(4.0, 1.0)),
            Sharding::Gradients => (self.data_ring(4.0, 1.0), self.data_ring(4.0, 1.0)),
            Sharding::Nothing => (self.data_ring(4.0, 2.0), 0.0),
            _ if self.strategy.pipeline > 1 => (self.data_ring(4.0, 2.0), 0.0),
            Sharding::Everything | Sharding::KeptGathered => (0.0, 0.0),
        };
        let more = together(backward_s, under_backward, self.constants.overlap) - backward_s;
        self.add(Part::Gradients, more + after);
    }

    fn add_optimizer(&mut self) {
        let (strategy, constants) = (self.strategy, self.constants);
        let data = f64::from(strategy.data);
        let work = self.workload.optimizer.work();
        if strategy.host != HostState::Nothing {
            let all = self.shape.parameters * work;
            let nodes = strategy.placement.len().max(1) as f64;
            let cores = self.device.cores.value;
            let seconds =
                all / data * constants.host_core_s / cores + all * constants.host_memory_s / nodes;
            return self.add(Part::HostOptimizer, seconds);
        }
        let n = stage_parameters(self.shape, strategy);
        let is_fused = self.workload.is_fused();
        let bytes = if is_fused { constants.adam_fused_bytes } else { constants.adam_bytes };
        let tensors = TENSORS * f64::from(self.shape.layers) / f64::from(strategy.pipeline);
        // An unfused step launches six kernels for each tensor.
        let launches = if is_fused { 0.0 } else { 6.0 * tensors * constants.launch_s };
        let seconds = work * n * bytes / self.device.memory_bytes_s.value + launches;
        let is_split = strategy.sharding != Sharding::Nothing;
        self.add(Part::Optimizer, if is_split { seconds / data } else { seconds });
    }
}
