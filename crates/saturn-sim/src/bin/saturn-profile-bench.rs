//! Prints what trials cost and are worth on measured step times: `saturn-profile-bench TABLE.csv
//! [SEEDS] [FIRST_SEED]`. Each way to spend and each workload is a JSON object.

use saturn_sim::{Shape, Spending, Table, Way, spend};

/// Moves of the solver's search in each solve.
const MAX_MOVES: u64 = 20_000;

const SHAPES: [(&str, Shape); 4] = [
    ("12 tasks, 4 groups, 32 GPUs, 5%", Shape { nodes: 4, groups: 4, tasks: 12, share: 0.05 }),
    ("12 tasks, 3 groups, 8 GPUs, 10%", Shape { nodes: 1, groups: 3, tasks: 12, share: 0.10 }),
    ("20 tasks, 5 groups, 16 GPUs, 20%", Shape { nodes: 2, groups: 5, tasks: 20, share: 0.20 }),
    ("30 tasks, 6 groups, 32 GPUs, 30%", Shape { nodes: 4, groups: 6, tasks: 30, share: 0.30 }),
];

const WAYS: [(&str, Way); 9] = [
    ("chosen", Way::Chosen),
    ("first trials alone", Way::UpTo(0.0)),
    ("chosen, up to 2%", Way::UpTo(0.02)),
    ("chosen, up to 5%", Way::UpTo(0.05)),
    ("every strategy", Way::Every),
    ("powers of two", Way::PowersOfTwo),
    ("random, 1 count in 2", Way::Random(4)),
    ("random, 1 count in 4", Way::Random(2)),
    ("widest alone", Way::Random(1)),
];

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: saturn-profile-bench TABLE.csv [SEEDS] [FIRST_SEED]";
    let file = arguments.next().ok_or(usage)?;
    let csv = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let table = Table::from_csv(&csv).map_err(|error| format!("{file}: {error}"))?;
    let mut number = |default: u64| match arguments.next() {
        Some(text) => text.parse().map_err(|_| format!("{text}: not a number; {usage}")),
        None => Ok(default),
    };
    let (seeds, first) = (number(20)?, number(0)?);
    for (way_name, way) in WAYS {
        for (shape_name, shape) in &SHAPES {
            for seed in first..first + seeds {
                if let Some(Spending { trials, number, went_on, makespan }) =
                    spend(&table, shape, way, MAX_MOVES, seed)
                {
                    println!(
                        "{{\"way\": \"{way_name}\", \"workload\": \"{shape_name}\", \"seed\": {seed}, \
                         \"trials\": {trials:.5}, \"number\": {number:.5}, \
                         \"went_on\": {went_on:.5}, \"makespan\": {makespan:.5}}}"
                    );
                }
            }
        }
    }
    Ok(())
}
