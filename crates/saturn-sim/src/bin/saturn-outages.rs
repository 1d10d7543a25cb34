//! Runs a cluster in which a node fails every hour: `saturn-outages [NODES] [TASKS] [SEEDS]`. Prints markdown.

use saturn_sim::{Scale, outages};

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let num_nodes = numbers.next().unwrap_or(128);
    let num_tasks = numbers.next().unwrap_or(1000);
    let seeds = numbers.next().unwrap_or(1);
    println!(
        "| seed | without faults | nodes that failed | capacity gone | work lost | at least then | with faults | above the least |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for seed in 1..=seeds {
        let Some(found) = outages(Scale { num_nodes, num_tasks }, seed as u64) else {
            println!("| {seed} | it did not end | | | | | | |");
            std::process::exit(1);
        };
        let hours = |seconds: f64| seconds / 3600.0;
        println!(
            "| {seed} | {:.2} h | {} | {:.0} device hours | {:.0} device hours | {:.2} h | {:.2} h | {:+.2}% |",
            hours(found.calm_s),
            found.num_failures,
            hours(found.gone_device_s),
            hours(found.lost_device_s),
            hours(found.least_s),
            hours(found.troubled_s),
            (found.troubled_s / found.least_s - 1.0) * 100.0,
        );
    }
}
