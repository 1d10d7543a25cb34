//! Arguments of the verbs on the store of profiles.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Subcommand};

use super::more;

const CODES: &str =
    "0 done, 2 bad input: no such key, or a file that is no profile, 5 the machine failed";

/// `saturn profile`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Profiles are in $SATURN_HOME/profiles, by default ~/.local/share/saturn/profiles."
)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) command: ProfileCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the profiles: their tasks, hardware, software and age.
    List(ListArgs),
    /// Show each strategy of a profile, and whether its numbers are from training or from a trial.
    Show(ShowArgs),
    /// Write profiles into a file that can be imported elsewhere.
    Export(ExportArgs),
    /// Import profiles from a file: of another machine, or with numbers of your own.
    Import(ImportArgs),
    /// Forget profiles, so that their strategies are measured again.
    Forget(ForgetArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn profile list", "what is known"),
    ("saturn profile list --json", "as data"),
], CODES))]
pub(crate) struct ListArgs {
    /// Print the list as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn profile show 3f2a", "the beginning of a key is enough"),
    ("saturn profile show 3f2a --json", "as data"),
], CODES))]
pub(crate) struct ShowArgs {
    /// Key of the profile, or the beginning of it.
    pub(crate) key: String,
    /// Print the trials as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn profile export profiles.json", "all that is known"),
    ("saturn profile export 3f2a -", "of one key, to standard output"),
], CODES))]
pub(crate) struct ExportArgs {
    /// Keys of profiles, or beginnings of them; all by default.
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// The file; `-` is standard output.
    pub(crate) file: PathBuf,
    /// Print what was done as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn profile import profiles.json", "of another machine"),
    ("saturn profile import saturn_runs/my-run/profile.json", "what one run found"),
], CODES))]
pub(crate) struct ImportArgs {
    /// The file, in the form of a run's profile.json; `-` is standard input.
    pub(crate) file: PathBuf,
    /// Print what was done as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn profile forget 3f2a", "of one key"),
    ("saturn profile forget --older-than 30d", "what is old"),
    ("saturn profile forget --all", "everything"),
], CODES))]
#[command(group(ArgGroup::new("which").required(true).args(["keys", "all", "older_than"])))]
pub(crate) struct ForgetArgs {
    /// Keys of profiles, or beginnings of them.
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Forget all profiles.
    #[arg(long)]
    pub(crate) all: bool,
    /// Forget trials that were measured longer ago than this, such as 30d or 12h.
    #[arg(long, value_name = "AGE")]
    pub(crate) older_than: Option<Age>,
    /// Print what was done as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A length of time as people write it: `30d`, `12h`, `2w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no age; write one such as 30d, 12h, 90m or 2w");
        let unit = text.chars().next_back().ok_or_else(wrong)?;
        let seconds = match unit {
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            'w' => 7 * 24 * 3600,
            _ => return Err(wrong()),
        };
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
        number.checked_mul(seconds).map(|age_s| Self(Duration::from_secs(age_s))).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_as_people_write_them() {
        let seconds = |text: &str| text.parse::<Age>().map(|age| age.0.as_secs());
        assert_eq!(seconds("30d"), Ok(30 * 24 * 3600));
        assert_eq!(seconds("12h"), Ok(12 * 3600));
        assert_eq!(seconds("90m"), Ok(5400));
        assert_eq!(seconds("2w"), Ok(14 * 24 * 3600));
        for wrong in ["", "d", "30", "-1d", "1.5d", "99999999999999999w", "3é"] {
            assert!(wrong.parse::<Age>().is_err(), "{wrong}");
        }
    }
}
