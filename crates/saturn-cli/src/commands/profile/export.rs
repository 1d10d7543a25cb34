//! `saturn profile export`.

use saturn_core::Profile;
use saturn_core::names::escape_terminal;
use saturn_store::{Store, io_words};
use saturn_view::units::count;
use serde_json::json;

use super::{Failure, keys, trials};
use crate::args::ExportArgs;
use crate::exit::{print_data, print_json};

pub(super) fn run(store: &Store, args: &ExportArgs) -> Result<(), Failure> {
    let trials = trials(store, &keys(store, &args.keys)?);
    let num_trials = trials.len();
    let text = Profile { trials }.to_json();
    if args.file.as_os_str() == "-" {
        print_data(&text);
        return Ok(());
    }
    let file = args.file.display().to_string();
    std::fs::write(&args.file, text).map_err(|error| {
        Failure::Machine(format!("failed to write `{file}`: {}", io_words(&error)))
    })?;
    if args.json {
        print_json(&json!({"version": 1, "file": file, "trials": num_trials}));
    } else {
        let file = escape_terminal(&file);
        eprintln!(
            "{} in `{file}`; elsewhere: saturn profile import {file}",
            count(num_trials, "trial")
        );
    }
    Ok(())
}
