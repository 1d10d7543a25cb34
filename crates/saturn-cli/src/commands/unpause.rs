//! `saturn unpause`.

use saturn_engine::Command;
use saturn_view::words::shell_quoted;

use crate::args::TaskArgs;
use crate::exit::Exit;
use crate::tell::{Instruction, tell};

pub(crate) fn run(args: &TaskArgs) -> Exit {
    tell(&args.run, args.json, |run| Instruction {
        command: Command::Unpause { task: args.task.clone() },
        done: format!("`{}` is unpaused", args.task),
        next: format!("when it trains: saturn explain {run} {}", shell_quoted(&args.task)),
    })
}
