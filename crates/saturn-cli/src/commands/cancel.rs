//! `saturn cancel`.

use saturn_engine::Command;

use crate::args::TaskArgs;
use crate::exit::Exit;
use crate::tell::{Told, tell};

pub(crate) fn run(args: &TaskArgs) -> Exit {
    tell(&args.run, args.json, |run| Told {
        command: Command::Cancel { task: args.task.clone() },
        done: format!("`{}` is cancelled, and what comes after it", args.task),
        next: format!("the other tasks: saturn status {run}"),
    })
}
