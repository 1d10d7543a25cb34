//! `saturn trace`.

use saturn_store::Disk;

use super::run_failed;
use crate::args::TraceArgs;
use crate::exit::{Exit, print_data};
use crate::find;

pub(crate) fn run(args: &TraceArgs) -> Exit {
    let run = match find::with_journal(&args.run) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let written = if args.json {
        saturn_runtime::trace(&run.path)
    } else {
        saturn_runtime::write_trace(&run.path, &Disk::default())
            .map(|path| format!("{}\n", path.display()))
    };
    match written {
        Ok(text) => {
            print_data(&text);
            Exit::Ok
        }
        Err(error) => run_failed(&error),
    }
}
