//! `saturn resume`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use saturn_engine::RunEnd;
use saturn_runtime::{DeviceMemory, Interpreter, ResumeOptions, RuntimeError, Watcher};
use saturn_view::Console;

use super::run_failed;
use crate::args::ResumeArgs;
use crate::exit::{Exit, print_data};
use crate::find;
use crate::interrupt::Interrupt;

pub(crate) fn run(args: &ResumeArgs) -> Exit {
    let run = match find::run(&args.run) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    if let Some(address) = &args.cluster {
        return on_cluster(args, &run.path, address);
    }
    let options = ResumeOptions {
        device_memory: args.device_memory.map_or(DeviceMemory::AsBefore, |size| size.0),
        allow_other_hardware: args.allow_other_hardware,
        ..ResumeOptions::default()
    };
    let interrupt = Interrupt::catch();
    let mut is_interrupted = || interrupt.take();
    let watcher = Watcher::new(Console::stderr(), &mut is_interrupted);
    let outcome = match saturn_runtime::resume(&run.path, options, watcher) {
        Ok(outcome) => outcome,
        Err(error) => return resume_failed(&error, &run.shown),
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

/// Becomes the run's own Python, which alone has Ray.
fn on_cluster(args: &ResumeArgs, run: &Path, address: &str) -> Exit {
    let Interpreter { python, python_path } = match saturn_runtime::interpreter_of(run) {
        Ok(interpreter) => interpreter,
        Err(error) => return run_failed(&error),
    };
    let mut command = Command::new(&python);
    command.env("PYTHONPATH", python_path.join(":")).env("PYTHONSAFEPATH", "1");
    command.args(["-m", "saturn.cluster.resume"]).arg(run).args(["--cluster", address]);
    for (name, count) in [("--nodes", args.nodes), ("--gpus-per-node", args.gpus_per_node)] {
        command.args(count.map(|count| format!("{name}={count}")));
    }
    let interface = args.network_interface.as_ref();
    command.args(interface.map(|name| format!("--network-interface={name}")));
    command.args(args.allow_other_hardware.then_some("--allow-other-hardware"));
    command.args(args.json.then_some("--json"));
    // It returns only where that failed.
    run_failed(&RuntimeError::Python { python, source: command.exec() })
}

/// Says why a run was not resumed, and what to do where that is known.
fn resume_failed(error: &RuntimeError, run: &str) -> Exit {
    let hint = match error {
        RuntimeError::Busy { .. } => format!("how it stands: saturn status {run}"),
        RuntimeError::OtherHardware { .. } => {
            format!("to allow it: saturn resume {run} --allow-other-hardware")
        }
        _ => return run_failed(error),
    };
    let exit = run_failed(error);
    eprintln!("{hint}");
    exit
}
