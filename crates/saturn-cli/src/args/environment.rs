//! Arguments of `saturn doctor` and `saturn completions`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::Shell;

use super::more;

/// `saturn doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn doctor", "of this machine and the Python beside this program"),
    ("saturn doctor --python ~/env/bin/python", "of another environment"),
    ("saturn doctor --runs-dir /data/runs --json", "of another place for runs, as data"),
], "0 all that is needed is there and works, 5 something is missing or does not work"))]
pub(crate) struct DoctorArgs {
    /// The Python that runs scripts; by default the Python beside this program, else the Python of
    /// the active environment, else `python3`.
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// Where runs go.
    #[arg(long, value_name = "DIR", default_value = crate::find::RUNS_DIR)]
    pub(crate) runs_dir: PathBuf,
    /// Print what was found as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `saturn completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn completions bash > ~/.local/share/bash-completion/completions/saturn", ""),
    ("saturn completions zsh > ~/.zfunc/_saturn", "a directory in zsh's fpath"),
    ("saturn completions fish > ~/.config/fish/completions/saturn.fish", ""),
], "0 printed, 2 no such shell"))]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_parser = PossibleValuesParser::new(["bash", "fish", "zsh"]).try_map(|name| name.parse::<Shell>()))]
    pub(crate) shell: Shell,
}
