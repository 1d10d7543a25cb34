//! `saturn shell`.

use crate::args::ShellArgs;
use crate::exit::Exit;
use crate::python;

pub(crate) fn run(args: &ShellArgs) -> Exit {
    python::become_verb("shell", &serde_json::json!(args))
}
