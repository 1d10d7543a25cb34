//! The command line.

mod cluster;
mod environment;
mod estimate;
mod live;
mod profile;
mod script;
mod simulate;
pub(crate) mod whatif;

use std::fmt::Write as _;
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use saturn_solver::{Backend, Objective};

pub(crate) use self::cluster::ClusterArgs;
pub(crate) use self::environment::{CompletionsArgs, DoctorArgs};
pub(crate) use self::estimate::EstimateArgs;
use self::live::COMMAND_CODES;
pub(crate) use self::live::{
    CloseArgs, ExplainArgs, LogsArgs, PriorityArgs, RunsArgs, StatusArgs, StopArgs, TakeBackArgs,
    TaskArgs, WebArgs,
};
pub(crate) use self::profile::{
    ExportArgs, ForgetArgs, ImportArgs, ListArgs, ProfileArgs, ProfileCommand, ShowArgs,
};
pub(crate) use self::script::{JoinArgs, RunArgs, ServeArgs, ShellArgs, SubmitArgs, SweepArgs};
pub(crate) use self::simulate::SimulateArgs;
pub(crate) use self::whatif::WhatifArgs;
use crate::size::Size;

/// Trains many large models on one pool of GPUs: measures, plans, runs and re-plans them together.
#[derive(Debug, Parser)]
#[command(name = "saturn", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan a workload: choose a technique, devices and a start for each task.
    Plan(PlanArgs),
    /// Estimate whether a model fits some GPUs and how fast it trains, without measuring anything.
    Estimate(Box<EstimateArgs>),
    /// Simulate how long Saturn, a queue and current practice would take for a workload.
    Simulate(SimulateArgs),
    /// Say how long a workload or a run would take on more or fewer nodes, and what that costs.
    Whatif(Box<WhatifArgs>),
    /// Train a script. A script without a transformers Trainer has to report its progress.
    Run(RunArgs),
    /// Train a sweep or a search that a file describes: a script or a function with many
    /// parameters.
    Sweep(SweepArgs),
    /// Drive the pool: a run that stays open, and trains the sweeps that are submitted to it.
    Serve(ServeArgs),
    /// Add the tasks of a sweep to the pool, or to another run in progress.
    Submit(SubmitArgs),
    /// Hold devices of the pool for some time, to work on them by hand.
    Shell(ShellArgs),
    /// Join the pool of another person of this machine, or leave it.
    Join(JoinArgs),
    /// Continue a run that was interrupted or that died.
    Resume(ResumeArgs),
    /// Write a run's report again, also while the run is in progress; or compare several runs.
    Report(ReportArgs),
    /// Write a run's trace for Perfetto: what each device did, and when.
    Trace(TraceArgs),
    /// List runs, how far each is, and how to continue it.
    Runs(RunsArgs),
    /// Show where a run and its tasks stand, and when each is expected to end.
    Status(StatusArgs),
    /// Show runs in a browser, live, and answer programs by HTTP; on this machine alone.
    Web(WebArgs),
    /// Explain why a task waits, trains or ended, and why it has its strategy; or explain the run.
    Explain(ExplainArgs),
    /// Print the output of a task's workers.
    Logs(LogsArgs),
    /// End a task, and all tasks that come after it; or a search of the pool.
    #[command(after_help = more(&[
        ("saturn cancel my-run wide-lr3", ""),
        ("saturn cancel pool my-search", "of a search: also all of its tasks that have not ended"),
    ], COMMAND_CODES))]
    Cancel(TaskArgs),
    /// Stop a task at a checkpoint until it is unpaused; other tasks use its devices.
    #[command(after_help = more(&[
        ("saturn pause my-run wide-lr3", ""),
        ("saturn unpause my-run wide-lr3", "continue it"),
    ], COMMAND_CODES))]
    Pause(TaskArgs),
    /// Continue a paused task from its checkpoint.
    #[command(after_help = more(&[("saturn unpause my-run wide-lr3", "")], COMMAND_CODES))]
    Unpause(TaskArgs),
    /// Make a task end sooner than other tasks, or later.
    Priority(PriorityArgs),
    /// Use devices again that a run set aside after failures.
    TakeBack(TakeBackArgs),
    /// Tell a run that no more tasks will come: it ends when its tasks have ended.
    Close(CloseArgs),
    /// Stop a run at checkpoints; `saturn resume` continues it.
    Stop(StopArgs),
    /// List, share and forget the trial results of earlier runs.
    Profile(ProfileArgs),
    /// Check this machine: what it has, what will not work, and what to do about that.
    Doctor(DoctorArgs),
    /// Print a script that completes verbs and options in a shell.
    Completions(CompletionsArgs),
}

