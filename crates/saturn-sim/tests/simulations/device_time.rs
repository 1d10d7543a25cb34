//! Where the time of devices goes, over simulated runs: all uses together are devices times
//! makespan, whatever goes wrong.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_engine::{Purpose, Record};
use saturn_sim::{Calm, MAX_S, Manners, Planner, Size, Workload, scenario};
use saturn_view::{DeviceUse, Report};

/// Device-seconds in which devices were in the pool, and starts of the driver on them, by the journal
/// alone: from the first task to `until_s`.
fn there_s(journal: &[(Record, f64)], until_s: f64) -> f64 {
    let mut nodes: BTreeMap<usize, u32> = BTreeMap::new();
    let (mut all_s, mut before_s, mut has_begun) = (0.0, 0.0, false);
    for (record, at_s) in journal.iter().filter(|(_, at_s)| *at_s <= until_s) {
        let num = f64::from(nodes.values().sum::<u32>());
        if has_begun {
            all_s += num * (at_s - before_s);
        }
        before_s = *at_s;
        match record {
            Record::TaskAdded { .. } => has_begun = true,
            Record::NodeJoined { node, spec, .. } => {
                nodes.insert(node.0, spec.gpus);
            }
            Record::NodeLeft { node, .. } => {
                nodes.remove(&node.0);
            }
            Record::DriverStarted { startup_s } if has_begun => all_s += num * startup_s,
            _ => {}
        }
    }
    all_s
}

/// When the last training attempt ended.
fn trained_until_s(journal: &[(Record, f64)]) -> f64 {
    let mut training = std::collections::BTreeSet::new();
    let mut last_s = f64::NAN;
    for (record, at_s) in journal {
        match record {
            Record::Launched { attempt, purpose: Purpose::Train, .. }
            | Record::WentOn { attempt, .. } => {
                training.insert(*attempt);
            }
            Record::Ended { attempt, .. } if training.contains(attempt) => last_s = *at_s,
            _ => {}
        }
    }
    last_s
}

fn check(journal: &[(Record, f64)], what: &str) -> BTreeMap<DeviceUse, f64> {
    let Some((state, history)) = saturn_view::replay(journal.iter().cloned()) else {
        return BTreeMap::new();
    };
    let found = Report::build(&state, &history, "run", Vec::new()).device_time;
    let uses: BTreeMap<DeviceUse, f64> =
        found.uses.iter().map(|one| (one.what, one.seconds)).collect();
    let sum_s: f64 = uses.values().sum();
    assert!((sum_s - found.all_s).abs() < 1e-3, "{what}: {sum_s} of {}", found.all_s);
    assert!(uses.values().all(|seconds| *seconds > 0.0), "{what}: {uses:?}");
    // Time after the last attempt counts only while tasks are left.
    let is_over = state.tasks_left().next().is_none();
    let until_s = if is_over { trained_until_s(journal) } else { state.now_s };
    if until_s.is_finite() {
        let there_s = there_s(journal, until_s);
        assert!((sum_s - there_s).abs() <= 1e-6 * there_s + 1e-3, "{what}: {sum_s}, {there_s}");
    }
    for late in &found.late {
        let waited_s: f64 = late.until_then.iter().map(|one| one.seconds).sum();
        assert!(waited_s > 5.0, "{what}: {late:?}");
        assert!(late.until_then.iter().all(|one| one.what != DeviceUse::Trains), "{late:?}");
    }
    uses
}

#[test]
fn all_uses_of_devices_are_devices_times_makespan_whatever_goes_wrong() {
    let mut seen: BTreeMap<DeviceUse, f64> = BTreeMap::new();
    for seed in 0..300 {
        let mut simulation = scenario(seed);
        simulation.run(MAX_S);
        // The simulator's drivers start in no time.
        let is_task = |(record, _): &(Record, f64)| matches!(record, Record::TaskAdded { .. });
        if let Some(first) = simulation.journal.iter().position(is_task) {
            let at_s = simulation.journal[first].1;
            let started = Record::DriverStarted { startup_s: 7.0 };
            simulation.journal.insert(first + 1, (started, at_s));
        }
        for (one, seconds) in check(&simulation.journal, &format!("seed {seed}")) {
            *seen.entry(one).or_default() += seconds;
        }
    }
    let never: Vec<_> = DeviceUse::ALL.iter().filter(|one| !seen.contains_key(one)).collect();
    assert!(never.is_empty(), "{never:?} never came");
}

#[test]
fn a_device_that_trains_from_the_start_is_not_late_and_nothing_is_missed_with_one_task_a_device() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let size = Size { nodes: 1, gpus: 1, tasks: 1, steps: (400, 600), techniques: 1 };
    let mut workload = Workload::draw(&mut rng, &size);
    workload.measure();
    let manners = Manners::exact(5);
    let calm = Calm { planner: Planner::of_moves(200), manners, save_every_s: 1e9, seed: 1 };
    let mut simulation = calm.simulation(workload);
    simulation.run(1e7);
    let uses = check(&simulation.journal, "one task");
    let missed: Vec<_> = uses.keys().filter(|one| one.is_missed()).collect();
    assert!(missed.is_empty(), "{uses:?}");
    assert!(uses[&DeviceUse::Trains] > 0.0);
}
