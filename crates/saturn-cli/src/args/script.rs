//! Arguments of the verbs that train tasks described outside of Python: a script, or a sweep, in a
//! run of its own or in the pool.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use super::{ClusterArgs, more};

/// What both verbs say of the run.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct StartArgs {
    /// Name of the run, unique in its directory; made from the time by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) run_name: Option<String>,
    /// How many GPUs to use, or CPU slots on a machine without a GPU; all by default.
    #[arg(long, value_name = "N", conflicts_with = "cluster")]
    pub(crate) devices: Option<u32>,
    /// How much each device may hold, such as 600MB or 2GiB; `none` for no limit.
    #[arg(long, value_name = "SIZE")]
    pub(crate) device_memory: Option<String>,
    /// Wait for devices that other runs hold.
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Where the run directory goes; `saturn_runs` by default.
    #[arg(long, value_name = "DIR")]
    pub(crate) runs_dir: Option<PathBuf>,
    /// Print the result as JSON at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn run`.
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = more(&[
    ("saturn run train.py --lr 0.01", "what comes after SCRIPT goes to the script"),
    ("saturn run --gpus 1,2 --steps 500 train.py", "on one device or two"),
    ("saturn run --resume --load train.py", "the script goes on by --load PATH"),
    ("saturn run --cluster auto train.py", "on a Ray cluster"),
], "0 done, 1 the script failed, 2 bad input, 5 the machine failed, 130 stopped"))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) start: StartArgs,
    /// Steps that the script trains in all; by default, `total_steps` of its reports.
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Numbers of devices that the script can use, such as 1,2,4; by default 1, and any number for
    /// a transformers Trainer.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(crate) gpus: Vec<u32>,
    /// The script's flag for the path of a checkpoint to continue from, such as --load or --load=.
    /// By default `--resume_from_checkpoint`, if the script's text has that name.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) resume: Option<String>,
    /// The script can't continue from a checkpoint, so it is never moved.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) no_resume: bool,
    /// Train the transformers Trainer that the script makes, whatever the script's text looks like.
    #[arg(long, conflicts_with = "no_trainer")]
    pub(crate) trainer: bool,
    /// Let the script train by itself, whatever the script's text looks like.
    #[arg(long)]
    pub(crate) no_trainer: bool,
    /// The script, and its arguments.
    #[arg(
        value_name = "SCRIPT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) script: Vec<String>,
}

