//! `saturn stop`.

use saturn_engine::Command;

use crate::args::StopArgs;
use crate::exit::Exit;
use crate::tell::{Instruction, tell};

pub(crate) fn run(args: &StopArgs) -> Exit {
    let how = if args.at_once { "at once" } else { "at checkpoints" };
    tell(&args.run, args.json, |run| Instruction {
        command: Command::Stop { at_once: args.at_once },
        done: format!("the run stops {how}"),
        next: format!("to go on: saturn resume {run}"),
    })
}