/// `saturn plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn plan examples/problem.json", "a table and a lower bound"),
    ("saturn plan problem.json --objective cost --time-limit 60", "the cheapest plan"),
    ("saturn plan problem.json --json --html plan.html", "as data, and drawn"),
    ("saturn plan sweep.toml --trials", "how long a sweep will take"),
], "0 a plan, 2 bad input, 3 infeasible, 4 no plan was found"))]
pub(crate) struct PlanArgs {
    /// A planning problem (JSON; `-` is standard input), or a sweep (TOML), which is planned by the
    /// trial results of earlier runs.
    pub(crate) file: PathBuf,
    /// Seconds that the solve may take.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10.0,
        allow_negative_numbers = true,
        value_parser = seconds
    )]
    pub(crate) time_limit: f64,
    /// The quantity that the plan minimises.
    #[arg(long, default_value_t, value_parser = one_of::<Objective>(Objective::ALL.iter().map(|one| one.name())))]
    pub(crate) objective: Objective,
    /// The solver that makes the plan.
    #[arg(long, default_value_t, value_parser = one_of::<Backend>(Backend::ALL.iter().map(|one| one.name())))]
    pub(crate) solver: Backend,
    /// Seed of the solver: the same seed and number of iterations give the same plan.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub(crate) seed: u64,
    /// How many times a task with a `switch_cost_s` may change its strategy or place.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub(crate) max_switches: usize,
    /// With `--objective completion`: plans whose tasks all end within this many times the lower
    /// bound of the makespan come first. 1.25 mostly costs less than 1% of the sum.
    #[arg(long, value_name = "TIMES", allow_negative_numbers = true)]
    pub(crate) tail: Option<f64>,
    /// Choose the plan that is best if runtimes turn out otherwise, by the `relative_error` of
    /// strategies: the plan with the least 80% quantile over 200 draws.
    #[arg(long)]
    pub(crate) robust: bool,
    /// For a sweep: first run the trials that are missing.
    #[arg(long)]
    pub(crate) trials: bool,
    /// For a sweep: the number of devices, instead of the number in the file.
    #[arg(long, value_name = "N")]
    pub(crate) devices: Option<u32>,
    /// Print the plan as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the plan on a page that opens without a network.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// `saturn resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn resume my-run", "from its checkpoints"),
    ("saturn resume my-run --device-memory none", "without the limit that it had"),
    ("saturn resume my-run --python .venv/bin/python", "in an environment that was built again"),
    ("saturn resume my-run --json", "with the report as data at the end"),
], "0 all tasks done, 1 a task failed, 2 no such run, 5 the machine failed, 130 stopped again"))]
pub(crate) struct ResumeArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Memory limit of each device from now on, such as 600MB or 2GiB; `none` lifts the limit. By
    /// default the limit stays as it was.
    #[arg(long, value_name = "SIZE")]
    pub(crate) device_memory: Option<Size>,
    /// Continue although a type of device that the run used is missing here. Strategies that were
    /// not measured on the devices here are measured.
    #[arg(long)]
    pub(crate) allow_other_hardware: bool,
    /// Python that runs the tasks from now on, if the run's own has moved or was built again. Saturn
    /// and what the tasks import must be installed in it.
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// Wait for devices that other runs hold.
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Print the report as JSON at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn report`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn report my-run", "write its page, and say where it is"),
    ("saturn report my-run --json", "the same as data"),
    ("saturn report my-run --csv", "its tasks, the best first"),
    ("saturn report my-run other-run", "both side by side on one page, comparison.html"),
], "0 written, 2 no such run, 5 the machine failed or the run's journal is damaged"))]
pub(crate) struct ReportArgs {
    /// Run directory, or a run's name in `saturn_runs`; several are compared.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// For several runs: the file of their page; comparison.html by default.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) out: Option<PathBuf>,
    /// Print the report, or the comparison, as JSON; a comparison then writes no file.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a CSV line for each task, the best first: its value, its parameters, how it trained.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

/// `saturn trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn trace my-run", "write trace.json, and say where it is: open it in ui.perfetto.dev"),
    ("saturn trace my-run --json", "print it"),
], "0 written, 2 no such run, 5 the machine failed"))]
pub(crate) struct TraceArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Print the trace, and write nothing.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The end of a verb's help: commands to try, each with its purpose, and the exit codes.
fn more(examples: &[(&str, &str)], codes: &str) -> String {
    let width = examples.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let mut text = "Examples:\n".to_owned();
    for (command, what) in examples {
        let comment = if what.is_empty() { String::new() } else { format!("  # {what}") };
        let _ = writeln!(text, "  {}", format!("{command:width$}{comment}").trim_end());
    }
    text + "\nExit codes: " + codes
}

