//! Measures how long a long run's journal takes to resume, and how much memory that needs.
//!
//! usage: `resume_bench write RUN_DIR NUM_TASKS NUM_DEVICES` writes the journal of a simulated pool that is
//! full, of `saturn-engine-bench`'s second table, up to its end. `resume_bench read RUN_DIR` reads
//! it as a resume does before it looks for devices, and prints a row of a table in markdown.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;

use nix::time::{ClockId, clock_gettime};
use saturn_engine::Record;
use saturn_runtime::measured;
use saturn_sim::{Simulation, WEEK_S, week};

const USAGE: &str = "expected `write RUN_DIR NUM_TASKS NUM_DEVICES` or `read RUN_DIR`";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["write", run_dir, num_tasks, num_devices] => {
            match (num_tasks.parse(), num_devices.parse()) {
                (Ok(num_tasks), Ok(num_devices)) => {
                    let decisions = decisions(num_tasks, num_devices);
                    let done = measured::write_journal(Path::new(run_dir), decisions);
                    done.map_err(|error| error.to_string())
                }
                _ => Err(USAGE.to_owned()),
            }
        }
        ["read", run_dir] => read(Path::new(run_dir)),
        _ => Err(USAGE.to_owned()),
    };
    done.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The decisions of a simulated run, each as its records and their time.
fn decisions(num_tasks: usize, num_devices: usize) -> impl Iterator<Item = (Vec<Record>, f64)> {
    let mut simulation = week(num_tasks, num_devices, 1);
    simulation.keep_journal();
    let mut waiting = VecDeque::new();
    // The run has begun, with its pool.
    take_records(&mut simulation, &mut waiting);
    std::iter::from_fn(move || {
        while waiting.is_empty() {
            let is_over = simulation.state().ended.is_some()
                || !simulation.violations.is_empty()
                || simulation.world.now_s() > 20.0 * WEEK_S;
            if is_over {
                return None;
            }
            simulation.step();
            take_records(&mut simulation, &mut waiting);
        }
        waiting.pop_front()
    })
}

/// Moves the records that were stored to those that wait, one entry for each time.
fn take_records(simulation: &mut Simulation, waiting: &mut VecDeque<(Vec<Record>, f64)>) {
    for (record, at_s) in simulation.journal.drain(..) {
        match waiting.back_mut() {
            Some((records, last_s)) if last_s.total_cmp(&at_s).is_eq() => records.push(record),
            _ => waiting.push_back((vec![record], at_s)),
        }
    }
}

fn read(run_dir: &Path) -> Result<(), String> {
    let began_s = clock();
    let (engine, history, num_records) =
        measured::reopen(run_dir).map_err(|error| error.to_string())?;
    let took_s = clock() - began_s;
    let disk_mb =
        std::fs::metadata(run_dir.join("journal.db")).map_or(0, |file| file.len()) / 1_000_000;
    println!(
        "| {} | {} | {} | {num_records} | {disk_mb} MB | {took_s:.2} s | {:.0} MB |",
        engine.state().tasks.len(),
        engine.state().nodes.iter().map(|node| node.devices.len()).sum::<usize>(),
        history.attempts.len(),
        peak_mb()
    );
    Ok(())
}

/// Seconds of the processor that this process has used.
fn clock() -> f64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
}

/// The most memory that this process has held, MB.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1e3
}
