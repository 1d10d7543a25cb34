//! `saturn simulate`: how policies do on a workload, on a virtual clock.

pub(crate) mod read;
mod replay;
mod sweep;

use std::collections::BTreeMap;
use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_runtime::io_words;
use saturn_sim::policy::{CURRENT_PRACTICE, Case, Held, Outcome, Policy, PolicyError};
use saturn_view::simulated::{
    Means, Simulated, SimulatedBar, SimulatedPolicy, SimulatedRun, VERSION,
};
use saturn_view::{simulated_html, simulated_text};

use self::sweep::{Job, sweep};
use crate::args::SimulateArgs;
use crate::exit::{Exit, fail, print_data};
use crate::interrupt::Interrupt;
use crate::screen::Screen;

pub(crate) fn run(args: &SimulateArgs) -> Exit {
    let Some(workload) = &args.workload else { return replay::run(args) };
    let case = match read::case(workload) {
        Ok(case) => case,
        Err((exit, message)) => return fail(exit, escape_terminal(&message)),
    };
    let asked = asked(args);
    let interrupt = Interrupt::catch();
    let lower_bound_s = match case.lower_bound_s() {
        Ok(lower_bound_s) => lower_bound_s,
        Err(error) => return failed(workload, &error),
    };
    let jobs = jobs(args, &asked);
    let outcomes = sweep(&jobs, &case, args.error.0, &|| interrupt.came());
    let mut by_seed: BTreeMap<(&str, u64), Outcome> = BTreeMap::new();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => {
                by_seed.insert((job.policy.name(), job.seed), outcome);
            }
            Err(PolicyError::Interrupted) => {}
            Err(error) => return failed(workload, &error),
        }
    }
    let simulated = simulated(args, workload, &case, &asked, &by_seed, lower_bound_s);
    if let Some(path) = &args.out
        && let Err(error) = std::fs::write(path, simulated_html(&simulated))
    {
        let error = io_words(&error);
        return fail(Exit::Machine, format!("failed to write `{}`: {error}", path.display()));
    }
    if args.json {
        print_data(&simulated.to_json());
    } else {
        let screen = Screen::stdout();
        print_data(&(simulated_text(&simulated, screen.size().0, screen.paint) + "\n"));
    }
    if let Some(path) = &args.out {
        eprintln!("charts: {}", path.display());
    }
    if simulated.is_partial { Exit::Interrupted } else { Exit::Ok }
}

/// The policies that were asked for, each once, in the order of the command line.
fn asked(args: &SimulateArgs) -> Vec<&'static dyn Policy> {
    let mut asked: Vec<&'static dyn Policy> = Vec::new();
    for one in &args.policy {
        if asked.iter().all(|known| known.name() != one.0.name()) {
            asked.push(one.0);
        }
    }
    if asked.is_empty() { saturn_sim::policy::POLICIES.to_vec() } else { asked }
}

/// Every policy under every seed. Current practice comes first, since others are compared with it.
fn jobs(args: &SimulateArgs, asked: &[&'static dyn Policy]) -> Vec<Job> {
    let practice = saturn_sim::policy::policy(CURRENT_PRACTICE);
    let others = asked.iter().copied().filter(|one| one.name() != CURRENT_PRACTICE);
    let policies: Vec<&'static dyn Policy> = practice.into_iter().chain(others).collect();
    let seeds = 0..args.seeds;
    seeds
        .flat_map(|seed| policies.iter().map(move |policy| Job { policy: *policy, seed }))
        .collect()
}

/// Reports why a policy can't be simulated.
fn failed(workload: &Path, error: &PolicyError) -> Exit {
    let exit = match error {
        PolicyError::NoStrategy { .. } | PolicyError::NoPlan { .. } => Exit::Infeasible,
        _ => Exit::Machine,
    };
    fail(exit, escape_terminal(&format!("`{}`: {error}", workload.display())))
}

fn simulated(
    args: &SimulateArgs,
    workload: &Path,
    case: &Case,
    asked: &[&'static dyn Policy],
    by_seed: &BTreeMap<(&str, u64), Outcome>,
    lower_bound_s: f64,
) -> Simulated {
    let practice_s = |seed: u64| by_seed.get(&(CURRENT_PRACTICE, seed)).map(Outcome::makespan_s);
    let of = |policy: &&'static dyn Policy| {
        let seeds = (0..args.seeds).filter(|seed| by_seed.contains_key(&(policy.name(), *seed)));
        let runs: Vec<(u64, &Outcome)> =
            seeds.map(|seed| (seed, &by_seed[&(policy.name(), seed)])).collect();
        let first = runs.first()?.1;
        let bars = bars(first);
        let runs: Vec<SimulatedRun> = runs
            .into_iter()
            .map(|(seed, outcome)| SimulatedRun {
                over_practice: practice_s(seed).map(|other_s| outcome.makespan_s() / other_s),
                ..result(case, seed, outcome)
            })
            .collect();
        Some(SimulatedPolicy {
            name: policy.name().to_owned(),
            definition: policy.definition().to_owned(),
            source: policy.source().to_owned(),
            mean: Means::of(&runs, lower_bound_s),
            runs,
            bars,
        })
    };
    let num_all = asked.len() as u64 * args.seeds;
    let policies: Vec<SimulatedPolicy> = asked.iter().filter_map(of).collect();
    let num_done: usize = policies.iter().map(|policy| policy.runs.len()).sum();
    Simulated {
        version: VERSION,
        workload: workload.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        tasks: case.jobs.iter().map(|job| job.name.clone()).collect(),
        nodes: case.nodes.clone(),
        seeds: args.seeds,
        error: args.error.0,
        trials: case.knowledge == saturn_sim::policy::Knowledge::Nothing,
        lower_bound_s,
        is_partial: (num_done as u64) < num_all,
        policies,
    }
}

fn result(case: &Case, seed: u64, outcome: &Outcome) -> SimulatedRun {
    SimulatedRun {
        seed,
        makespan_s: outcome.makespan_s(),
        mean_completion_s: outcome.mean_completion_s(),
        p90_completion_s: outcome.p90_completion_s(),
        gpu_hours: outcome.device_s(None) / 3600.0,
        trial_gpu_hours: outcome.device_s(Some(Held::Trial)) / 3600.0,
        in_use: outcome.in_use(case.num_gpus()),
        moves: outcome.num_moves(),
        over_practice: None,
    }
}

fn bars(outcome: &Outcome) -> Vec<SimulatedBar> {
    let bars = outcome.spans.iter().map(|span| SimulatedBar {
        task: span.job,
        technique: span.technique.clone(),
        gpus: span.gpus,
        gang: span.gang.clone(),
        is_trial: span.held == Held::Trial,
        start_s: span.launched_s,
        ready_s: span.ready_s,
        end_s: span.ended_s,
    });
    bars.collect()
}
