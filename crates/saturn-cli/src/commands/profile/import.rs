//! `saturn profile import`.

use std::fmt::Write as _;
use std::io::Read;

use saturn_core::{Profile, Trial, TrialOutcome};
use saturn_store::{Store, io_words, is_key};
use saturn_view::units::count;
use serde_json::json;

use super::{Failure, warn};
use crate::args::ImportArgs;
use crate::exit::print_json;

pub(super) fn run(store: &Store, args: &ImportArgs) -> Result<(), Failure> {
    let is_stdin = args.file.as_os_str() == "-";
    let name =
        if is_stdin { "standard input".to_owned() } else { format!("`{}`", args.file.display()) };
    let bad = |reason: String| Failure::BadInput(format!("{name}: {reason}"));
    let text = if is_stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(&args.file)
    };
    let text = text.map_err(|error| bad(format!("can't be read: {}", io_words(&error))))?;
    let trials = Profile::from_json(&text).map_err(|error| bad(error.to_string()))?.trials;
    for (index, trial) in trials.iter().enumerate() {
        let key = trial.profile_key.as_deref().unwrap_or_default();
        if !is_key(key) {
            let found = if key.is_empty() { "missing".to_owned() } else { format!("`{key}`") };
            return Err(bad(format!(
                "`trials[{index}].profile_key` is {found}: expected a key of 64 hexadecimal digits, \
                 as `saturn profile list --json` shows; trials by name alone go into one run, by \
                 profile=FILE"
            )));
        }
    }
    let failed = |trial: &&Trial| matches!(trial.outcome, Some(TrialOutcome::Failed { .. }));
    let num_failed = trials.iter().filter(failed).count();
    let added = store.add(trials, &mut warn)?;
    if args.json {
        print_json(&json!({
            "version": 1, "new": added.new, "replaced": added.replaced, "failed": num_failed,
        }));
        return Ok(());
    }
    let mut line = format!("{} taken in", count(added.new + added.replaced, "trial"));
    if added.replaced > 0 {
        let _ = write!(line, ", {} in place of older ones", added.replaced);
    }
    if num_failed > 0 {
        let _ = write!(line, "; {num_failed} failed, and would be tried again anyway");
    }
    eprintln!("{line}; to see them: saturn profile list");
    Ok(())
}
