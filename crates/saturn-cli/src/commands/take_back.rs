//! `saturn take-back`.

use saturn_engine::Command;

use crate::args::TakeBackArgs;
use crate::exit::Exit;
use crate::tell::{Instruction, tell};

pub(crate) fn run(args: &TakeBackArgs) -> Exit {
    tell(&args.run, args.json, |run| Instruction {
        command: Command::TakeBack { node: args.node.clone(), devices: args.devices.clone() },
        done: format!("devices of `{}` are used again", args.node),
        next: format!("what uses them: saturn status {run}"),
    })
}
