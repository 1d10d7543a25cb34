//! `saturn report`.

use super::run_failed;
use crate::args::ReportArgs;
use crate::exit::{Exit, print_data};

pub(crate) fn run(args: &ReportArgs) -> Exit {
    let report = match saturn_runtime::report(&args.run) {
        Ok(report) => report,
        Err(error) => return run_failed(&error),
    };
    if args.json {
        print_data(&report.to_json());
    } else {
        print_data(&format!("{}\n", args.run.join("report.html").display()));
    }
    Exit::Ok
}
