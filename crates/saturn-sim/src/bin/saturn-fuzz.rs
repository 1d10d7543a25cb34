//! Runs scenarios by their seeds: `saturn-fuzz --seeds A..B`, or `saturn-fuzz --replay SEED` for
//! the whole history of one seed.
//!
//! `saturn-fuzz --until-broken 7,3,9` runs these seeds in this order, names each before it runs, and
//! ends with the first that is broken. `scripts/mutants.py` asks so.
//!
//! `saturn-fuzz --digest A..B` prints a digest of each history. If a change must not alter the
//! engine's decisions, the outputs before and after it must be equal.

use std::process::ExitCode;

use saturn_sim::{Hits, MAX_S, scenario, story};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--seeds", seeds] => match parse(seeds) {
            Some((from, to)) => fuzz(from, to),
            None => usage(),
        },
        ["--until-broken", seeds] => match seeds.split(',').map(str::parse).collect() {
            Ok(seeds) => until_broken(seeds),
            Err(_) => usage(),
        },
        ["--digest", seeds] => match parse(seeds) {
            Some((from, to)) => digests(from, to),
            None => usage(),
        },
        ["--replay", seed] => match seed.parse() {
            Ok(seed) => replay(seed),
            Err(_) => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: saturn-fuzz --seeds FROM..TO | --until-broken SEED,... | --digest FROM..TO | --replay SEED"
    );
    ExitCode::from(2)
}

/// `A..B`, or `N` for the first N.
fn parse(seeds: &str) -> Option<(u64, u64)> {
    match seeds.split_once("..") {
        Some((from, to)) => Some((from.parse().ok()?, to.parse().ok()?)),
        None => Some((0, seeds.parse().ok()?)),
    }
}

fn fuzz(from: u64, to: u64) -> ExitCode {
    let mut hits = Hits::new();
    let (mut simulated_s, mut num_events, mut num_broken) = (0.0, 0, 0);
    for seed in from..to {
        let verdict = saturn_sim::run(seed);
        simulated_s += verdict.simulated_s;
        num_events += verdict.num_events;
        for (fault, times) in verdict.hits {
            *hits.entry(fault).or_default() += times;
        }
        if !verdict.violations.is_empty() {
            num_broken += 1;
            println!("{}", verdict.story);
        }
    }
    println!("{} seeds, {num_broken} of them broken", to - from);
    println!("{:.1} days simulated, {num_events} events", simulated_s / 86_400.0);
    println!("{} kinds of fault hit:", hits.len());
    for (fault, times) in hits {
        println!("  {times:>8}  {fault:?}");
    }
    if num_broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn until_broken(seeds: Vec<u64>) -> ExitCode {
    for seed in seeds {
        println!("seed {seed}");
        let verdict = saturn_sim::run(seed);
        if let Some(first) = verdict.violations.first() {
            println!("broken: {}: {}", first.rule, first.what);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn digests(from: u64, to: u64) -> ExitCode {
    for seed in from..to {
        println!("{seed} {:016x}", saturn_sim::digest(seed));
    }
    ExitCode::SUCCESS
}

fn replay(seed: u64) -> ExitCode {
    let mut simulation = scenario(seed);
    let end = simulation.run(MAX_S);
    println!("{}", story::whole(&simulation));
    println!("{end:?} {:?}", simulation.violations);
    if end.is_none() {
        println!("{:#?}", simulation.engine);
    }
    if simulation.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
