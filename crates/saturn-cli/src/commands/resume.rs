//! `saturn resume`.

use saturn_engine::RunEnd;
use saturn_runtime::{DeviceMemory, Watcher};
use saturn_view::Console;

use super::run_failed;
use crate::args::ResumeArgs;
use crate::exit::{Exit, print_data};
use crate::interrupt::Interrupt;

pub(crate) fn run(args: &ResumeArgs) -> Exit {
    let interrupt = Interrupt::catch();
    let watcher = Watcher { console: Console::stderr(), is_interrupted: &mut || interrupt.take() };
    let device_memory = args.device_memory.map_or(DeviceMemory::AsBefore, |size| size.0);
    let outcome = match saturn_runtime::resume(&args.run, device_memory, watcher) {
        Ok(outcome) => outcome,
        Err(error) => return run_failed(&error),
    };
    if args.json {
        print_data(&outcome.report.to_json());
    }
    match outcome.end {
        RunEnd::Interrupted => Exit::Interrupted,
        RunEnd::Complete if outcome.num_failed > 0 => Exit::TaskFailed,
        RunEnd::Complete => Exit::Ok,
    }
}
