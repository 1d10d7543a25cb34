//! An inspection: the size of a task's model, and the strategies that can't run it, found before
//! anything is measured.
//!
//! A finding concerns a technique on a number of devices of a type, whatever the knobs. Without a
//! finding nothing is known, and only a trial can tell. Unknown fields are refused.

use serde::{Deserialize, Serialize};

use crate::profile::{StrategyKey, TrialOutcome};

/// The findings about the model of a group of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// The number of parameters; a shared parameter counts once.
    pub parameters: u64,
    /// The size of the parameters as the task builds them, bytes.
    pub parameter_bytes: u64,
    /// The size of the parameters that are trained, bytes.
    pub trainable_bytes: u64,
    /// The number of repeated layers; `None` if none were found.
    pub layers: Option<u32>,
    /// The approximate size of a checkpoint: parameters, buffers and optimizer state, bytes.
    pub checkpoint_bytes: u64,
    /// Bytes of optimizer state for each byte that is trained.
    pub optimizer_state_ratio: f64,
    /// Batches in one pass over the task's loader, if it has a length.
    pub batches_per_epoch: Option<u64>,
    /// The answers of techniques.
    pub verdicts: Vec<Verdict>,
}

/// The finding for a technique on a number of devices of a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Registered name of the technique.
    pub technique: String,
    /// Number of devices.
    pub gpus: u32,
    /// Their type.
    pub gpu_type: String,
    /// The finding.
    pub finding: Finding,
}

/// Whether a strategy can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Finding {
    /// It can, as far as is known.
    CanRun {
        /// The least memory that a device needs, under the knobs that need least, bytes; `None` if
        /// unknown.
        least_memory_bytes: Option<u64>,
        /// How many sets of knobs there are to try.
        knob_sets: u32,
    },
    /// The technique says that it can't run the model, and why.
    NotApplicable {
        /// In the technique's words.
        reason: String,
    },
    /// It does not fit a device under any knobs.
    OutOfMemory {
        /// The least memory that it needs, in words.
        detail: String,
    },
}

impl Inspection {
    /// How many sets of knobs a trial of a strategy compares; 1 if unknown.
    pub fn knob_sets_of(&self, technique: &str, gpus: u32, gpu_type: &str) -> u32 {
        let of_it = self
            .verdicts
            .iter()
            .find(|one| one.gpus == gpus && one.technique == technique && one.gpu_type == gpu_type);
        match of_it.map(|one| &one.finding) {
            Some(Finding::CanRun { knob_sets, .. }) => (*knob_sets).max(1),
            _ => 1,
        }
    }

    /// The outcome that a trial would certainly have; `None` if only a trial can tell.
    pub fn outcome_of(&self, technique: &str, gpus: u32, gpu_type: &str) -> Option<TrialOutcome> {
        let mut of_it = self.verdicts.iter().filter(|one| {
            one.gpus == gpus && one.technique == technique && one.gpu_type == gpu_type
        });
        of_it.next()?.finding.outcome()
    }
}

impl Verdict {
    /// The strategy that this verdict concerns, whatever the knobs.
    pub fn strategy(&self) -> StrategyKey {
        StrategyKey { technique: self.technique.clone(), gpus: self.gpus }
    }
}

impl Finding {
    /// The outcome that a trial would have; `None` if only a trial can tell.
    pub fn outcome(&self) -> Option<TrialOutcome> {
        match self {
            Self::CanRun { .. } => None,
            Self::NotApplicable { reason } => {
                Some(TrialOutcome::NotApplicable { reason: reason.clone() })
            }
            Self::OutOfMemory { detail } => {
                Some(TrialOutcome::OutOfMemory { detail: detail.clone() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        let text = r#"{"parameters": 3, "parameter_bytes": 12, "trainable_bytes": 12, "layers": null,
            "checkpoint_bytes": 36, "optimizer_state_ratio": 2.0, "batches_per_epoch": null,
            "verdicts": [{"technique": "ddp", "gpus": 1, "gpu_type": "cpu",
                          "finding": {"can_run": {"least_memory_bytes": 48, "knob_sets": 2}}}]}"#;
        let inspection: Inspection = serde_json::from_str(text).unwrap();
        let finding = &inspection.verdicts[0].finding;
        assert_eq!(*finding, Finding::CanRun { least_memory_bytes: Some(48), knob_sets: 2 });
        for (from, to) in [
            ("\"layers\"", "\"levels\""),
            ("\"gpu_type\"", "\"type\""),
            ("\"knob_sets\"", "\"sets\""),
            ("can_run", "may_run"),
        ] {
            let error = serde_json::from_str::<Inspection>(&text.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(to.trim_matches('"')), "{error}");
        }
    }
}
