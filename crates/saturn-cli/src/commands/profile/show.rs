//! `saturn profile show`.

use std::fmt::Write as _;

use saturn_core::names::escape_terminal;
use saturn_core::{Origin, Trial, TrialOutcome};
use saturn_runtime::Store;
use saturn_view::units::{bytes, step_time};
use serde_json::json;

use super::{Failure, age, keys, table, trials};
use crate::args::ShowArgs;
use crate::exit::{print_data, print_json};

pub(super) fn run(store: &Store, args: &ShowArgs) -> Result<(), Failure> {
    let keys = keys(store, std::slice::from_ref(&args.key))?;
    let trials = trials(store, &keys);
    let key = keys.first().map_or("", String::as_str);
    if args.json {
        print_json(&json!({"version": 1, "key": key, "trials": trials}));
        return Ok(());
    }
    let head = ["strategy", "outcome", "limit", "hardware", "software", "measured"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(trials.iter().map(row));
    print_data(&format!("{key}\n{}", table(&rows)));
    Ok(())
}

fn row(trial: &Trial) -> Vec<String> {
    let strategy = &trial.strategy;
    let mut name = format!("{} × {}", strategy.technique, strategy.gpus);
    for (knob, value) in &strategy.knobs {
        let _ = write!(name, " {knob}={value}");
    }
    let outcome = match &trial.outcome {
        TrialOutcome::Measured { step_s, peak_memory_bytes, .. } => {
            format!("{}, {}", step_time(*step_s), bytes(*peak_memory_bytes))
        }
        TrialOutcome::NotApplicable { reason } => format!("not applicable: {}", first_line(reason)),
        TrialOutcome::OutOfMemory { detail } => format!("out of memory: {}", first_line(detail)),
        TrialOutcome::Failed { error, .. } => format!("failed: {}", first_line(error)),
    };
    let limit = trial.device_memory_bytes.map_or_else(|| "none".to_owned(), bytes);
    let hardware = trial.origin.hardware.as_deref().or(trial.gpu_type.as_deref());
    let cells = [
        &name,
        &outcome,
        &limit,
        hardware.unwrap_or("any"),
        &software(&trial.origin),
        &age(trial.origin.measured_unix_s),
    ];
    cells.map(escape_terminal).to_vec()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The versions that a trial holds for, in one line; torch's own first. The digests of techniques are
/// for machines alone.
pub(super) fn software(origin: &Origin) -> String {
    let Some(software) = &origin.software else { return "any".to_owned() };
    let first = software.iter().filter(|(name, _)| *name == "torch");
    let rest = software.iter().filter(|(name, _)| !matches!(name.as_str(), "torch" | "technique"));
    let words: Vec<String> =
        first.chain(rest).map(|(name, version)| format!("{name} {version}")).collect();
    words.join(", ")
}
