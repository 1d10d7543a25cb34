//! `saturn join`.

use crate::args::JoinArgs;
use crate::exit::Exit;
use crate::python;

pub(crate) fn run(args: &JoinArgs) -> Exit {
    python::become_verb("join", &serde_json::json!(args))
}