/// Reads a whole number; the error says what a whole number is.
fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    text.parse::<T>().map_err(|error| {
        let is_from_0 = "-1".parse::<T>().is_err();
        let wrong = match error.kind() {
            IntErrorKind::PosOverflow => "it is too large",
            IntErrorKind::NegOverflow => "it is too small",
            _ if is_from_0 => "expected a whole number from 0 on",
            _ => "expected a whole number, such as 2 or -1",
        };
        wrong.to_owned()
    })
}

/// Reads a number of seconds; the solver checks its range.
fn seconds(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected a number of seconds, such as 10 or 0.5".to_owned())
}

/// Accepts the names of an option's values, and lists them in help.
fn one_of<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Every verb with its path, such as `profile list`.
    fn verbs(of: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let below = of.get_subcommands().filter(|verb| verb.get_name() != "help");
        below
            .flat_map(|verb| {
                let path = format!("{path} {}", verb.get_name());
                if verb.has_subcommands() { verbs(verb, &path) } else { vec![(path, verb.clone())] }
            })
            .collect()
    }

    #[test]
    fn every_verb_has_examples_that_are_right_and_tells_its_exit_codes() {
        for (path, verb) in verbs(&Args::command(), "saturn") {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Exit codes: 0 "), "{path}: {help}");
            let examples: Vec<&str> =
                help.lines().filter_map(|line| line.strip_prefix("  saturn")).collect();
            let own = examples.iter().filter(|line| format!("saturn{line}").starts_with(&path));
            assert!(own.count() > 0, "{path} has no example of its own");
            for example in examples {
                let command =
                    example.split(['#', '>']).next().unwrap_or_default().split_whitespace();
                let read = Args::try_parse_from(["saturn"].into_iter().chain(command));
                assert!(read.is_ok(), "{path}: {example}: {}", read.unwrap_err());
            }
        }
    }

    #[test]
    fn every_verb_that_shows_data_has_json() {
        for (path, verb) in verbs(&Args::command(), "saturn") {
            let has_json = verb.get_arguments().any(|one| one.get_long() == Some("json"));
            assert_eq!(has_json, path != "saturn completions", "{path}");
        }
    }

    #[test]
    fn what_is_no_number_is_told_what_one_is() {
        assert_eq!(whole::<u32>("7"), Ok(7));
        assert_eq!(whole::<i32>("-7"), Ok(-7));
        for (text, wrong) in [("x", "from 0 on"), ("-1", "from 0 on"), ("1e9", "from 0 on")] {
            assert!(whole::<u32>(text).unwrap_err().contains(wrong), "{text}");
        }
        assert!(whole::<i32>("high").unwrap_err().contains("such as 2 or -1"));
        assert_eq!(whole::<u32>("4294967296"), Err("it is too large".to_owned()));
        assert_eq!(whole::<i32>("-4294967296"), Err("it is too small".to_owned()));
        assert!(seconds("soon").unwrap_err().contains("seconds"));
    }
}
