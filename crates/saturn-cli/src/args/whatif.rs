//! Arguments of `saturn whatif`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use saturn_estimate::{Device, Precision};

use super::{more, one_of, whole};

/// The numbers of nodes of a file, and of further nodes of a run, if nothing else is asked for.
pub(crate) const USUAL_NODES: RangeInclusive<usize> = 1..=16;
pub(crate) const USUAL_FURTHER: RangeInclusive<usize> = 0..=4;
/// More nodes than this are a typing error.
const MOST_NODES: usize = 1024;
/// More sizes than this are a typing error.
const MOST_SIZES: usize = 256;
const MOST_GPUS: u32 = 1024;

/// `saturn whatif`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn whatif examples/simulate.toml", "on 1 to 16 nodes"),
    ("saturn whatif workload.toml --price 32.77 --deadline 48h", "the cheapest in time"),
    ("saturn whatif workload.toml --nodes 1,2,4,8 --out page.html", "also drawn"),
    ("saturn whatif workload.toml --spot --reclaimed-every 6h", "on spot nodes"),
    ("saturn whatif examples/problem.json --json", "as data"),
    ("saturn whatif workload.toml --type a100-80gb,h100", "types side by side"),
    ("saturn whatif my-run --add 1..4", "a run, with further nodes"),
    ("saturn whatif my-run --add 2 --without a,b", "and without 2 tasks"),
], "0 answered, 2 bad input, 3 a task fits no node, no size meets the deadline (with --type: none is \
sure to), or no task of a run can be planned yet, 5 the machine failed, 130 stopped: the sizes that were done are printed"))]
pub(crate) struct WhatifArgs {
    /// A workload (TOML) as for `saturn simulate`, a planning problem (JSON; `-` reads it from
    /// standard input) or a sweep (TOML) as for `saturn plan`; or a run: its directory, its name in
    /// `saturn_runs`, `pool`, or a recording (JSONL).
    #[arg(value_name = "FILE|RUN")]
    pub(crate) file: PathBuf,
    /// Numbers of nodes: from..to, a number, or several separated by commas. By default 1..16,
    /// with --type 1,2,4,8. For a run, the number counts all nodes, also the nodes that it has.
    #[arg(long, value_name = "NODES", value_parser = counts)]
    pub(crate) nodes: Option<Counts>,
    /// Numbers of further nodes that a run gets, written like --nodes. By default 1..4. They are
    /// like the nodes that the run has most of.
    #[arg(long, value_name = "NODES", conflicts_with = "nodes", value_parser = further)]
    pub(crate) add: Option<Counts>,
    /// Tasks of a run that count as cancelled, separated by commas. Tasks that come after them count
    /// as cancelled too.
    #[arg(long, value_name = "TASKS", value_delimiter = ',')]
    pub(crate) without: Vec<String>,
    /// Ask about a run as it stood so long after its beginning, such as 90m.
    #[arg(long, value_name = "TIME", value_parser = time_s)]
    pub(crate) at: Option<f64>,
    /// GPUs of each node (of a run: of each further node). By default as many as the largest node of
    /// the file has, or the usual node of the run.
    #[arg(long, value_name = "N", value_parser = gpus)]
    pub(crate) gpus: Option<u32>,
    /// Types of GPU, as `saturn estimate` knows them, separated by commas. The answer for each type
    /// has bounds, from how much step times can change. Only for files.
    #[arg(long = "type", value_name = "TYPES", value_delimiter = ',', value_parser = device)]
    pub(crate) types: Vec<Device>,
    /// With --type: the type of GPU on which the step times were measured, if the file does not say.
    #[arg(long, value_name = "TYPE", value_parser = device)]
    pub(crate) measured_on: Option<Device>,
    /// With --type: the precision of all tasks, which narrows the bounds.
    #[arg(long, value_parser = one_of::<Precision>(Precision::ALL.map(|(_, name)| name)))]
    pub(crate) precision: Option<Precision>,
    /// The price of an hour of one node, in any currency. With several types one for each, such as
    /// a100-80gb=32.77,h100-80gb=98.
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true, value_parser = prices)]
    pub(crate) price: Option<Price>,
    /// By when all tasks should be done, such as 48h, 90m or 1.5d. Of a run it counts from now.
    #[arg(long, value_name = "TIME", value_parser = time_s)]
    pub(crate) deadline: Option<f64>,
    /// Nodes may be taken away at any time: a task then loses a launch and its training since its
    /// last checkpoint. Only for workloads.
    #[arg(long)]
    pub(crate) spot: bool,
    /// With --spot: the mean time until a node is taken away.
    #[arg(long, value_name = "TIME", default_value = "24h", requires = "spot", value_parser = time_s)]
    pub(crate) reclaimed_every: f64,
    /// Seed of the search: equal seeds give equal answers.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub(crate) seed: u64,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a page with charts that opens without a network.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// The price of an hour of one node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Price {
    /// Of every node.
    OfAll(f64),
    /// By the name of the type of GPU.
    ByType(Vec<(String, f64)>),
}

