//! `saturn stop`.

use saturn_engine::Command;
use saturn_view::words::resume_command;

use crate::args::StopArgs;
use crate::exit::Exit;
use crate::tell::{Instruction, tell};

pub(crate) fn run(args: &StopArgs) -> Exit {
    let how = if args.at_once { "at once" } else { "at checkpoints" };
    tell(&args.run, args.json, |run| {
        // A journal that can't be read is told by whoever resumes.
        let resume = saturn_runtime::read(&run.path).map_or_else(
            |_| format!("saturn resume {}", run.shown),
            |(state, _)| resume_command(&state, &run.shown),
        );
        Instruction {
            command: Command::Stop { at_once: args.at_once },
            done: format!("the run stops {how}"),
            next: format!("to go on: {resume}"),
        }
    })
}
