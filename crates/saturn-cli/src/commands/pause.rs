//! `saturn pause`.

use saturn_engine::Command;
use saturn_view::words::shell_quoted;

use crate::args::TaskArgs;
use crate::exit::Exit;
use crate::tell::{Instruction, tell};

pub(crate) fn run(args: &TaskArgs) -> Exit {
    tell(&args.run, args.json, |run| Instruction {
        command: Command::Pause { task: args.task.clone() },
        done: format!("`{}` is paused: if it trains, it stops at a checkpoint", args.task),
        next: format!("to unpause the task: saturn unpause {run} {}", shell_quoted(&args.task)),
    })
}
