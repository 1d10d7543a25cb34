//! `saturn close`.

use saturn_engine::Command;

use crate::args::CloseArgs;
use crate::exit::Exit;
use crate::tell::{Instruction, tell};

pub(crate) fn run(args: &CloseArgs) -> Exit {
    tell(&args.run, args.json, |run| Instruction {
        command: Command::Close,
        done: "the run ends when its tasks have".to_owned(),
        next: format!("when that will be: saturn status {run}"),
    })
}
