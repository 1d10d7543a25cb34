//! `saturn cancel`: of a task, or of a sweep of the pool that has a stopper or a search.

use saturn_engine::Command;

use crate::args::TaskArgs;
use crate::exit::Exit;
use crate::find;
use crate::tell::{Instruction, Refused, answer, tell};

pub(crate) fn run(args: &TaskArgs) -> Exit {
    let run = match find::run(&args.run) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let outcome = match saturn_runtime::cancel_sweep(&run.path, &args.task) {
        Ok(false) => {
            return tell(&args.run, args.json, |run| Instruction {
                command: Command::Cancel { task: args.task.clone(), by: None },
                done: format!("`{}` is cancelled, and what comes after it", args.task),
                next: format!("the other tasks: saturn status {run}"),
            });
        }
        Ok(true) => Ok(()),
        Err(error) => Err(Refused::by_machine(&error)),
    };
    let done = format!(
        "the sweep `{}` is cancelled, with all of its tasks that have not ended; the other tasks: \
         saturn status {}",
        args.task, run.shown
    );
    answer(&run, args.json, outcome, &done)
}
