//! The true times, whatever the engine believes.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use saturn_core::{Finding, Inspection, Strategy, TrialOutcome, Verdict};
use saturn_engine::DeviceKind;

/// A strategy on a type of device, as an inspection is asked about it.
pub(crate) type Asked = (Strategy, String);

/// When a gang evaluates its model, beside after its last step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluating {
    /// Steps between two evaluations.
    pub every: Option<NonZeroU64>,
    /// Seconds that an evaluation takes.
    pub takes_s: f64,
}

impl Evaluating {
    /// Evaluations after more than `from` steps, up to `to` steps of `all`.
    pub(crate) fn number(self, from: u64, to: u64, all: u64) -> u64 {
        let regular = |step: u64| self.every.map_or(0, |every| step / every);
        let is_last_extra = to >= all && self.every.is_none_or(|every| to % every != 0);
        regular(to) - regular(from.min(to)) + u64::from(is_last_extra && from < to)
    }
}

/// The memory of a device that every fitting strategy needs, bytes.
pub(crate) const PEAK_MEMORY_BYTES: u64 = 1 << 30;

/// The host memory of the largest group, bytes.
pub(crate) const MOST_HOST_BYTES: u64 = 1 << 24;

/// Host memory with which every strategy can run alone on its nodes of four devices, bytes.
pub(crate) fn least_host_bytes(kind: DeviceKind) -> u64 {
    match kind {
        DeviceKind::Cuda => MOST_HOST_BYTES,
        DeviceKind::Cpu => 5 * PEAK_MEMORY_BYTES / 2,
    }
}

/// The truth about all tasks of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupTruth {
    /// Seconds a step on one device of speed 1 under a technique of factor 1.
    pub step_s: f64,
    /// Seconds from launch to the first step.
    pub load_s: f64,
    /// Seconds that a checkpoint takes.
    pub save_s: f64,
    /// When its tasks evaluate their models, and how long that takes; `None`: never.
    pub evaluating: Option<Evaluating>,
    /// Batches in a pass over the loader; 0: nobody knows.
    pub batches_per_epoch: u64,
    /// By name.
    pub techniques: BTreeMap<String, TechniqueTruth>,
}

impl GroupTruth {
    /// Batches in a pass over the loader, if the loader says so.
    fn known_batches(&self) -> Option<u64> {
        Some(self.batches_per_epoch).filter(|batches| *batches > 0)
    }
}

/// How a technique does with a group.
#[derive(Debug, Clone, PartialEq)]
pub struct TechniqueTruth {
    /// Seconds a step relative to other techniques.
    pub factor: f64,
    /// n devices are as fast as one device times n to the power of this.
    pub scaling: f64,
    /// Seconds a step by number of devices of speed 1, in place of `factor` and `scaling`, for
    /// times that follow no formula.
    pub measured: BTreeMap<u32, f64>,
    /// It needs at least this many devices to fit in memory.
    pub fits_from: u32,
    /// Why it can't run the group at all.
    pub refusal: Option<String>,
}

/// The truth of a world.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Truth {
    /// By profile key.
    pub groups: BTreeMap<String, GroupTruth>,
    /// Speed of each type of device.
    pub speeds: BTreeMap<String, f64>,
}

impl Truth {
    /// Seconds a step, or the outcome that a trial would find instead.
    pub fn step_s(
        &self,
        group: &str,
        strategy: &Strategy,
        gpu_type: &str,
    ) -> Result<f64, Box<TrialOutcome>> {
        let unknown =
            || Box::new(TrialOutcome::NotApplicable { reason: "it is not known".to_owned() });
        let group = self.groups.get(group).ok_or_else(unknown)?;
        let technique = group.techniques.get(&strategy.technique).ok_or_else(unknown)?;
        if let Some(reason) = &technique.refusal {
            return Err(Box::new(TrialOutcome::NotApplicable { reason: reason.clone() }));
        }
        if strategy.gpus < technique.fits_from {
            let detail = format!("{} devices hold too little", strategy.gpus);
            return Err(Box::new(TrialOutcome::OutOfMemory { detail }));
        }
        let speed = self.speeds.get(gpu_type).copied().unwrap_or(1.0);
        if !technique.measured.is_empty() {
            return technique
                .measured
                .get(&strategy.gpus)
                .map(|step_s| step_s / speed)
                .ok_or_else(unknown);
        }
        let gpus = f64::from(strategy.gpus).powf(technique.scaling);
        Ok(group.step_s * technique.factor / (gpus * speed))
    }

    /// An inspection's answer to the strategies that it is asked about.
    pub(crate) fn inspection(&self, group: &str, asked: &[Asked]) -> Inspection {
        // Groups differ in what they take of host memory.
        let number = self.groups.keys().position(|one| one == group).unwrap_or(0);
        let parameter_bytes = MOST_HOST_BYTES / [4, 2, 1][number % 3];
        // Every second technique offloads: its training state is in host memory.
        let is_offloading = |technique: &str| {
            let techniques = self.groups.get(group).map(|group| &group.techniques);
            let number = techniques.and_then(|all| all.keys().position(|one| one == technique));
            number.is_some_and(|number| number % 2 == 1)
        };
        let verdicts = asked.iter().map(|(strategy, gpu_type)| {
            let finding = match self.step_s(group, strategy, gpu_type).map_err(|outcome| *outcome) {
                Err(TrialOutcome::OutOfMemory { detail }) => Finding::OutOfMemory { detail },
                Err(TrialOutcome::NotApplicable { reason }) => Finding::NotApplicable { reason },
                Ok(_) | Err(_) => {
                    let least_memory_bytes = Some(if is_offloading(&strategy.technique) {
                        parameter_bytes
                    } else {
                        PEAK_MEMORY_BYTES / 2
                    });
                    Finding::CanRun { least_memory_bytes, knob_sets: 1 }
                }
            };
            let Strategy { technique, gpus, .. } = strategy.clone();
            Verdict { technique, gpus, gpu_type: gpu_type.clone(), finding }
        });
        Inspection {
            parameters: 1 << 20,
            parameter_bytes,
            trainable_bytes: parameter_bytes,
            layers: Some(4),
            checkpoint_bytes: 3 << 22,
            optimizer_state_ratio: 2.0,
            batches_per_epoch: self.groups.get(group).and_then(GroupTruth::known_batches),
            verdicts: verdicts.collect(),
        }
    }

    /// The outcome of an exact trial.
    pub fn outcome(&self, group: &str, strategy: &Strategy, gpu_type: &str) -> TrialOutcome {
        match self.step_s(group, strategy, gpu_type) {
            Err(outcome) => *outcome,
            Ok(step_s) => {
                let group = &self.groups[group];
                TrialOutcome::Measured {
                    step_s,
                    setup_s: group.load_s,
                    checkpoint_s: Some(group.save_s),
                    peak_memory_bytes: PEAK_MEMORY_BYTES,
                    timed_steps: 3,
                    relative_error: None,
                    warmup_s: None,
                    variation: None,
                    batches_per_epoch: group.known_batches(),
                    evaluation_s: group.evaluating.map(|one| one.takes_s),
                }
            }
        }
    }
}
