//! Words for the inspection of a model: the model's size, and what can't run it.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::names::escape_terminal;
use saturn_core::{Finding, Inspection, Verdict};

use crate::layout::units::{bytes, count, parameters};
use crate::phrases::words::{id_ranges, technique_on};

/// `24.1 M parameters in 12 layers, 289 MB a checkpoint`.
pub(crate) fn size(inspection: &Inspection) -> String {
    let layers = inspection.layers.map_or_else(String::new, |layers| {
        format!(" in {}", count(usize::try_from(layers).unwrap_or(usize::MAX), "layer"))
    });
    let checkpoint = bytes(inspection.checkpoint_bytes);
    format!("{} parameters{layers}, {checkpoint} a checkpoint", parameters(inspection.parameters))
}

/// `can't run: pipeline, fsdp × 1; too large for a device: ddp × 1, 2`; `None` if every strategy
/// may run.
pub(crate) fn ruled_out(inspection: &Inspection) -> Option<String> {
    let (mut refused, mut too_large) = (Vec::new(), Vec::new());
    let techniques: BTreeSet<&str> =
        inspection.verdicts.iter().map(|one| one.technique.as_str()).collect();
    for technique in techniques {
        let of_it: Vec<&Verdict> =
            inspection.verdicts.iter().filter(|one| one.technique == technique).collect();
        let is_refused = |one: &Verdict| matches!(one.finding, Finding::NotApplicable { .. });
        let is_too_large = |one: &Verdict| matches!(one.finding, Finding::OutOfMemory { .. });
        refused.extend(strategies_where(technique, &of_it, is_refused));
        too_large.extend(strategies_where(technique, &of_it, is_too_large));
    }
    let parts = [("can't run", refused), ("too large for a device", too_large)];
    let parts = parts.into_iter().filter(|(_, strategies)| !strategies.is_empty());
    let parts: Vec<String> =
        parts.map(|(what, strategies)| format!("{what}: {}", strategies.join(", "))).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The device counts of a technique for which `holds` is true: `fsdp` if it is true for all counts,
/// else `fsdp × 1` or `ddp × 1-3 on A100`.
fn strategies_where(
    technique: &str,
    verdicts: &[&Verdict],
    holds: impl Fn(&Verdict) -> bool,
) -> Vec<String> {
    if verdicts.iter().all(|one| holds(one)) {
        return vec![escape_terminal(technique)];
    }
    let mut by_type: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for one in verdicts {
        let counts = by_type.entry(&one.gpu_type).or_default();
        counts.extend(holds(one).then_some(one.gpus));
    }
    let same = by_type.values().collect::<BTreeSet<_>>().len() == 1;
    let on = |gpu_type: &str| {
        if same { String::new() } else { format!(" on {}", escape_terminal(gpu_type)) }
    };
    let shown = by_type.into_iter().take(if same { 1 } else { usize::MAX });
    shown
        .filter(|(_, counts)| !counts.is_empty())
        .map(|(gpu_type, counts)| {
            let counts: Vec<u32> = counts.into_iter().collect();
            let strategy = match counts[..] {
                [only] => technique_on(technique, only),
                _ => format!("{} × {}", escape_terminal(technique), id_ranges(&counts)),
            };
            strategy + &on(gpu_type)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(technique: &str, gpus: u32, gpu_type: &str, finding: &Finding) -> Verdict {
        let (technique, gpu_type) = (technique.to_owned(), gpu_type.to_owned());
        Verdict { technique, gpus, gpu_type, finding: finding.clone() }
    }

    fn inspection(verdicts: Vec<Verdict>) -> Inspection {
        Inspection {
            parameters: 24_100_000,
            parameter_bytes: 96_400_000,
            trainable_bytes: 96_400_000,
            layers: Some(12),
            checkpoint_bytes: 289_200_000,
            optimizer_state_ratio: 2.0,
            batches_per_epoch: None,
            verdicts,
        }
    }

    #[test]
    fn what_can_not_run_is_told_by_technique() {
        let can_run = Finding::CanRun { least_memory_bytes: None, knob_sets: 1 };
        let refused = Finding::NotApplicable { reason: "no".to_owned() };
        let large = Finding::OutOfMemory { detail: "too much".to_owned() };
        let mut verdicts = Vec::new();
        for gpu_type in ["A100", "H100"] {
            for gpus in 1..=3 {
                verdicts.push(verdict("pipeline", gpus, gpu_type, &refused));
                let fsdp = if gpus == 1 { &refused } else { &can_run };
                verdicts.push(verdict("fsdp", gpus, gpu_type, fsdp));
                let ddp = if gpu_type == "A100" { &large } else { &can_run };
                verdicts.push(verdict("ddp", gpus, gpu_type, ddp));
            }
        }
        let found = inspection(verdicts);
        assert_eq!(size(&found), "24.1 M parameters in 12 layers, 289 MB a checkpoint");
        assert_eq!(
            ruled_out(&found).unwrap(),
            "can't run: fsdp × 1, pipeline; too large for a device: ddp × 1-3 on A100"
        );
        let nothing = inspection(vec![verdict("ddp", 1, "A100", &can_run)]);
        assert_eq!(ruled_out(&nothing), None);
    }
}
