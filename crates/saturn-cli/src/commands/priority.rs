//! `saturn priority`.

use saturn_engine::Command;

use crate::args::PriorityArgs;
use crate::exit::Exit;
use crate::tell::{Instruction, tell};

pub(crate) fn run(args: &PriorityArgs) -> Exit {
    tell(&args.run, args.json, |run| Instruction {
        command: Command::Wish {
            task: args.task.clone(),
            priority: Some(args.priority),
            deadline_s: None,
            no_deadline: false,
            release_s: None,
            after: None,
        },
        done: format!("`{}` has priority {}, and a new plan is made", args.task, args.priority),
        next: format!("what this changes: saturn status {run}"),
    })
}
