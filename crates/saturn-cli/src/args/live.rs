//! Arguments of the verbs that look at a run or steer it. RUN is a directory, or a name in
//! `saturn_runs`.

use std::path::PathBuf;

use super::{more, whole};

/// The exit codes in a command's help.
pub(super) const COMMAND_CODES: &str =
    "0 done, 2 refused, or no process drives the run, 5 the machine failed";
const QUESTION_CODES: &str = "0 told, 2 no such run or task, 5 the machine failed";

/// `saturn runs`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn runs", "those in saturn_runs, and the pool"),
    ("saturn runs /data/runs", "those of another directory"),
    ("saturn runs --json", "as data"),
], "0 listed, 2 no such directory, 5 the machine failed"))]
pub(crate) struct RunsArgs {
    /// Where runs are.
    #[arg(default_value = crate::find::RUNS_DIR)]
    pub(crate) dir: PathBuf,
    /// Print the list as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn status`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn status", "of the newest run"),
    ("saturn status my-run --watch", "until it ends"),
    ("saturn status my-run --json", "as data"),
], QUESTION_CODES))]
pub(crate) struct StatusArgs {
    /// Run directory, a run's name in `saturn_runs`, or `pool`; by default the newest run in
    /// `saturn_runs`.
    pub(crate) run: Option<PathBuf>,
    /// Repeat the table until no process drives the run any more.
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Print the status as JSON; with `--watch` on a line each time.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn web`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn web", "the pool and the runs in saturn_runs: open the address that it prints"),
    ("saturn web my-run --port 8000", "one run, on another port"),
    ("saturn web /data/runs --json", "the runs of a directory; the address and token as data"),
    ("saturn web --webhook @hook-url", "tell the address in this file what happens"),
], "0 ended by Ctrl-C, 2 no such run or directory, the port is taken, or a webhook is no address, 5 the machine failed"))]
pub(crate) struct WebArgs {
    /// Run directory, a run's name in `saturn_runs`, `pool`, or a directory of runs; by default the
    /// pool and all runs in `saturn_runs`.
    pub(crate) run: Option<PathBuf>,
    /// The port on 127.0.0.1; 0 is any free port.
    #[arg(long, value_name = "N", default_value_t = 7340, allow_negative_numbers = true, value_parser = whole::<u16>)]
    pub(crate) port: u16,
    /// Tell this address by HTTP what happens to the runs; `@FILE` reads the address from a file. May be
    /// given again.
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Vec<String>,
    /// The happenings that webhooks are told of, joined by commas; by default all.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["done", "failed", "late", "moved"])]
    pub(crate) webhook_for: Vec<String>,
    /// The file with the secret that signs each webhook.
    #[arg(long, value_name = "FILE")]
    pub(crate) webhook_secret: Option<PathBuf>,
    /// Print the address and the token as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn explain my-run", "the run as a whole"),
    ("saturn explain my-run wide-lr3", "why this task waits, trains or ended"),
    ("saturn explain my-run wide-lr3 --json", "with codes that scripts may rely on"),
], QUESTION_CODES))]
pub(crate) struct ExplainArgs {
    /// Run directory, or a run's name in `saturn_runs`; the newest there by default.
    pub(crate) run: Option<PathBuf>,
    /// Name of the task; by default the run as a whole is explained.
    pub(crate) task: Option<String>,
    /// Print the explanation as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn logs my-run wide-lr3", "of the newest attempt"),
    ("saturn logs my-run wide-lr3 -f", "go on, through every move"),
    ("saturn logs my-run wide-lr3 --rank 0 --attempt 4", "of an earlier one"),
], QUESTION_CODES))]
pub(crate) struct LogsArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Name of the task.
    pub(crate) task: String,
    /// Follow the output until the task has ended, also when the task moves.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only the output of rank N: the process on the N-th device of a launch, from 0.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
    pub(crate) rank: Option<u32>,
    /// Only the output of attempt N: a launch of the task, numbered within the run. By default the
    /// newest that trains, or else the newest trial.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "follow",
        allow_negative_numbers = true,
        value_parser = whole::<u64>
    )]
    pub(crate) attempt: Option<u64>,
    /// Print each line as JSON, with its attempt and rank.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn cancel`, `pause` and `unpause`, whose examples stand at the verbs.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Name of the task.
    pub(crate) task: String,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn priority`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn priority my-run wide-lr3 5", "sooner than others"),
    ("saturn priority my-run wide-lr3 -1", "after all others"),
], COMMAND_CODES))]
pub(crate) struct PriorityArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Name of the task.
    pub(crate) task: String,
    /// A whole number: the higher, the sooner the task ends. Tasks have 0 by default.
    #[arg(value_name = "N", allow_negative_numbers = true, value_parser = whole::<i32>)]
    pub(crate) priority: i32,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn take-back`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn take-back my-run gpubox", "all devices of a node"),
    ("saturn take-back my-run gpubox 0 3", "two of them"),
], COMMAND_CODES))]
pub(crate) struct TakeBackArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Name of the node.
    pub(crate) node: String,
    /// Numbers of its devices; by default all devices that were set aside.
    #[arg(value_parser = whole::<u32>)]
    pub(crate) devices: Vec<u32>,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn close`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn close my-run", "it ends when its tasks have"),
], COMMAND_CODES))]
pub(crate) struct CloseArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn stop my-run", "at checkpoints"),
    ("saturn stop my-run --at-once", "without new checkpoints"),
    ("saturn resume my-run", "go on with it"),
], COMMAND_CODES))]
pub(crate) struct StopArgs {
    /// Run directory, or a run's name in `saturn_runs`.
    pub(crate) run: PathBuf,
    /// Stop at once: steps after the last checkpoints are trained again.
    #[arg(long)]
    pub(crate) at_once: bool,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