impl Price {
    /// The price of a node of this type.
    pub(crate) fn of(&self, gpu_type: &str) -> Option<f64> {
        match self {
            Self::OfAll(price) => Some(*price),
            Self::ByType(prices) => prices.iter().find(|one| one.0 == gpu_type).map(|one| one.1),
        }
    }
}

fn device(name: &str) -> Result<Device, String> {
    Device::beginning(name.trim()).map_err(|error| error.to_string())
}

fn prices(text: &str) -> Result<Price, String> {
    if !text.contains('=') {
        return price(text).map(Price::OfAll);
    }
    let one = |part: &str| {
        let (name, text) = part.split_once('=').ok_or("expected TYPE=PRICE for each type")?;
        Ok::<_, String>((device(name)?.name, price(text)?))
    };
    text.split(',').map(one).collect::<Result<_, _>>().map(Price::ByType)
}

/// Numbers of nodes, ascending, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts(pub(crate) Vec<usize>);

fn counts(text: &str) -> Result<Counts, String> {
    numbers(text, 1)
}

fn further(text: &str) -> Result<Counts, String> {
    numbers(text, 0)
}

fn numbers(text: &str, least: usize) -> Result<Counts, String> {
    let wrong = || {
        format!(
            "expected 1..16, 4 or 1,2,4,8: at most {MOST_SIZES} numbers of nodes from {least} to \
             {MOST_NODES}"
        )
    };
    let number = |text: &str| {
        let number = text.trim().parse::<usize>().ok();
        number.filter(|number| (least..=MOST_NODES).contains(number)).ok_or_else(wrong)
    };
    let mut all: Vec<usize> = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once("..").unwrap_or((part, part));
        let (from, to) = (number(from)?, number(to)?);
        if from > to {
            return Err(wrong());
        }
        all.extend(from..=to);
    }
    all.sort_unstable();
    all.dedup();
    if all.len() > MOST_SIZES { Err(wrong()) } else { Ok(Counts(all)) }
}

fn gpus(text: &str) -> Result<u32, String> {
    let number = text.trim().parse::<u32>().ok().filter(|number| (1..=MOST_GPUS).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST_GPUS}"))
}

pub(super) fn price(text: &str) -> Result<f64, String> {
    let price = text.trim().parse::<f64>().ok().filter(|price| price.is_finite() && *price > 0.0);
    price.ok_or_else(|| "expected a positive number, such as 32.77".to_owned())
}

/// Reads a time with its unit as seconds: a bare 48 may be meant as hours or as seconds.
fn time_s(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let units = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0), ('w', 604_800.0)];
    let time_s = units.into_iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?.trim().parse::<f64>().ok()?;
        Some(number * seconds).filter(|time_s| *time_s > 0.0 && *time_s < 1e9)
    });
    time_s.ok_or_else(|| "expected a time with its unit, such as 48h, 90m or 1.5d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_are_ranges_and_lists() {
        assert_eq!(counts("1..4"), Ok(Counts(vec![1, 2, 3, 4])));
        assert_eq!(counts("8, 2,2..3"), Ok(Counts(vec![2, 3, 8])));
        assert_eq!(counts("1..256").map(|all| all.0.len()), Ok(256));
        for wrong in ["", "0", "4..1", "1..", "..4", "1025", "1..257", "1,,2", "-1", "x", "1..=4"] {
            assert!(counts(wrong).unwrap_err().contains("1,2,4,8"), "{wrong}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [("48h", 172_800.0), ("90 m", 5400.0), ("1.5d", 129_600.0)] {
            assert_eq!(time_s(text), Ok(seconds));
        }
        for wrong in ["", "h", "48", "-1h", "0h", "NaNh", "infd", "1e9w", "3é"] {
            assert!(time_s(wrong).unwrap_err().contains("48h"), "{wrong}");
        }
    }
}
