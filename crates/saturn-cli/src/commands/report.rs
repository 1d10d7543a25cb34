//! `saturn report`.

use std::collections::BTreeSet;
use std::path::Path;

use saturn_view::{Comparison, Report, comparison_html};

use super::run_failed;
use crate::args::ReportArgs;
use crate::exit::{Exit, fail, print_data};
use crate::find::{self, Found};
use crate::python;

/// The default file of the page of several runs.
const DEFAULT_PAGE: &str = "comparison.html";

pub(crate) fn run(args: &ReportArgs) -> Exit {
    let runs: Result<Vec<Found>, Exit> =
        args.runs.iter().map(|run| find::with_journal(run)).collect();
    match runs.as_deref() {
        Ok([run]) => one(&run.path, args),
        Ok(runs) => several(runs, args),
        Err(exit) => *exit,
    }
}

fn one(run: &Path, args: &ReportArgs) -> Exit {
    if args.out.is_some() {
        let message = "`--out` is for the page of several runs; that of one run is its report.html";
        return fail(Exit::BadInput, message);
    }
    let reported = match saturn_runtime::report(run) {
        Ok(reported) => reported,
        Err(error) => return run_failed(&error),
    };
    if args.json {
        print_data(&reported.report.to_json());
    }
    if args.csv {
        // The table is made from the journal: a directory that can't be written to has one too.
        return python::become_verb("table", &serde_json::json!({ "run_dir": run }));
    }
    if let Some(warning) = reported.warnings.first() {
        return fail(Exit::Machine, warning);
    }
    if !args.json {
        print_data(&format!("{}\n", run.join("report.html").display()));
    }
    Exit::Ok
}

fn several(runs: &[Found], args: &ReportArgs) -> Exit {
    if args.csv {
        return fail(
            Exit::BadInput,
            "`--csv` prints the tasks of one run; name one, or use `--json`",
        );
    }
    let mut known = BTreeSet::new();
    for run in runs {
        // Runs of different names can be compared.
        let place = run.path.canonicalize().unwrap_or_else(|_| run.path.clone());
        if !known.insert(place) {
            return fail(
                Exit::BadInput,
                format!("the run {} is named twice; name each once", run.shown),
            );
        }
    }
    let reports: Result<Vec<Report>, _> =
        runs.iter().map(|run| saturn_runtime::read_report(&run.path)).collect();
    let mut reports = match reports {
        Ok(reports) => reports,
        Err(error) => return run_failed(&error),
    };
    tell_apart(&mut reports, runs);
    if args.json {
        print_data(&Comparison::of(&reports).to_json());
        return Exit::Ok;
    }
    let page = args.out.as_deref().unwrap_or(Path::new(DEFAULT_PAGE));
    if let Err(error) = saturn_runtime::write_page(page, &comparison_html(&reports)) {
        return run_failed(&error);
    }
    print_data(&format!("{}\n", page.display()));
    Exit::Ok
}

/// Runs of the same name are shown by their paths.
fn tell_apart(reports: &mut [Report], runs: &[Found]) {
    let names: Vec<String> = reports.iter().map(|report| report.name.clone()).collect();
    for (report, run) in reports.iter_mut().zip(runs) {
        if names.iter().filter(|name| **name == report.name).count() > 1 {
            report.name = run.path.display().to_string();
        }
    }
}
