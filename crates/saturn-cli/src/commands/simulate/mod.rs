//! `saturn simulate`: how policies do on a workload, on a virtual clock.

pub(crate) mod read;
mod replay;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_sim::policy::{CURRENT_PRACTICE, Case, Held, Outcome, Policy, PolicyError, simulate};
use saturn_store::io_words;
use saturn_view::simulated::{
    Means, NotDone, Simulated, SimulatedBar, SimulatedPolicy, SimulatedRun, VERSION,
};
use saturn_view::{simulated_html, simulated_text};

use self::sweep::sweep;
use crate::args::SimulateArgs;
use crate::exit::{Exit, fail, print_data};
use crate::interrupt::Interrupt;
use crate::screen::Screen;

pub(crate) fn run(args: &SimulateArgs) -> Exit {
    let Some(workload) = &args.workload else { return replay::run(args) };
    let mut case = match read::case(workload) {
        Ok(case) => case,
        Err((exit, message)) => return fail(exit, escape_terminal(&message)),
    };
    if let Some(moves) = args.moves {
        case.moves = case.moves.with_first(moves);
    }
    let asked = asked(args);
    let interrupt = Interrupt::catch();
    let results = match results(args, &case, &asked, &|| interrupt.came()) {
        Ok(results) => results,
        Err(error) => return failed(workload, &error),
    };
    let simulated = simulated(args, workload, &case, &asked, &results);
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
    match (simulated.is_partial, simulated.is_endless()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Infeasible,
        (false, false) => Exit::Ok,
    }
}

