//! How many devices a person may hold: what is asked of the solver, and what starts, whatever it answers.

use std::collections::BTreeMap;

use saturn_engine::{Event, NewTask, RankReport, Sharing, TaskEnd, TaskStatus, forecast};

use crate::sharing::{Pool, sharing, task};

fn with_quotas(quotas: &[(&str, u32)]) -> Sharing {
    let quotas: BTreeMap<String, u32> =
        quotas.iter().map(|(name, quota)| ((*name).to_owned(), *quota)).collect();
    Sharing { quotas, ..sharing(&[]) }
}

/// Which tasks train, by name.
fn training(pool: &Pool) -> Vec<&str> {
    let state = pool.engine.state();
    let ids = state.attempts.values().map(|attempt| attempt.task);
    let mut names: Vec<&str> = ids.map(|id| state.name(id)).collect();
    names.sort_unstable();
    names
}

fn finish(pool: &mut Pool, name: &str) {
    let attempt = pool.attempt_of(name);
    pool.train(name);
    let report = RankReport::Finished { step: 1000, loss: None };
    pool.tell(Event::Reported { attempt, rank: 0, report });
    pool.tell(Event::RankExited { attempt, rank: 0, code: 0, last_words: String::new() });
}

fn three_and_one() -> Vec<NewTask> {
    vec![task(1, "a1"), task(1, "a2"), task(1, "a3"), task(2, "b1")]
}

/// The solver of these tests knows no quotas: it has all four tasks start at once.
#[test]
fn no_more_devices_are_held_than_the_quota_allows_whatever_the_plan_says() {
    let mut pool = Pool::new(with_quotas(&[("p1", 2)]));
    pool.submit(three_and_one());
    assert_eq!(training(&pool), ["a1", "a2", "b1"]);
    assert_eq!(pool.engine.state().held_by(Some(1)), 2);
    let state = pool.engine.state();
    let times = forecast(state, 0.0).tasks;
    let of = |name: &str| times[&state.task_named(name).expect("it is there")];
    let first_s = of("a1").1.min(of("a2").1);
    assert!((of("a3").0 - first_s).abs() < 1e-6, "it starts when another ends: {times:?}");
    finish(pool.at(900.0), "a1");
    assert_eq!(training(&pool), ["a2", "a3", "b1"]);
}

#[test]
fn the_solver_is_told_whose_each_task_is_and_what_its_owner_may_hold() {
    let mut pool = Pool::new(with_quotas(&[("p1", 2), ("host", 3)]));
    pool.submit(three_and_one().into_iter().chain([task(0, "own")]).collect());
    let (alone, together) = pool.asked();
    let problem = &together.last().expect("a plan was asked for").problem;
    let caps: Vec<u32> = problem.owners.iter().map(|owner| owner.max_gpus).collect();
    assert_eq!(caps, [2, 3]);
    let max_gpus = |name: &str| {
        let task = problem.tasks.iter().find(|task| task.name == name).expect("it is there");
        problem.owner(task).map(|owner| owner.max_gpus)
    };
    assert_eq!(["a1", "a3", "b1", "own"].map(max_gpus), [Some(2), Some(2), None, Some(3)]);
    assert!(alone.iter().all(|order| order.problem.owners.is_empty()), "the share is within it");
}

#[test]
fn nobody_is_guaranteed_more_devices_than_the_quota() {
    let mut pool = Pool::new(with_quotas(&[("p1", 1)]));
    pool.submit(three_and_one());
    let gpus: Vec<u32> =
        pool.asked().0.iter().map(|order| order.problem.cluster.nodes[0].gpus).collect();
    assert_eq!(gpus, [1, 2], "half of four devices each, but for the quota");
}

#[test]
fn a_quota_that_is_lowered_stops_nothing_and_a_quota_that_is_raised_starts_what_waits() {
    let mut pool = Pool::new(with_quotas(&[("p1", 3)]));
    pool.submit(three_and_one());
    assert_eq!(training(&pool), ["a1", "a2", "a3", "b1"]);
    pool.at(10.0).tell(Event::Shared { sharing: with_quotas(&[("p1", 2)]) });
    finish(pool.at(20.0), "b1");
    pool.submit(vec![task(1, "a4")]);
    assert_eq!(training(&pool), ["a1", "a2", "a3"], "three go on, and a fourth waits");
    finish(pool.at(30.0), "a1");
    assert_eq!(training(&pool), ["a2", "a3"], "two are as many as may be");
    pool.at(40.0).tell(Event::Shared { sharing: with_quotas(&[]) });
    assert_eq!(training(&pool), ["a2", "a3", "a4"]);
}

#[test]
fn a_task_that_needs_more_devices_than_the_quota_says_so() {
    let wide = |name: &str| {
        let mut task = task(1, name);
        task.spec.gpu_range = Some(vec![2]);
        task
    };
    let mut pool = Pool::new(with_quotas(&[("p1", 1)]));
    pool.submit(vec![wide("wide"), task(2, "b1")]);
    let state = pool.engine.state();
    let status = &state.task(state.task_named("wide").expect("it is there")).status;
    let TaskStatus::Ended(TaskEnd::Failed { error, .. }) = status else { panic!("{status:?}") };
    assert!(error.contains("its person's tasks may hold 1 device at once"), "{error}");
}
