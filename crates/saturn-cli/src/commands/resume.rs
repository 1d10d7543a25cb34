//! `saturn resume`.

use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_engine::RunEnd;
use saturn_runtime::{DeviceMemory, ResumeOptions, RuntimeError, Watcher};
use saturn_view::Console;

use super::run_failed;
use crate::args::ResumeArgs;
use crate::exit::{Exit, fail, print_data};
use crate::find;
use crate::interrupt::Interrupt;
use crate::python;

pub(crate) fn run(args: &ResumeArgs) -> Exit {
    if let Some(option) = args.cluster.without_cluster() {
        return fail(Exit::BadInput, format!("{option} is for a cluster: add --cluster auto"));
    }
    let run = match find::with_journal(&args.run) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    if let Some(python) = &args.python
        && let Err(error) = saturn_runtime::change_python(&run.path, python)
    {
        return resume_failed(&error, &run.shown);
    }
    if args.cluster.cluster.is_some() || saturn_runtime::has_tuner(&run.path) {
        // Stoppers, studies and Ray need Python.
        return match saturn_runtime::interpreter_of(&run.path) {
            Ok(interpreter) => {
                python::become_verb_in(&interpreter, "resume", &asked(args, &run.path))
            }
            Err(error) => resume_failed(&error, &run.shown),
        };
    }
    let options = ResumeOptions {
        device_memory: args.device_memory.map_or(DeviceMemory::AsBefore, |size| size.0),
        allow_other_hardware: args.allow_other_hardware,
        wait: args.wait,
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
    } else if outcome.end == RunEnd::Complete {
        for line in outcome.report.ranking() {
            print_data(&format!("{}\n", escape_terminal(&line)));
        }
    }
    match outcome.end {
        RunEnd::Interrupted => Exit::Interrupted,
        RunEnd::Complete if outcome.num_failed > 0 => Exit::TaskFailed,
        RunEnd::Complete => Exit::Ok,
    }
}

/// The request for Python.
fn asked(args: &ResumeArgs, run_dir: &Path) -> serde_json::Value {
    let device_memory_bytes = args.device_memory.map(|size| match size.0 {
        DeviceMemory::Bytes(bytes) => bytes,
        _ => 0,
    });
    serde_json::json!({
        "run_dir": run_dir,
        "device_memory_bytes": device_memory_bytes,
        "allow_other_hardware": args.allow_other_hardware,
        "wait": args.wait,
        "cluster": args.cluster,
        "json": args.json,
    })
}

/// Reports why a run was not resumed, and what to do if that is known.
fn resume_failed(error: &RuntimeError, run: &str) -> Exit {
    let hint = match error {
        RuntimeError::WaitEnded => {
            eprintln!("{error}; to go on with the run: saturn resume {run}");
            return Exit::Interrupted;
        }
        RuntimeError::Busy { .. } => format!("where the run stands: saturn status {run}"),
        RuntimeError::OtherHardware { .. } => {
            format!("to go on with other hardware: saturn resume {run} --allow-other-hardware")
        }
        _ => return run_failed(error),
    };
    let exit = run_failed(error);
    eprintln!("{hint}");
    exit
}
