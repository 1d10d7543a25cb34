//! `saturn report`.

use super::run_failed;
use crate::args::ReportArgs;
use crate::exit::{Exit, fail, print_data};
use crate::find;
use crate::python;

pub(crate) fn run(args: &ReportArgs) -> Exit {
    let run = match find::run(&args.run) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let reported = match saturn_runtime::report(&run.path) {
        Ok(reported) => reported,
        Err(error) => return run_failed(&error),
    };
    if args.json {
        print_data(&reported.report.to_json());
    }
    if let Some(warning) = reported.warnings.first() {
        return fail(Exit::Machine, warning);
    }
    if args.csv {
        return python::become_verb("table", &serde_json::json!({ "run_dir": run.path }));
    }
    if !args.json {
        print_data(&format!("{}\n", run.path.join("report.html").display()));
    }
    Exit::Ok
}