/// The outcomes of a workload, as far as a person let them be simulated.
struct Results {
    /// By policy and seed.
    outcomes: BTreeMap<(&'static str, u64), Outcome>,
    /// The policies and seeds that were given up, with the seconds until then.
    endless: BTreeMap<(&'static str, u64), f64>,
    /// Of each seed; one for all seeds where no seed draws anything that matters.
    yardsticks: Vec<Yardsticks>,
}

/// The times beside which outcomes are shown, seconds.
struct Yardsticks {
    lower_bound_s: f64,
    /// What each owner would take alone on its share.
    alone_s: Vec<f64>,
}

impl Results {
    fn yardsticks(&self, seed: u64) -> Option<&Yardsticks> {
        let of_seed = usize::try_from(seed).ok().and_then(|seed| self.yardsticks.get(seed));
        of_seed.or(self.yardsticks.first())
    }

    /// The mean lower bound of the seeds that have outcomes.
    fn mean_bound_s(&self) -> f64 {
        if let [one] = self.yardsticks.as_slice() {
            return one.lower_bound_s;
        }
        let all = self.outcomes.keys().chain(self.endless.keys());
        let seeds: BTreeSet<u64> = all.map(|(_, seed)| *seed).collect();
        let bounds_s = seeds.iter().filter_map(|seed| self.yardsticks(*seed));
        bounds_s.map(|one| one.lower_bound_s).sum::<f64>() / seeds.len().max(1) as f64
    }
}

fn results(
    args: &SimulateArgs,
    case: &Case,
    asked: &[&'static dyn Policy],
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Results, PolicyError> {
    let seeds: Vec<u64> = (0..if case.is_drawn() { args.seeds } else { 1 }).collect();
    let num = seeds.len();
    let line = |done| format!("simulated nothing yet: {done} of {num} lower bounds are known");
    let yardsticks = sweep(&seeds, line, is_stopped, |seed| {
        let case = case.drawn(0.0, *seed);
        Ok(Yardsticks { lower_bound_s: case.lower_bound_s()?, alone_s: case.alone_s()? })
    });
    let yardsticks = done(yardsticks)?.into_iter().map(|(_, one)| one).collect();
    let jobs = jobs(args, asked);
    let num_jobs = jobs.len();
    let line = |done| format!("simulated {done} of {num_jobs} (Ctrl-C: what there is so far)");
    let found = sweep(&jobs, line, is_stopped, |Job { policy, seed }| {
        match simulate(*policy, &case.drawn(args.error.0, *seed), &|| is_stopped()) {
            Ok(outcome) => Ok(Ok(outcome)),
            // The other policies may be done all the same.
            Err(PolicyError::Endless { after_s, .. }) => Ok(Err(after_s)),
            Err(error) => Err(error),
        }
    });
    let (mut outcomes, mut endless) = (BTreeMap::new(), BTreeMap::new());
    for (index, found) in done(found)? {
        let Job { policy, seed } = &jobs[index];
        let key = (policy.name(), *seed);
        match found {
            Ok(outcome) => {
                outcomes.insert(key, outcome);
            }
            Err(after_s) => {
                endless.insert(key, after_s);
            }
        }
    }
    Ok(Results { outcomes, endless, yardsticks })
}

/// The results of jobs that were done, by the index of the job; or the first error.
fn done<T>(results: Vec<Result<T, PolicyError>>) -> Result<Vec<(usize, T)>, PolicyError> {
    let is_done =
        |result: &Result<T, PolicyError>| !matches!(result, Err(PolicyError::Interrupted));
    let results = results.into_iter().enumerate().filter(|(_, result)| is_done(result));
    results.map(|(index, result)| Ok((index, result?))).collect()
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

/// A policy under a seed.
struct Job {
    policy: &'static dyn Policy,
    seed: u64,
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
    results: &Results,
) -> Simulated {
    let by_seed = &results.outcomes;
    let practice_s = |seed: u64| by_seed.get(&(CURRENT_PRACTICE, seed)).map(Outcome::makespan_s);
    let of = |policy: &&'static dyn Policy| {
        let seeds = (0..args.seeds).filter(|seed| by_seed.contains_key(&(policy.name(), *seed)));
        let runs: Vec<(u64, &Outcome)> =
            seeds.map(|seed| (seed, &by_seed[&(policy.name(), seed)])).collect();
        let endless = (0..args.seeds).filter_map(|seed| {
            let after_s = *results.endless.get(&(policy.name(), seed))?;
            Some(NotDone { seed, after_s })
        });
        let not_done: Vec<NotDone> = endless.collect();
        if runs.is_empty() && not_done.is_empty() {
            return None;
        }
        let bars = runs.first().map(|(_, first)| bars(first)).unwrap_or_default();
        let runs: Vec<SimulatedRun> = runs
            .into_iter()
            .map(|(seed, outcome)| SimulatedRun {
                over_practice: practice_s(seed).map(|other_s| outcome.makespan_s() / other_s),
                cost: args
                    .price
                    .map(|price| price * case.nodes.len() as f64 * outcome.makespan_s() / 3600.0),
                ..result(case, seed, outcome, results.yardsticks(seed))
            })
            .collect();
        Some(SimulatedPolicy {
            name: policy.name().to_owned(),
            definition: policy.definition().to_owned(),
            source: policy.source().to_owned(),
            mean: not_done.is_empty().then(|| Means::of(&runs)),
            runs,
            not_done,
            bars,
        })
    };
    let num_all = asked.len() as u64 * args.seeds;
    let policies: Vec<SimulatedPolicy> = asked.iter().filter_map(of).collect();
    let num_done: usize =
        policies.iter().map(|policy| policy.runs.len() + policy.not_done.len()).sum();
    Simulated {
        version: VERSION,
        workload: workload.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        tasks: case.jobs.iter().map(|job| job.name.clone()).collect(),
        nodes: case.nodes.clone(),
        seeds: args.seeds,
        error: args.error.0,
        trials: case.knowledge == saturn_sim::policy::Knowledge::Nothing,
        has_arrivals: case.has_arrivals(),
        lower_bound_s: results.mean_bound_s(),
        is_partial: (num_done as u64) < num_all,
        policies,
    }
}

fn result(
    case: &Case,
    seed: u64,
    outcome: &Outcome,
    yardsticks: Option<&Yardsticks>,
) -> SimulatedRun {
    let fairness = yardsticks.and_then(|one| outcome.fairness(case, &one.alone_s));
    SimulatedRun {
        seed,
        makespan_s: outcome.makespan_s(),
        lower_bound_s: yardsticks.map_or(0.0, |one| one.lower_bound_s),
        mean_completion_s: outcome.mean_completion_s(),
        p90_completion_s: outcome.p90_completion_s(),
        gpu_hours: outcome.device_s(None) / 3600.0,
        trial_gpu_hours: outcome.device_s(Some(Held::Trial)) / 3600.0,
        in_use: outcome.in_use(case.num_gpus()),
        moves: outcome.num_moves(),
        worst_owner: fairness.map(|(worst, _)| worst),
        mean_owner: fairness.map(|(_, mean)| mean),
        over_practice: None,
        cost: None,
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
