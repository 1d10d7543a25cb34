//! `saturn profile`: trial results of earlier runs. One file a verb.

mod export;
mod forget;
mod import;
mod list;
mod show;

use saturn_core::Trial;
use saturn_core::names::escape_terminal;
use saturn_store::{FileError, Store};

use crate::args::{ProfileArgs, ProfileCommand};
use crate::exit::{Exit, fail};

/// How many digits of a key are shown if a person may type them.
const SHOWN_DIGITS: usize = 12;

pub(crate) fn run(args: &ProfileArgs) -> Exit {
    let Some(store) = Store::of_user() else {
        return fail(Exit::BadInput, "there is no home: set SATURN_HOME or HOME");
    };
    let done = match &args.command {
        ProfileCommand::List(args) => list::run(&store, args),
        ProfileCommand::Show(args) => show::run(&store, args),
        ProfileCommand::Export(args) => export::run(&store, args),
        ProfileCommand::Import(args) => import::run(&store, args),
        ProfileCommand::Forget(args) => forget::run(&store, args),
    };
    match done {
        Ok(()) => Exit::Ok,
        Err(Failure::BadInput(message)) => fail(Exit::BadInput, escape_terminal(&message)),
        Err(Failure::Machine(message)) => fail(Exit::Machine, escape_terminal(&message)),
    }
}

/// Why a verb did nothing.
enum Failure {
    BadInput(String),
    Machine(String),
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::Machine(saturn_store::with_causes(&error))
    }
}

/// The keys with these beginnings; all keys if no beginning is given.
fn keys(store: &Store, beginnings: &[String]) -> Result<Vec<String>, Failure> {
    let all = store.keys()?;
    if beginnings.is_empty() {
        return Ok(all);
    }
    let mut found = Vec::new();
    for beginning in beginnings {
        let mut these = all.iter().filter(|key| key.starts_with(beginning.as_str()));
        match (these.next(), these.next()) {
            (Some(key), None) => found.push(key.clone()),
            (None, _) => {
                let message = format!(
                    "no profile has a key that begins with `{beginning}`; saturn profile list \
                     tells which there are"
                );
                return Err(Failure::BadInput(message));
            }
            (Some(one), Some(other)) => {
                let message = format!(
                    "several profiles have keys that begin with `{beginning}`: {}…, {}…",
                    shown(one),
                    shown(other)
                );
                return Err(Failure::BadInput(message));
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The trials of some keys, in order. Reports files that could not be used.
fn trials(store: &Store, keys: &[String]) -> Vec<Trial> {
    keys.iter().flat_map(|key| store.read(key, &mut warn)).collect()
}

/// Prints a note for the person on standard error.
#[expect(clippy::needless_pass_by_value, reason = "the store hands lines over")]
fn warn(line: String) {
    eprintln!("warning: {}", escape_terminal(&line));
}

/// The part of a key that a person types.
fn shown(key: &str) -> &str {
    key.get(..SHOWN_DIGITS).unwrap_or(key)
}

/// How long ago something was measured, in words.
fn age(measured_unix_s: Option<u64>) -> String {
    measured_unix_s.map_or_else(
        || "-".to_owned(),
        |then| {
            let age_s = now_unix_s().saturating_sub(then);
            format!("{} ago", saturn_view::units::duration(age_s as f64))
        },
    )
}

#[expect(clippy::disallowed_methods, reason = "how old something is, is a matter of the present")]
fn now_unix_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Rows below one another, each column as wide as its widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let num_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| saturn_view::text::width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..num_columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> =
            cells.map(|(cell, width)| saturn_view::text::pad(cell, *width)).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}
