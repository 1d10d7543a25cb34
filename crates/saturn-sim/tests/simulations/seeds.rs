//! A thousand seeds: nothing breaks without a bug, and every planted bug is found.

use std::collections::BTreeMap;

use saturn_sim::{Bug, Fault, Hits, run, run_with};

/// Seeds of this test.
const SEEDS: u64 = 1000;
/// Seeds beyond these that once broke a rule.
const BROKEN_ONCE: [u64; 7] = [
    // A lost wake-up.
    2387, // A trial died after its task was cancelled.
    5291, // A task started without host memory while its model was inspected again.
    3275,
    // A trial that only one task needed met a failure of Saturn's, and the task was given up.
    1478, // The simulator resumed a run for ever on a machine that was too small for it.
    5669,
    // A device that a person had taken back was taken back once more, from another accuser.
    4060, // A chosen trial that no task was left to run was opened by a resume, and waited for.
    24129,
];

#[test]
fn whatever_goes_wrong_every_task_comes_to_its_end() {
    let mut hits = Hits::new();
    for seed in (0..SEEDS).chain(BROKEN_ONCE) {
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
