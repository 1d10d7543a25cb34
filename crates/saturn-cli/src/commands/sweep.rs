//! `saturn sweep`.

use crate::args::SweepArgs;
use crate::exit::Exit;
use crate::python;

pub(crate) fn run(args: &SweepArgs) -> Exit {
    python::become_verb("sweep", &serde_json::json!(args))
}
