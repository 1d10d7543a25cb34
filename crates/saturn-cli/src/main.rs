//! The `saturn` program: arguments, exit codes, and the choice of stream. Data goes to standard
//! output, messages to standard error. The crates below do all work.

mod args;
mod commands;
mod exit;
mod find;
mod interrupt;
mod python;
mod screen;
mod size;
mod tell;
mod waiting;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::exit::Exit;

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => match args.command {
            Command::Plan(args) => commands::plan::run(&args),
            Command::Estimate(args) => commands::estimate::run(&args),
            Command::Simulate(args) => commands::simulate::run(&args),
            Command::Whatif(args) => commands::whatif::run(&args),
            Command::Run(args) => commands::run::run(&args),
            Command::Sweep(args) => commands::sweep::run(&args),
            Command::Join(args) => commands::join::run(&args),
            Command::Serve(args) => commands::serve::run(&args),
            Command::Shell(args) => commands::shell::run(&args),
            Command::Submit(args) => commands::submit::run(&args),
            Command::Resume(args) => commands::resume::run(&args),
            Command::Report(args) => commands::report::run(&args),
            Command::Trace(args) => commands::trace::run(&args),
            Command::Runs(args) => commands::runs::run(&args),
            Command::Status(args) => commands::status::run(&args),
            Command::Web(args) => commands::web::run(&args),
            Command::Explain(args) => commands::explain::run(&args),
            Command::Logs(args) => commands::logs::run(&args),
            Command::Cancel(args) => commands::cancel::run(&args),
            Command::Pause(args) => commands::pause::run(&args),
            Command::Unpause(args) => commands::unpause::run(&args),
            Command::Priority(args) => commands::priority::run(&args),
            Command::TakeBack(args) => commands::take_back::run(&args),
            Command::Close(args) => commands::close::run(&args),
            Command::Stop(args) => commands::stop::run(&args),
            Command::Profile(args) => commands::profile::run(&args),
            Command::Doctor(args) => commands::doctor::run(&args),
            Command::Completions(args) => commands::completions::run(&args),
        },
        Err(error) => {
            // Help and version are answers, not errors; printing fails only on a closed stream.
            let _ = error.print();
            if error.use_stderr() { Exit::BadInput } else { Exit::Ok }
        }
    };
    exit.into()
}
