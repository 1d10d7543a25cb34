//! `saturn doctor`: tells what runs need, whether it is there, and what to do where it is not.
//!
//! The facts come from `saturn_runtime::probe` and from the user's Python; the words are here. A
//! finding has one subject. Its advice says what follows from it.

mod finding;
mod interpreter;
mod machine;
mod places;

use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_runtime::probe;
use saturn_view::text;
use saturn_view::units::count;
use serde_json::json;

use self::finding::{Finding, Mark};
use crate::args::DoctorArgs;
use crate::exit::{Exit, print_data, print_json};
use crate::python;
use crate::screen::Screen;

/// The width of the mark before a finding: that of the longest mark.
const MARK_WIDTH: usize = 4;

pub(crate) fn run(args: &DoctorArgs) -> Exit {
    let python = args.python.clone().or_else(python::of_user);
    let mut findings = examine(&args.runs_dir, python.as_deref());
    if python.is_none() {
        findings.push(Finding {
            subject: "Python".to_owned(),
            mark: Mark::Bad,
            found: "there is none on the path".to_owned(),
            advice: Some("name one: saturn doctor --python PATH".to_owned()),
        });
    }
    let worst = findings.iter().map(|one| one.mark).max().unwrap_or(Mark::Ok);
    if args.json {
        print_json(&json!({"version": 1, "ok": worst != Mark::Bad, "findings": findings}));
    } else {
        let screen = Screen::stdout();
        print_data(&table(&findings, screen));
        eprintln!("{}", summary(&findings));
    }
    if worst == Mark::Bad { Exit::Machine } else { Exit::Ok }
}

/// Examines the machine, the directory where runs go, and the interpreter that runs scripts. Skips
/// the interpreter if `python` is `None`.
fn examine(runs_dir: &Path, python: Option<&Path>) -> Vec<Finding> {
    let there = probe::machine();
    let num_gpus = there.gpus.as_ref().map_or(0, Vec::len);
    let mut findings = vec![Finding::ok("saturn", env!("CARGO_PKG_VERSION"))];
    findings.extend(machine::examine(&there));
    findings.extend(places::examine(runs_dir));
    if let Some(python) = python {
        findings.extend(interpreter::examine(python, num_gpus));
    }
    findings
}

/// A line for each finding; advice is on the line below it.
fn table(findings: &[Finding], screen: Screen) -> String {
    let (columns, _) = screen.size();
    let width = findings.iter().map(|one| text::width(&one.subject)).max().unwrap_or(0);
    let indent = MARK_WIDTH + width + 4;
    let mut lines = String::new();
    for Finding { subject, mark, found, advice } in findings {
        let (word, painted): (&str, fn(saturn_view::Paint, &str) -> String) = match mark {
            Mark::Ok => ("ok", saturn_view::Paint::good),
            Mark::Warn => ("warn", saturn_view::Paint::warn),
            Mark::Bad => ("bad", saturn_view::Paint::bad),
        };
        let mark = painted(screen.paint, &format!("{word:MARK_WIDTH$}"));
        let subject = text::pad(&escape_terminal(subject), width);
        let line = format!("{mark}  {subject}  {}", escape_terminal(found));
        let advice = advice.iter().map(|advice| {
            let advice = format!("{}→ {}", " ".repeat(indent), escape_terminal(advice));
            text::wrap(&advice, columns, indent + 2)
        });
        for part in text::wrap(&line, columns, indent).into_iter().chain(advice.flatten()) {
            lines.push_str(part.trim_end());
            lines.push('\n');
        }
    }
    lines
}

/// The verdict on the whole machine.
fn summary(findings: &[Finding]) -> String {
    let num = |mark: Mark| findings.iter().filter(|one| one.mark == mark).count();
    match (num(Mark::Bad), num(Mark::Warn)) {
        (0, 0) => "all is well".to_owned(),
        (0, warn) => format!("runs will work; {} to look at", count(warn, "thing")),
        (bad, _) => format!("{} that runs need, missing or not working", count(bad, "thing")),
    }
}
