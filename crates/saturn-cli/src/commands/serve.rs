//! `saturn serve`.

use crate::args::ServeArgs;
use crate::exit::Exit;
use crate::python;

pub(crate) fn run(args: &ServeArgs) -> Exit {
    python::become_verb("serve", &serde_json::json!(args))
}
