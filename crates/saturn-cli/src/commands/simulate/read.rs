//! Reading a workload and the profile that it names.

use std::path::{Path, PathBuf};

use saturn_sim::policy::Case;
use saturn_sim::{Table, WorkloadFile};
use saturn_store::io_words;

use crate::exit::Exit;

/// Why a workload can't be simulated, and how to exit.
type Refusal = (Exit, String);

/// The workload of a file.
pub(crate) fn case(path: &Path) -> Result<Case, Refusal> {
    case_and_table(path).map(|(case, _)| case)
}

/// The workload of a file, and the step times that it names.
pub(crate) fn case_and_table(path: &Path) -> Result<(Case, Option<Table>), Refusal> {
    let expected = "a workload (TOML), such as examples/simulate.toml";
    let text = read(path, expected)?;
    let wrong = |error| (Exit::BadInput, format!("`{}`: {error}", path.display()));
    let file = WorkloadFile::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let table = match file.profile() {
        Some(profile) => Some(table(&beside(path, profile))?),
        None => None,
    };
    let case = file.case(table.as_ref()).map_err(|error| wrong(error.to_string()))?;
    Ok((case, table))
}

/// A file that a workload names, relative to the workload's folder.
fn beside(workload: &Path, named: &str) -> PathBuf {
    workload.parent().unwrap_or_else(|| Path::new("")).join(named)
}

/// The step times of a table or of a profile.
fn table(path: &Path) -> Result<Table, Refusal> {
    let expected = "a table of step times (CSV), or a profile as a run writes it (JSON)";
    let text = read(path, expected)?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let table = if is_json { Table::from_profile(&text) } else { Table::from_csv(&text) };
    table.map_err(|error| (Exit::BadInput, format!("`{}`: {error}", path.display())))
}

fn read(path: &Path, expected: &str) -> Result<String, Refusal> {
    std::fs::read_to_string(path).map_err(|error| {
        let error = io_words(&error);
        (
            Exit::BadInput,
            format!("failed to read `{}`: {error}; expected {expected}", path.display()),
        )
    })
}
