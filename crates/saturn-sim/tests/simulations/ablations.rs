//! Saturn without one of its parts does without that part.

use std::collections::BTreeSet;

use saturn_sim::policy::{Case, Held};

use crate::cases::{case as small, outcome};

/// Tasks whose fastest technique and best GPU count differ.
fn case(more: &str) -> Case {
    let text = format!(
        r#"
        {more}
        costs = {{ load_s = 30, save_s = 10 }}
        [[nodes]]
        gpus = 4
        [[tasks]]
        name = "a"
        count = 3
        steps = 4000
        asks_gpus = 2
        step_s = {{ ddp = {{ 1 = 1.0, 2 = 0.6, 4 = 0.5 }}, fsdp = {{ 2 = 0.7, 4 = 0.35 }} }}
        [[tasks]]
        name = "b"
        count = 2
        steps = 9000
        asks_gpus = 1
        step_s = {{ ddp = {{ 1 = 1.0, 2 = 0.55, 4 = 0.3 }} }}
        "#
    );
    small(&text)
}

/// Techniques and GPU counts under which the first three tasks were trained.
fn used(name: &str) -> (BTreeSet<String>, BTreeSet<u32>) {
    let spans = outcome(name, &case("")).spans.into_iter().filter(|span| span.job < 3);
    spans.map(|span| (span.technique, span.gpus)).unzip()
}

#[test]
fn a_fixed_technique_or_gpu_count_is_kept() {
    let (techniques, gpus) = used("saturn");
    assert!(techniques.contains("ddp") && gpus.contains(&1), "{techniques:?} {gpus:?}");
    assert_eq!(used("saturn-fixed-technique").0, BTreeSet::from(["fsdp".to_owned()]));
    assert_eq!(used("saturn-fixed-gpus").1, BTreeSet::from([2]));
}

#[test]
fn without_planned_switches_plans_differ() {
    let of = |name: &str| outcome(name, &case("")).ends_s;
    assert_ne!(of("saturn"), of("saturn-no-switches"));
}

#[test]
fn trials_go_on_as_training_only_in_the_whole() {
    let num_going_on = |name: &str| {
        let spans = outcome(name, &case("trials = true")).spans;
        let goes_on = |span: &&saturn_sim::policy::Span| {
            span.held == Held::Training && span.ready_s == Some(span.launched_s)
        };
        spans.iter().filter(goes_on).count()
    };
    assert!(num_going_on("saturn") > 0);
    assert_eq!(num_going_on("saturn-no-going-on"), 0);
}

#[test]
fn without_estimates_every_strategy_is_measured_and_with_known_step_times_nothing_differs() {
    let measured = |name: &str| {
        let spans = outcome(name, &case("trials = true")).spans.into_iter();
        let trials = spans.filter(|span| span.held == Held::Trial);
        // Tasks 0 to 2 are of one model, and 3 and 4 of another.
        trials.map(|span| (span.job < 3, span.technique, span.gpus)).collect::<BTreeSet<_>>()
    };
    let every = measured("saturn-no-prior");
    assert_eq!(every.len(), 8, "{every:?}");
    assert!(measured("saturn").len() < 8);
    let of = |name: &str| outcome(name, &case("")).ends_s;
    assert_eq!(of("saturn"), of("saturn-no-prior"));
}
