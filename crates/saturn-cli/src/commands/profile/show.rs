//! `saturn profile show`.

use std::fmt::Write as _;

use saturn_core::names::escape_terminal;
use saturn_core::{Origin, Trial, TrialOutcome};
use saturn_store::Store;
use saturn_view::units::{bytes, count, step_time};
use serde_json::json;

use super::{Failure, age, keys, table, trials};
use crate::args::ShowArgs;
use crate::exit::{print_data, print_json};

pub(super) fn run(store: &Store, args: &ShowArgs) -> Result<(), Failure> {
    let keys = keys(store, std::slice::from_ref(&args.key))?;
    let trials = trials(store, &keys);
    let key = keys.first().map_or("", String::as_str);
    if args.json {
        let trials: Vec<serde_json::Value> = trials
            .iter()
            .map(|trial| {
                let mut value = json!(trial);
                value["source"] = source(trial).into();
                if let Some(error) = told_error(store, trial) {
                    value["told_error"] = error.into();
                }
                value
            })
            .collect();
        print_json(&json!({"version": 1, "key": key, "trials": trials}));
        return Ok(());
    }
    let head = ["strategy", "outcome", "from", "limit", "hardware", "software", "measured"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(trials.iter().map(|trial| row(store, trial)));
    print_data(&format!("{key}\n{}", table(&rows)));
    Ok(())
}

fn row(store: &Store, trial: &Trial) -> Vec<String> {
    let strategy = &trial.strategy;
    let mut name = format!("{} × {}", strategy.technique, strategy.gpus);
    for (knob, value) in &strategy.knobs {
        let _ = write!(name, " {knob}={value}");
    }
    let trained = trial.trained.as_ref();
    let outcome = match &trial.outcome {
        Some(TrialOutcome::Measured { step_s, peak_memory_bytes, .. }) => {
            let step_s = trained.map_or(*step_s, |trained| trained.step_s);
            format!("{}, {}", step_time(step_s), bytes(*peak_memory_bytes))
        }
        Some(TrialOutcome::NotApplicable { reason }) => {
            format!("not applicable: {}", first_line(reason))
        }
        Some(TrialOutcome::OutOfMemory { detail }) => {
            format!("out of memory: {}", first_line(detail))
        }
        Some(TrialOutcome::Failed { error, .. }) => format!("failed: {}", first_line(error)),
        None => trained.map_or_else(String::new, |trained| step_time(trained.step_s)),
    };
    let limit = trial.device_memory_bytes.map_or_else(|| "none".to_owned(), bytes);
    let hardware = trial.origin.hardware.as_deref().or(trial.gpu_type.as_deref());
    let cells = [
        &name,
        &outcome,
        &from(store, trial),
        &limit,
        hardware.unwrap_or("any"),
        &software(&trial.origin),
        &age(trial.newest_unix_s()),
    ];
    cells.map(escape_terminal).to_vec()
}

/// The source of a strategy's seconds a step, as files name it.
fn source(trial: &Trial) -> &'static str {
    if trial.trained.is_some() { "trained" } else { "trial" }
}

/// The same in words: by how many steps, and how sure.
fn from(store: &Store, trial: &Trial) -> String {
    let steps = match (&trial.trained, &trial.outcome) {
        (Some(trained), _) => trained.steps,
        (None, Some(TrialOutcome::Measured { timed_steps, .. })) => u64::from(*timed_steps),
        (None, _) => return source(trial).to_owned(),
    };
    let steps = count(usize::try_from(steps).unwrap_or(usize::MAX), "step");
    let error = told_error(store, trial);
    let error = error.map_or_else(String::new, |error| format!(" ±{:.0}%", 100.0 * error));
    format!("{}, {steps}{error}", source(trial))
}

/// The standard error of a strategy's seconds a step, as a part of them. A trial's own error is of its
/// few steps alone, so how far training was from trials on these devices is added.
fn told_error(store: &Store, trial: &Trial) -> Option<f64> {
    match (&trial.trained, &trial.outcome) {
        (Some(trained), _) => Some(trained.relative_error),
        (None, Some(TrialOutcome::Measured { relative_error, .. })) => {
            let hardware = trial.origin.hardware.as_deref();
            let spread = store.trial_spread(trial.gpu_type.as_deref(), hardware);
            relative_error.map(|error| error.hypot(spread))
        }
        (None, _) => None,
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The versions that a trial holds for, in one line; torch's own first. The digests of techniques
/// are for machines alone.
pub(super) fn software(origin: &Origin) -> String {
    let Some(software) = &origin.software else { return "any".to_owned() };
    let first = software.iter().filter(|(name, _)| *name == "torch");
    let rest = software.iter().filter(|(name, _)| !matches!(name.as_str(), "torch" | "technique"));
    let words: Vec<String> =
        first.chain(rest).map(|(name, version)| format!("{name} {version}")).collect();
    words.join(", ")
}
