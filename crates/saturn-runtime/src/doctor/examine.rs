//! Examines everything that runs need.
//!
//! A finding has one subject. Its advice says what follows from it.

use std::path::Path;

use crate::devices::machine::Machine;
use crate::doctor::finding::Finding;
use crate::doctor::interpreter;
use crate::doctor::machine;
use crate::doctor::places;

/// Examines the machine, the directory where runs go, and the interpreter that runs scripts. Skips
/// the interpreter if `python` is `None`.
pub fn examine(runs_dir: &Path, python: Option<&Path>) -> Vec<Finding> {
    let machine = Machine::look();
    let num_gpus = machine.gpus().map_or(0, |gpus| gpus.len());
    let mut findings = vec![Finding::ok("saturn", env!("CARGO_PKG_VERSION"))];
    findings.extend(machine::examine(&machine));
    findings.extend(places::examine(runs_dir));
    if let Some(python) = python {
        findings.extend(interpreter::examine(python, num_gpus));
    }
    findings
}
