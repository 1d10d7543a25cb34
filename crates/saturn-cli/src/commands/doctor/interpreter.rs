//! Examines the user's Python: `saturn.worker.doctor` runs there and prints its own findings.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use saturn_runtime::probe;
use saturn_store::io_words;
use serde::Deserialize;

use super::finding::Finding;

/// How long the interpreter may take: torch is large, and may come from a cold disk.
const PATIENCE: Duration = Duration::from_mins(3);
/// The module that examines the interpreter from within.
const MODULE: &str = "saturn.worker.doctor";
/// The subject of findings about an interpreter that printed none itself.
const SUBJECT: &str = "Python";

/// The output of `saturn.worker.doctor`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Findings {
    saturn: String,
    findings: Vec<Finding>,
}

/// The interpreter's findings, or one finding that says why it printed none. `num_gpus` is how many
/// GPUs torch should find on this machine.
pub(super) fn examine(python: &Path, num_gpus: usize) -> Vec<Finding> {
    let arguments = ["--gpus", &num_gpus.to_string()];
    let said = match probe::run_module(python, MODULE, &arguments, PATIENCE) {
        Ok(said) => said,
        Err(error) => {
            let found = format!("{} can't be started: {}", python.display(), io_words(&error));
            return vec![Finding::bad(
                SUBJECT,
                found,
                "name another Python: saturn doctor --python PATH",
            )];
        }
    };
    let Some(status) = said.status else {
        let found = format!("{} did not answer within {} s", python.display(), PATIENCE.as_secs());
        let advice =
            format!("see whether it imports torch: {} -c 'import torch'", python.display());
        return vec![Finding::bad(SUBJECT, found, advice)];
    };
    match serde_json::from_str::<Findings>(&said.output) {
        Ok(Findings { saturn, mut findings }) => {
            let here = env!("CARGO_PKG_VERSION");
            if saturn != here {
                let found =
                    format!("the package has version {saturn}, this program has version {here}");
                let advice = "install both in one environment, from one version";
                findings.insert(0, Finding::bad("saturn in Python", found, advice));
            }
            findings
        }
        Err(_) if status.success() => {
            let found =
                format!("{} has the package of another version of Saturn", python.display());
            let advice =
                "install the package and this program in one environment, from one version";
            vec![Finding::bad("saturn in Python", found, advice)]
        }
        Err(_) => vec![without_saturn(python, status, &said.errors)],
    }
}

/// Explains in one line why `saturn.worker.doctor` did not run in this interpreter.
fn without_saturn(python: &Path, status: ExitStatus, complaint: &str) -> Finding {
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map_or_else(|| status.to_string(), |line| line.trim().to_owned());
    let shown = python.display();
    // For a submodule or dependency Python quotes the name: `ModuleNotFoundError: No module named
    // 'numpy'`.
    if last.ends_with("No module named saturn") || last.contains("No module named 'saturn'") {
        let found = format!("{shown} has no package `saturn`");
        let advice = format!(
            "in a checkout of Saturn: {shown} -m pip install .; or name another Python: saturn \
             doctor --python PATH"
        );
        return Finding::bad(SUBJECT, found, advice);
    }
    // The package itself names another package that it needs, and the remedy.
    let told = last.strip_prefix("ModuleNotFoundError: Saturn needs ");
    if let Some((found, advice)) = told.and_then(|told| told.split_once(": ")) {
        return Finding::bad(SUBJECT, format!("Saturn needs {found}"), advice);
    }
    if let Some(missing) = last.strip_prefix("ModuleNotFoundError: No module named ") {
        let missing = missing.trim_matches('\'');
        let found = format!("{shown} has no package `{missing}`, which Saturn needs");
        return Finding::bad(SUBJECT, found, format!("{shown} -m pip install {missing}"));
    }
    Finding::bad(
        SUBJECT,
        format!("{shown} can't import `saturn`: {last}"),
        "Saturn needs Python 3.10 or later, with the package saturn-train installed",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;
    use crate::commands::doctor::finding::Mark;

    /// The findings for an interpreter that is this shell script.
    fn found(script: &str) -> Vec<Finding> {
        let dir = TempDir::new().unwrap();
        let python = dir.path().join("python");
        std::fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
        examine(&python, 0)
    }

    #[test]
    fn a_python_without_what_is_needed_gets_one_clear_line() {
        for (script, words) in [
            ("echo /usr/bin/python3: No module named saturn >&2; exit 1", "no package `saturn`"),
            (
                "echo \"ModuleNotFoundError: No module named 'cloudpickle'\" >&2; exit 1",
                "no package `cloudpickle`, which Saturn needs",
            ),
            (
                "echo 'ModuleNotFoundError: Saturn needs the package `p`, which x lacks: y' >&2; exit 1",
                "Saturn needs the package `p`, which x lacks",
            ),
            ("echo 'SyntaxError: invalid syntax' >&2; exit 1", "SyntaxError: invalid syntax"),
            ("kill -9 $$", "signal: 9"),
            ("echo hello", "another version of Saturn"),
        ] {
            let found = found(script);
            assert_eq!(found.len(), 1, "{script}");
            assert_eq!(found[0].mark, Mark::Bad);
            assert!(found[0].found.contains(words), "{script}: {}", found[0].found);
        }
        let nowhere = examine(Path::new("/nowhere/python"), 0);
        assert!(nowhere[0].found.contains("can't be started"), "{nowhere:?}");
    }

    #[test]
    fn another_version_of_the_package_is_told() {
        let said = r#"{"saturn": "0.0.1", "findings": [
            {"subject": "torch", "mark": "ok", "found": "2.9", "advice": null}]}"#;
        let found = found(&format!("cat <<'END'\n{said}\nEND"));
        let marks: Vec<Mark> = found.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Bad, Mark::Ok]);
        assert!(found[0].found.starts_with("the package has version 0.0.1"));
    }
}
