//! `saturn run`.

use crate::args::RunArgs;
use crate::exit::Exit;
use crate::python;

pub(crate) fn run(args: &RunArgs) -> Exit {
    python::become_verb("run", &serde_json::json!(args))
}
