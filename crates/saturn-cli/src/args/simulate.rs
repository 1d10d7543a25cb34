//! Arguments of `saturn simulate`.

use std::path::PathBuf;

use saturn_sim::policy::{MORE_POLICIES, POLICIES, Policy, policy};

use super::more;
use super::whatif::price;

/// More seeds than this are a typing error.
const MOST_SEEDS: u64 = 10_000;

/// `saturn simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn simulate examples/simulate.toml", "every policy on a workload"),
    ("saturn simulate workload.toml --policy saturn,fifo-backfill", "two of them"),
    ("saturn simulate workload.toml --error 20% --seeds 20", "plan with wrong step times"),
    ("saturn simulate workload.toml --moves 100000", "take less time, find worse plans"),
    ("saturn simulate workload.toml --out page.html", "with a Gantt chart for each policy"),
    ("saturn simulate --replay saturn_runs/my-run", "a recorded run, simulated"),
], "0 simulated, 2 bad input, 3 a task fits no node or is never done, 5 the machine failed, 130 stopped: the results \
so far are printed"))]
pub(crate) struct SimulateArgs {
    /// A workload (TOML): nodes, tasks, and the time of a step of each task, or a profile with
    /// these times.
    #[arg(required_unless_present = "replay")]
    pub(crate) workload: Option<PathBuf>,
    /// Replay recorded runs that have ended, from their journals: how far is a simulated makespan
    /// from the real one, and why? A run is a directory, or a file of `benches/replay/runs`.
    #[arg(
        long,
        value_name = "RUN",
        num_args = 1..,
        conflicts_with_all = ["workload", "policy", "seeds", "error", "moves", "price", "out"]
    )]
    pub(crate) replay: Vec<PathBuf>,
    /// Policies, separated by commas; by default all: saturn, saturn-static, saturn-interval,
    /// current-practice-fastest, current-practice-habit, max, min, random, optimus,
    /// optimus-dynamic, fifo, fifo-backfill, shortest-first. By name only: themis-like,
    /// slurm-like, time-slices, saturn-shared, saturn-shared-by-weight, rubick-like,
    /// saturn-no-switches, saturn-fixed-technique, saturn-fixed-gpus, saturn-no-going-on,
    /// saturn-no-prior.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = name)]
    pub(crate) policy: Vec<Named>,
    /// Simulate each policy this many times, with other random numbers each time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seeds)]
    pub(crate) seeds: u64,
    /// Let policies plan with step times that are wrong by up to this share. Each technique has a
    /// bias, and each strategy of a task a further error, both drawn again for each seed.
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    pub(crate) error: Share,
    /// The price of an hour of one node, in any currency: the table says what each policy costs.
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true, value_parser = price)]
    pub(crate) price: Option<f64>,
    /// Moves of the solver's search in a policy's first solve: with fewer moves it takes less time
    /// and finds worse plans. By default 10,000,000 up to 12 tasks, and fewer with more tasks.
    #[arg(long, value_name = "N", value_parser = moves)]
    pub(crate) moves: Option<u64>,
    /// Print the results of each policy under each seed as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a page that opens without a network, with a Gantt chart for each policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// A policy by its name.
#[derive(Clone, Copy)]
pub(crate) struct Named(pub(crate) &'static dyn Policy);

impl std::fmt::Debug for Named {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(self.0.name())
    }
}

/// A part of a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

fn name(text: &str) -> Result<Named, String> {
    policy(text.trim()).map(Named).ok_or_else(|| {
        let all = POLICIES.into_iter().chain(MORE_POLICIES);
        let names: Vec<&str> = all.map(Policy::name).collect();
        format!("expected {}", names.join(", "))
    })
}

fn seeds(text: &str) -> Result<u64, String> {
    let number = text.trim().parse::<u64>().ok().filter(|number| (1..=MOST_SEEDS).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST_SEEDS}"))
}

fn moves(text: &str) -> Result<u64, String> {
    let number = text.trim().parse::<u64>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected a whole number from 1".to_owned())
}

/// Reads `20%`; a bare 20 may be meant as 20 or as 2000%, so it is refused.
fn percent(text: &str) -> Result<Share, String> {
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let number = number.filter(|percent| (0.0..=90.0).contains(percent));
    let share = number.map(|percent| Share(percent / 100.0));
    share.ok_or_else(|| "expected a percentage from 0% to 90%, such as 20%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_percentage() {
        assert_eq!(percent("20%"), Ok(Share(0.2)));
        assert_eq!(percent("0%"), Ok(Share(0.0)));
        for wrong in ["20", "0.2", "-1%", "91%", "x%", "%", "NaN%"] {
            assert!(percent(wrong).unwrap_err().contains("20%"), "{wrong}");
        }
    }

    #[test]
    fn help_names_every_policy() {
        use clap::Args as _;
        let command = SimulateArgs::augment_args(clap::Command::new("simulate"));
        let option = command.get_arguments().find(|one| one.get_id() == "policy").unwrap();
        let help = option.get_help().unwrap().to_string();
        let names = |all: &[&dyn Policy]| {
            all.iter().map(|one| one.name()).collect::<Vec<&str>>().join(", ")
        };
        let (usual, more) = (names(&POLICIES), names(&MORE_POLICIES));
        assert!(help.ends_with(&format!("all: {usual}. By name only: {more}")), "{help}");
    }
}
