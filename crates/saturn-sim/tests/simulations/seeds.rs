//! A thousand seeds: nothing breaks without a bug, and every planted bug is found.

use std::collections::BTreeMap;

use saturn_sim::{Bug, Fault, Hits, run, run_with};

/// Seeds of this test.
const SEEDS: u64 = 1000;
/// Seeds beyond these that once broke a rule, and why.
const BROKEN_ONCE: [(u64, &str); 13] = [
    (2387, "a lost wake-up"),
    (5291, "a trial died after its task was cancelled"),
    (3275, "a task started without host memory while its model was inspected again"),
    (
        1478,
        "a trial that only one task needed met a failure of Saturn's, and the task was given up",
    ),
    (5669, "the simulator resumed a run for ever on a machine that was too small for it"),
    (4060, "a device that a person had taken back was taken back once more, from another accuser"),
    (24129, "a resume opened a chosen trial that no task was left to run, and waited for it"),
    (31263, "the judge took a trial on one type of device for a trial on another"),
    (34714, "the watch did not know that a task had trained that told only of its evaluation"),
    (32292, "a task was cancelled while the solver worked, and the plan counted on it"),
    (35172, "the same, on another pool"),
    (2270, "a task without a known length waited for a wider pool, and a stopper waited for it"),
    (1906, "a forecast did not know which tasks already waited for host memory"),
];

#[test]
fn whatever_goes_wrong_every_task_comes_to_its_end() {
    let mut hits = Hits::new();
    let broken_once = BROKEN_ONCE.map(|(seed, _)| seed);
    for seed in (0..SEEDS).chain(broken_once) {
        let verdict = run(seed);
        assert!(verdict.violations.is_empty(), "{}", verdict.story);
        for (fault, times) in verdict.hits {
            *hits.entry(fault).or_default() += times;
        }
    }
    let never: Vec<_> = Fault::ALL.iter().filter(|fault| !hits.contains_key(fault)).collect();
    assert!(never.is_empty(), "{never:?} never occurred");
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let found = (0..SEEDS).find_map(|seed| {
            let rules: BTreeMap<_, _> = run_with(seed, Some(*bug))
                .violations
                .into_iter()
                .map(|one| (one.rule, one.what))
                .collect();
            rules.into_iter().next().map(|(rule, _)| (seed, rule))
        });
        match found {
            Some((seed, rule)) => println!("{bug:?}: seed {seed}, by `{rule}`"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "{missed:?} were not found");
}
