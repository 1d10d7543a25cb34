//! The error bands of expected ends hold four of five ends, over many runs of one user whose
//! measurements are wrong.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::{ForecastErrors, TrialOutcome};
use saturn_engine::{Policy, Record, RunEnd, TaskEnd};
use saturn_sim::{Calm, Manners, Planner, Size, Workload};

/// How many runs a user has on the same devices.
const NUM_RUNS: u64 = 500;
/// The newest runs whose errors the store keeps.
const KEPT_RUNS: usize = 20;
/// The bands of runs before this run don't count: they rest in part on the default, which comes from
/// other machines.
const FIRST_COUNTED: u64 = 5;
/// At how many moments of a run a person looks.
const NUM_LOOKS: u32 = 6;

/// A run of eight tasks whose trials are wrong: each technique by up to a tenth, and each strategy
/// by up to `noise` of its own.
fn run(seed: u64, earlier_errors: ForecastErrors) -> Vec<(Record, f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let noise = rng.random_range(0.0..0.3);
    let size = Size { nodes: 1, gpus: 4, tasks: 8, steps: (400, 6000), techniques: 2 };
    let mut workload = Workload::draw(&mut rng, &size);
    workload.measure();
    let techniques = workload.config.techniques.iter();
    let biases: Vec<(String, f64)> =
        techniques.map(|one| (one.name.clone(), rng.random_range(0.9..1.1))).collect();
    let trials = workload.tasks.iter_mut().flat_map(|task| &mut task.spec.measured);
    for trial in trials {
        let bias = biases.iter().find(|(name, _)| *name == trial.strategy.technique);
        if let Some(TrialOutcome::Measured { step_s, .. }) = &mut trial.outcome {
            *step_s *=
                bias.map_or(1.0, |(_, bias)| *bias) * rng.random_range(1.0 - noise..=1.0 + noise);
        }
    }
    workload.config.policy =
        Policy { interval_s: 300.0, stall_s: 1e9, seed, earlier_errors, ..Policy::default() };
    let manners = Manners::exact(5);
    let planner = Planner::of_moves(200);
    let mut simulation = Calm { planner, manners, save_every_s: 1e9, seed }.simulation(workload);
    assert_eq!(simulation.run(1e7), Some(RunEnd::Complete), "{:?}", simulation.violations);
    simulation.journal
}

#[test]
fn four_of_five_ends_lie_in_the_bands_that_a_user_sees() {
    let mut kept: Vec<ForecastErrors> = Vec::new();
    // Of tasks that train, of tasks that wait, and of whole runs: ends within the band, and all.
    let mut held = [(0_u32, 0_u32); 3];
    for seed in 0..NUM_RUNS {
        let mut before = ForecastErrors::default();
        kept.iter().rev().take(KEPT_RUNS).for_each(|one| before.extend(one));
        let journal = run(seed, before);
        let done = |(record, at_s): &(Record, f64)| match record {
            Record::TaskEnded { task, end: TaskEnd::Done { .. } } => Some((*task, *at_s)),
            _ => None,
        };
        let ended: std::collections::BTreeMap<_, _> = journal.iter().filter_map(done).collect();
        let run_end_s = journal.iter().map(|(_, at_s)| *at_s).fold(0.0, f64::max);
        for look in 0..NUM_LOOKS {
            let now_s = run_end_s * (f64::from(look) + 0.5) / f64::from(NUM_LOOKS);
            let before = journal.iter().filter(|(_, at_s)| *at_s <= now_s).cloned();
            let Some((state, history)) = saturn_view::replay(before) else { continue };
            let status = saturn_view::status(&state, &history, now_s);
            let mut count = |kind: usize, band: Option<(f64, f64)>, end_s: Option<&f64>| {
                let (Some((early_s, late_s)), Some(end_s)) = (band, end_s) else { return };
                if seed >= FIRST_COUNTED {
                    held[kind].0 += u32::from((early_s..=late_s).contains(end_s));
                    held[kind].1 += 1;
                }
            };
            for (id, task) in state.task_ids().zip(&status.tasks) {
                let kind = usize::from(task.attempt.is_none());
                count(kind, task.expected_end_band_s, ended.get(&id));
            }
            let band = status.expected_end_band_s.filter(|_| status.unplanned == 0);
            count(2, band, Some(&run_end_s));
        }
        let (_, history) = saturn_view::replay(journal).unwrap();
        kept.push(history.forecast_errors().thinned(ForecastErrors::MOST_OF_A_RUN));
    }
    let share = |(within, all): (u32, u32)| f64::from(within) / f64::from(all);
    let sum = held.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(held.iter().all(|one| one.1 > 1000), "{held:?}");
    assert!((0.75..=0.85).contains(&share(sum)), "{held:?}");
    // Of runs 87%: an end that is near is known better than its first forecasts were.
    assert!(held.iter().all(|one| (0.75..=0.88).contains(&share(*one))), "{held:?}");
}
