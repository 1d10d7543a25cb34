//! `saturn completions`.

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs};
use crate::exit::{Exit, print_data};

pub(crate) fn run(args: &CompletionsArgs) -> Exit {
    // Made in memory: the generator panics if the reader of a pipe has gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "saturn", &mut script);
    print_data(&String::from_utf8_lossy(&script));
    Exit::Ok
}
