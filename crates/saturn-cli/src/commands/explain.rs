//! `saturn explain`.

use super::run_failed;
use crate::args::ExplainArgs;
use crate::exit::{Exit, fail, print_data, print_json};
use crate::find;
use crate::screen::Screen;

pub(crate) fn run(args: &ExplainArgs) -> Exit {
    let run = match find::run_or_newest(args.run.as_deref()) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let explanation = match saturn_runtime::explain(&run.path, args.task.as_deref()) {
        Ok(explanation) => explanation,
        Err(error) => return run_failed(&error),
    };
    if args.json {
        match serde_json::to_value(&explanation) {
            Ok(value) => print_json(&value),
            Err(error) => return fail(Exit::Machine, error),
        }
        return Exit::Ok;
    }
    let screen = Screen::stdout();
    let text = explanation.text(screen.size().0, screen.paint);
    print_data(&format!("{}\n", text.trim_end()));
    Exit::Ok
}
