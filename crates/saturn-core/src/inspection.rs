//! What a look at a task's model says before anything is measured: how large it is, and which
//! strategies can't run it.
//!
//! A finding is about a technique on so many devices of a type, whatever the knobs. Where there is
//! none, nothing is known, and a trial may tell. Unknown fields are refused.

use serde::{Deserialize, Serialize};

use crate::profile::{StrategyKey, TrialOutcome};

/// What was found of the model of tasks that perform alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// Numbers that the model is made of; a shared parameter counts once.
    pub parameters: u64,
    /// Bytes of them, as the task builds them.
    pub parameter_bytes: u64,
    /// Bytes of those that are trained.
    pub trainable_bytes: u64,
    /// Repeated layers; `None` where none were found.
    pub layers: Option<u32>,
    /// About what a checkpoint weighs: parameters, buffers and optimizer state, bytes.
    pub checkpoint_bytes: u64,
    /// Bytes of optimizer state for each byte that is trained.
    pub optimizer_state_ratio: f64,
    /// Batches in one pass over the task's loader, where it has a length.
    pub batches_per_epoch: Option<u64>,
    /// What was asked and answered.
    pub verdicts: Vec<Verdict>,
}

/// What holds for a technique on so many devices of a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Registered name of the technique.
    pub technique: String,
    /// Number of devices.
    pub gpus: u32,
    /// Their type.
    pub gpu_type: String,
    /// What was found.
    pub finding: Finding,
}

/// Whether a strategy can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Finding {
    /// It may: nothing speaks against it.
    CanRun {
        /// What one device needs at the very least, under the thriftiest knobs, bytes; `None` where
        /// that is unknown.
        least_memory_bytes: Option<u64>,
        /// How many settings of knobs there are to try.
        knob_sets: u32,
    },
    /// The technique says that it can't run the model so, and why.
    NotApplicable {
        /// In the technique's words.
        reason: String,
    },
    /// Under no knobs does it fit a device.
    OutOfMemory {
        /// What it needs at least.
        detail: String,
    },
}

impl Inspection {
    /// How many settings of knobs a trial of a strategy compares, as far as is known: 1 at least.
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

    /// The outcome that a trial would surely have; `None` where only a trial can tell.
    pub fn outcome_of(&self, technique: &str, gpus: u32, gpu_type: &str) -> Option<TrialOutcome> {
        let mut of_it = self.verdicts.iter().filter(|one| {
            one.gpus == gpus && one.technique == technique && one.gpu_type == gpu_type
        });
        of_it.next()?.finding.outcome()
    }
}

impl Verdict {
    /// What is tried or not, whatever the knobs.
    pub fn strategy(&self) -> StrategyKey {
        StrategyKey { technique: self.technique.clone(), gpus: self.gpus }
    }
}

impl Finding {
    /// The outcome that a trial would have; `None` where only a trial can tell.
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
