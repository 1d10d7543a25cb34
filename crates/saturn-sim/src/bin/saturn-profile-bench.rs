//! Prints what trials cost and are worth on measured step times, as markdown:
//! `saturn-profile-bench TABLE.csv [SEEDS] [FIRST_SEED]`.

use saturn_engine::TrialBudget;
use saturn_sim::{Shape, Spending, Table, spend};

/// Moves of the solver's search in each solve.
const MAX_MOVES: u64 = 20_000;

const SHAPES: [(&str, Shape); 4] = [
    ("12 tasks, 4 groups, 32 GPUs, 5%", Shape { nodes: 4, groups: 4, tasks: 12, share: 0.05 }),
    ("12 tasks, 3 groups, 8 GPUs, 10%", Shape { nodes: 1, groups: 3, tasks: 12, share: 0.10 }),
    ("20 tasks, 5 groups, 16 GPUs, 20%", Shape { nodes: 2, groups: 5, tasks: 20, share: 0.20 }),
    ("30 tasks, 6 groups, 32 GPUs, 30%", Shape { nodes: 4, groups: 6, tasks: 30, share: 0.30 }),
];

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let file =
        arguments.next().ok_or("usage: saturn-profile-bench TABLE.csv [SEEDS] [FIRST_SEED]")?;
    let csv = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let table = Table::of(&csv).ok_or(format!("{file}: no table of step times"))?;
    let mut number = |or: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(or);
    let (seeds, first) = (number(20), number(0));
    println!(
        "| workload | trials | device-seconds over every strategy's: median, most | trials run | \
         makespan over full knowledge's: median, 90%, worst |"
    );
    println!("| --- | --- | --- | --- | --- |");
    let budgets = [("chosen", TrialBudget::Worthwhile), ("every strategy", TrialBudget::Full)];
    for (name, budget) in budgets {
        let mut all = Vec::new();
        for (shape_name, shape) in &SHAPES {
            let runs: Vec<Spending> = (first..first + seeds)
                .filter_map(|seed| spend(&table, shape, budget, MAX_MOVES, seed))
                .collect();
            line(shape_name, name, &runs);
            all.extend(runs);
        }
        line("all", name, &all);
    }
    Ok(())
}

fn line(shape: &str, name: &str, runs: &[Spending]) {
    let at = |of: fn(&Spending) -> f64, share: usize| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get((values.len().saturating_sub(1)) * share / 100).copied().unwrap_or(0.0)
    };
    println!(
        "| {shape} | {name} | {:.1}%, {:.1}% | {:.0}% | {:.3}, {:.3}, {:.3} |",
        100.0 * at(|one| one.trials, 50),
        100.0 * at(|one| one.trials, 100),
        100.0 * at(|one| one.number, 50),
        at(|one| one.makespan, 50),
        at(|one| one.makespan, 90),
        at(|one| one.makespan, 100),
    );
}