/// `saturn sweep`.
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = more(&[
    ("saturn sweep sweep.toml", "train it; how long that takes: saturn plan sweep.toml"),
    ("saturn sweep sweep.toml --list", "its tasks, or the parameter ranges of its search"),
    ("saturn sweep sweep.toml --devices 2 --json", "with the result as data at the end"),
    ("saturn sweep sweep.toml --cluster auto", "on the nodes of a Ray cluster"),
], "0 all tasks done, 1 a task failed, 2 bad input, 5 the machine failed, 130 stopped"))]
pub(crate) struct SweepArgs {
    /// The sweep (TOML).
    pub(crate) file: PathBuf,
    /// Only list the tasks, or what a search draws from, and train nothing.
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

/// `saturn serve`.
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = more(&[
    ("saturn serve", "in a terminal of its own"),
    ("saturn submit sweep.toml", "add a sweep, in another terminal"),
    ("saturn serve --share /srv/pool", "others of this machine: saturn join /srv/pool"),
    ("saturn serve --shares lena=2,jonas=1", "lena may count on twice as much as jonas"),
    ("saturn serve --quotas jonas=4", "jonas' tasks hold at most four devices at once"),
    ("saturn status pool", "where its tasks stand; all verbs know the pool by this name"),
    ("saturn close pool", "end it once its tasks have ended"),
], "0 closed, and all tasks done; 1 a task failed, 2 bad input, 5 the machine failed, 130 stopped"))]
pub(crate) struct ServeArgs {
    /// How many GPUs to use, or CPU slots on a machine without a GPU; by default as many as the pool
    /// had, and all in a new pool.
    #[arg(long, value_name = "N")]
    pub(crate) devices: Option<u32>,
    /// How much each device may hold, such as 600MB or 2GiB; `none` for no limit.
    #[arg(long, value_name = "SIZE")]
    pub(crate) device_memory: Option<String>,
    /// Wait for devices that other runs hold.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Let other people of this machine join the pool at this directory, which is made.
    #[arg(long, value_name = "DOOR")]
    pub(crate) share: Option<PathBuf>,
    /// How large the shares of these people are, by login name or user id; everybody else's is 1. By default as
    /// before, and all the same in a new pool.
    #[arg(long, value_name = "NAME=SIZE,…", value_parser = shares)]
    pub(crate) shares: Option<BTreeMap<String, f64>>,
    /// How many devices the tasks of these people may hold at once, by login name or user id; everybody
    /// else's may hold all. By default as before, and all in a new pool.
    #[arg(long, value_name = "NAME=N,…", value_parser = quotas)]
    pub(crate) quotas: Option<BTreeMap<String, u32>>,
    /// Print the result as JSON once the pool was closed.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shares as people write them.
fn shares(text: &str) -> Result<BTreeMap<String, f64>, String> {
    by_name(text, "NAME=SIZE, such as lena=2")
}

/// Quotas as people write them.
fn quotas(text: &str) -> Result<BTreeMap<String, u32>, String> {
    by_name(text, "NAME=N, such as jonas=4")
}

/// Numbers by login name; `expected` says how each is written.
fn by_name<T: FromStr>(text: &str, expected: &str) -> Result<BTreeMap<String, T>, String> {
    let mut numbers = BTreeMap::new();
    for part in text.split(',') {
        let expected = || format!("`{part}` is not {expected}");
        let (name, number) = part.split_once('=').ok_or_else(expected)?;
        let number = number.trim().parse().map_err(|_| expected())?;
        if numbers.insert(name.trim().to_owned(), number).is_some() {
            return Err(format!("`{}` is there twice", name.trim()));
        }
    }
    Ok(numbers)
}

/// `saturn submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn submit sweep.toml", "to the pool of saturn serve"),
    ("saturn submit sweep.toml --name try2 --priority 3", "tasks are called try2-…, and end sooner"),
    ("saturn submit sweep.toml --preview", "when the tasks would end, and which tasks they delay"),
    ("saturn submit sweep.toml --due 18:00", "refused if the tasks would be late"),
    ("saturn submit sweep.toml --wait", "show how the tasks get on, until they have ended"),
    ("saturn submit sweep.toml --to my-run", "to a run in progress"),
], "0 submitted, 1 with --wait: a task failed, 2 refused, or no process drives the run, 5 the machine failed, 130 with --wait: Ctrl-C"))]
pub(crate) struct SubmitArgs {
    /// The sweep (TOML).
    pub(crate) file: PathBuf,
    /// The run that gets the tasks, instead of the pool: its directory, or its name in
    /// `saturn_runs`.
    #[arg(long, value_name = "RUN")]
    pub(crate) to: Option<PathBuf>,
    /// Prefix of the tasks' names; by default the name of the file.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Priority of the tasks, in place of their own: those with a higher number end sooner.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// Deadline of every task, in place of the tasks' own: 18:00, 2026-11-28 09:00, +3h or +1h30m.
    /// The tasks are refused if the plan shows that a task would miss this deadline.
    #[arg(long, value_name = "TIME")]
    pub(crate) due: Option<String>,
    /// Submit nothing: print when the tasks would end, and which tasks they would delay.
    #[arg(long)]
    pub(crate) preview: bool,
    /// Wait until the tasks have ended, and then print their ranking. Ctrl-C ends the waiting, and
    /// the tasks go on.
    #[arg(long, conflicts_with = "preview")]
    pub(crate) wait: bool,
    /// Print the names of the tasks as JSON; with --due or --preview also the ends; with --wait
    /// the result.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn shell`.
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = more(&[
    ("saturn shell --gpus 1 --for 2h", "a shell that has a GPU of the pool for two hours"),
    ("saturn shell --for 8h -- jupyter lab", "another program in place of the shell"),
], "0 the place was given back, or its time is over; 2 refused, or no process drives the pool, 5 the place was lost, 130 Ctrl-C while waiting; else that of the shell or command"))]
pub(crate) struct ShellArgs {
    /// How many GPUs (CPU slots on a machine without a GPU) to hold.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) gpus: u32,
    /// For how long, such as 2h, 45m or 1h30m. Then the shell is asked to end, and later killed.
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) time: String,
    /// Priority among your tasks, 4 by default: tasks with a higher number end sooner.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// Print the devices and the end as JSON before the shell or command starts.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command to run in place of a shell.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// `saturn join`.
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = more(&[
    ("saturn join /srv/pool", "the pool of a person who ran saturn serve --share /srv/pool"),
    ("saturn submit sweep.toml", "then to this pool; pool is its name for all verbs"),
    ("saturn join --leave", "your tasks there stop at checkpoints"),
], "0 joined, or left; 2 no such pool, 5 the machine failed"))]
pub(crate) struct JoinArgs {
    /// The directory at which the pool is shared.
    #[arg(required_unless_present = "leave")]
    pub(crate) door: Option<PathBuf>,
    /// Leave the pool that you joined last.
    #[arg(long, conflicts_with = "door")]
    pub(crate) leave: bool,
    /// Print the directory of your tasks there as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
