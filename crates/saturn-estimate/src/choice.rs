//! Chooses the best knobs of each technique on some devices.
//!
//! Among knobs that fit, the fastest are best; if none fit, those that need the least memory. A
//! technique that can't train the model on these devices is left out, with the reason.

use crate::constants::Constants;
use crate::device::Device;
use crate::error::EstimateError;
use crate::shape::Shape;
use crate::strategy::{HostState, Sharding, Strategy};
use crate::sum::{Estimate, estimate};
use crate::workload::Workload;

/// An estimate up to this share of a device's memory fits.
const FITS: f64 = 0.9;
/// An estimate from this share on does not fit: measured peaks are at most 15% below most
/// estimates.
const TOO_MUCH: f64 = 1.15;

/// Whether a strategy fits the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It fits, with room to spare.
    Fits,
    /// It may fit: the estimate is within its own error of the limit.
    Close,
    /// It does not fit.
    DoesNot,
}

impl Verdict {
    /// The verdict for an estimate on a device.
    pub fn of(estimate: &Estimate, device: &Device) -> Self {
        let share = estimate.memory.total() / device.memory_bytes.value;
        match share {
            _ if share <= FITS => Self::Fits,
            _ if share < TOO_MUCH => Self::Close,
            _ => Self::DoesNot,
        }
    }

    /// The verdict in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Close => "close",
            Self::DoesNot => "does not fit",
        }
    }
}

/// A technique with its best knobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The layout.
    pub strategy: Strategy,
    /// The estimate for that layout.
    pub estimate: Estimate,
    /// Whether it fits.
    pub verdict: Verdict,
}

/// A technique that can't train the model on these devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub technique: &'static str,
    /// Why it can't.
    pub reason: String,
}

/// Every built-in technique with its best knobs on a placement, and the techniques that are left
/// out, with reasons.
///
/// # Errors
/// The device lacks the precision.
pub fn choose(
    shape: &Shape,
    workload: &Workload,
    device: &Device,
    placement: &[u32],
    constants: &Constants,
) -> Result<(Vec<Choice>, Vec<LeftOut>), EstimateError> {
    device.peak(workload.precision)?;
    let mut chosen: Vec<Choice> = Vec::new();
    let mut left_out: Vec<LeftOut> = Vec::new();
    for strategy in layouts(placement, workload) {
        let technique = strategy.technique();
        let estimate = match estimate(shape, workload, device, &strategy, constants) {
            Ok(estimate) => estimate,
            Err(error) => {
                if left_out.iter().all(|other| other.technique != technique) {
                    left_out.push(LeftOut { technique, reason: error.to_string() });
                }
                continue;
            }
        };
        let verdict = Verdict::of(&estimate, device);
        let choice = Choice { strategy, estimate, verdict };
        match chosen.iter_mut().find(|one| one.strategy.technique() == technique) {
            Some(best) if is_better(&choice, best) => *best = choice,
            Some(_) => {}
            None => chosen.push(choice),
        }
    }
    left_out.retain(|other| chosen.iter().all(|one| one.strategy.technique() != other.technique));
    Ok((chosen, left_out))
}

/// Whether one choice of knobs is better than another.
fn is_better(one: &Choice, other: &Choice) -> bool {
    if one.verdict != other.verdict {
        return one.verdict < other.verdict;
    }
    if one.verdict == Verdict::DoesNot {
        return one.estimate.memory.total() < other.estimate.memory.total();
    }
    one.estimate.step_s.value < other.estimate.step_s.value
}

/// Layouts of all built-in techniques on a placement, with the knobs that trials would measure.
fn layouts(placement: &[u32], workload: &Workload) -> Vec<Strategy> {
    let gpus: u32 = placement.iter().sum();
    let plain = Strategy::data_parallel(placement.to_vec(), workload.batch);
    let mut found = Vec::new();
    if gpus == 1 {
        found.push(Strategy { host: HostState::Layers, checkpointing: true, ..plain.clone() });
    }
    for tensor in divisors(gpus) {
        for pipeline in divisors(gpus / tensor) {
            let data = gpus / tensor / pipeline;
            let shardings: &[Sharding] = match (data > 1, tensor * pipeline > 1) {
                (false, _) => &[Sharding::Nothing],
                (true, false) => &[Sharding::Nothing, Sharding::Everything, Sharding::KeptGathered],
                (true, true) => &[Sharding::Everything],
            };
            for sharding in shardings {
                let layout =
                    Strategy { data, tensor, pipeline, sharding: *sharding, ..plain.clone() };
                found.extend(with_knobs(&layout, workload));
            }
        }
    }
    found
}

/// A layout with and without checkpointing. In a pipeline, with two and four micro-batches a stage.
fn with_knobs(layout: &Strategy, workload: &Workload) -> Vec<Strategy> {
    let slice = layout.slice(workload);
    let micros = match layout.pipeline {
        0 | 1 => vec![slice],
        stages => {
            let mut micros: Vec<u32> =
                [2, 4].map(|times| slice.div_ceil(times * stages).max(1)).to_vec();
            micros.dedup();
            micros
        }
    };
    let mut found = Vec::new();
    for micro in micros {
        for checkpointing in [false, true] {
            // Saturn has no checkpointing in a pipeline.
            if layout.pipeline < 2 || !checkpointing {
                found.push(Strategy { micro, checkpointing, ..layout.clone() });
            }
        }
    }
    found
}

fn divisors(number: u32) -> Vec<u32> {
    (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).collect()
}
