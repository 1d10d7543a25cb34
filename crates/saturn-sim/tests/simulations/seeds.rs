//! A thousand seeds: nothing breaks without a bug, and every planted bug is found.

use std::collections::BTreeMap;

use saturn_sim::{Bug, Fault, Hits, run, run_with};

/// Seeds of this test.
const SEEDS: u64 = 1000;
/// Seeds beyond these that once broke a rule: a lost wake-up, a trial that died after its task was
/// cancelled, a task that started without host memory while its model was inspected again, and a
/// task that was given up because a trial that only this task needed had met a failure of Saturn's.
const BROKEN_ONCE: [u64; 4] = [2387, 5291, 3275, 1478];

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
