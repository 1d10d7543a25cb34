//! Which trials are run if each must be worth its time.

#![expect(clippy::expect_used, reason = "a test may panic")]

mod full_disk;
mod going_on;
mod run;

use saturn_core::{Finding, Verdict};
use saturn_engine::{
    Command, Event, FailureKind, Policy, Purpose, RankReport, Record, TaskEnd, TrialBudget,
};

use self::run::{Run, hopeful, measured, out_of_memory};

#[test]
fn with_a_full_budget_everything_is_measured() {
    let run = Run::new(TrialBudget::Full, &[("t", "k", 1000)]);
    assert_eq!(run.engine.state().num_open_trials() + run.trials.len(), 12);
}

#[test]
fn a_group_is_measured_once_before_its_tasks_train() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000), ("u", "k", 1000)]);
    assert_eq!(run.running(), ["ddp x1"]);
    run.tried(measured(0.5));
    assert!(run.running().is_empty());
    let (_, order) = run.order.as_ref().expect("the group can be planned");
    assert_eq!(order.problem.tasks.len(), 2);
    assert_eq!(order.problem.tasks[0].strategies.len(), 1, "nothing else is known yet");
}

/// A trial that outlives its task still tells its group how the strategy did.
#[test]
fn a_trial_that_dies_after_its_task_was_cancelled_is_followed_by_the_next() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000), ("u", "k", 1000)]);
    assert_eq!(run.running(), ["ddp x1"]);
    run.handle(Event::Command { command: Command::Cancel { task: "t".to_owned(), by: None } });
    let (attempt, ..) = run.trials.remove(0);
    run.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words: String::new() });
    let has_failed =
        |record: &Record| matches!(record, Record::TaskEnded { end: TaskEnd::Failed { .. }, .. });
    assert!(!run.records.iter().any(has_failed), "{:?}", run.records);
    assert_eq!(run.trials.len(), 1, "another strategy is tried for `u`");
}

#[test]
fn what_runs_out_of_memory_rules_out_what_needs_no_less() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.tried(out_of_memory());
    assert_eq!(run.running(), ["fsdp x1"], "the technique that is tried next");
    run.tried(out_of_memory());
    assert_eq!(run.running(), ["offload x1"]);
    run.tried(out_of_memory());
    // Of techniques that never fitted, only the most devices are worth a trial.
    assert_eq!(run.running(), ["ddp x4"]);
    run.tried(out_of_memory());
    assert_eq!(run.running(), ["fsdp x4"]);
    run.tried(out_of_memory());
    assert_eq!(run.running(), ["offload x4"]);
    run.tried(out_of_memory());
    let ended = |record: &Record| matches!(record, Record::TaskEnded { .. });
    assert!(run.records.iter().any(ended), "everything has been tried");
}

#[test]
fn what_the_model_is_too_large_for_says_nothing_of_wider_gangs() {
    let mut run = Run::begun(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    let too_large = |technique: &str, gpus| Verdict {
        technique: technique.to_owned(),
        gpus,
        gpu_type: "a".to_owned(),
        finding: Finding::OutOfMemory { detail: "needs 9 GB".to_owned() },
    };
    let everywhere = |technique: &'static str| (1..=4).map(move |gpus| too_large(technique, gpus));
    let verdicts: Vec<Verdict> =
        everywhere("ddp").chain(everywhere("offload")).chain([too_large("fsdp", 1)]).collect();
    run.inspected(&verdicts);
    assert_eq!(run.running(), ["fsdp x2"]);
}

#[test]
fn a_trial_is_chosen_where_a_hopeful_plan_saves_more_than_it_costs() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 10_000)]);
    run.tried(measured(0.5));
    let (_, order) = run.order.as_ref().expect("a plan was asked for");
    let wide = hopeful(order, "ddp", 4);
    run.solved(0, Some(wide));
    assert_eq!(run.running(), ["ddp x4"]);
    let chosen = |record: &Record| match record {
        Record::TrialsChosen { saves_s, cost_s, .. } => Some((*saves_s, *cost_s)),
        _ => None,
    };
    let (saves_s, cost_s) = run.records.iter().find_map(chosen).expect("a trial was chosen");
    assert!(saves_s > 1000.0 && saves_s < 5000.0, "{saves_s}");
    assert!(cost_s > 4.0 && cost_s < 40.0, "{cost_s}");
}

#[test]
fn a_plan_says_which_of_its_times_are_estimates() {
    let is_estimate = |technique: &str, gpus| {
        let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 10_000)]);
        run.tried(measured(0.8));
        let wide = hopeful(&run.order.as_ref().expect("a plan was asked for").1, "ddp", 4);
        run.solved(0, Some(wide));
        run.tried(measured(0.2));
        let order = &run.order.as_ref().expect("a plan was asked for").1;
        let known = &order.problem.tasks[0].strategies;
        let chosen = known.iter().position(|one| *one.technique == *technique && one.gpus == gpus);
        run.solved(chosen.expect("plans may use it"), None);
        let plan = run.engine.state().plan.clone().expect("it was adopted");
        plan.places[0].is_estimate
    };
    assert!(!is_estimate("ddp", 4), "it was measured");
    assert!(is_estimate("ddp", 3), "points of its curve on both sides are known");
}

#[test]
fn a_trial_that_costs_more_than_it_can_save_is_not_run() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 3)]);
    run.tried(measured(0.5));
    let wide = hopeful(&run.order.as_ref().expect("a plan was asked for").1, "ddp", 4);
    run.solved(0, Some(wide));
    assert!(run.running().is_empty());
    assert!(!run.records.iter().any(|record| matches!(record, Record::TrialsChosen { .. })));
}

/// What the trial that is chosen for a task saves and costs; `None` if none is chosen. The task has
/// so many steps of 0.8 s. It trains meanwhile, or its first trial has ended and nothing trains.
fn chosen_for(steps: u64, is_training: bool) -> Option<(f64, f64)> {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", steps)]);
    if is_training {
        run.tried_to(5, measured(0.8));
    } else {
        run.tried(measured(0.8));
    }
    assert_eq!(run.engine.state().running().count(), usize::from(is_training));
    let wide = hopeful(&run.order.as_ref().expect("a plan was asked for").1, "ddp", 3);
    run.solved(0, Some(wide));
    run.records.iter().find_map(|record| match record {
        Record::TrialsChosen { saves_s, cost_s, .. } => Some((*saves_s, *cost_s)),
        _ => None,
    })
}

#[test]
fn what_trains_is_not_stopped_for_a_trial_that_saves_a_few_seconds() {
    let (devices, min_gain_s) = (4.0, Policy::default().min_gain_s);
    let shortest = |is_training| (6..200).find(|steps| chosen_for(*steps, is_training).is_some());
    let (idle, training) = (shortest(false), shortest(true));
    assert!(idle < training && idle.is_some(), "{idle:?} steps, {training:?} while it trains");
    let steps = training.expect("a task of 200 steps is worth a trial");
    let (saves_s, cost_s) = chosen_for(steps, true).expect("it was chosen");
    assert!((saves_s - min_gain_s) * devices > cost_s, "{saves_s} s, for {cost_s} s of devices");
}

/// The same where nothing trains, for a hopeful plan by this strategy.
fn chosen_hoping_for(steps: u64, technique: &str, gpus: u32) -> Option<(f64, f64)> {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", steps)]);
    run.tried(measured(0.8));
    let hope = hopeful(&run.order.as_ref().expect("a plan was asked for").1, technique, gpus);
    run.solved(0, Some(hope));
    run.records.iter().find_map(|record| match record {
        Record::TrialsChosen { saves_s, cost_s, .. } => Some((*saves_s, *cost_s)),
        _ => None,
    })
}

/// Another technique on as many devices is better by luck alone; more devices are better in any
/// case.
#[test]
fn a_trial_pays_by_the_saving_that_is_expected_and_not_by_luck_alone() {
    let devices = 4.0;
    let at_least = |technique: &str, gpus| {
        let chosen = (2..2000).find_map(|steps| chosen_hoping_for(steps, technique, gpus));
        let (saves_s, cost_s) = chosen.expect("a task of 2000 steps is worth a trial");
        saves_s * devices / cost_s
    };
    let (by_luck, surely) = (at_least("fsdp", 1), at_least("ddp", 4));
    assert!(by_luck > 2.0, "with luck it saves {by_luck} times its cost");
    assert!(surely < 2.0, "with luck it saves {surely} times its cost");
}

/// `t` has a step left when a trial on all devices is chosen for the sake of `u`.
#[test]
fn a_trial_waits_for_a_task_that_ends_sooner_than_it_could_be_launched_again() {
    let stops = |left: u64| {
        let tasks = [("t", "k", 5 + left), ("u", "k", 10_000)];
        let mut run = Run::new(TrialBudget::Worthwhile, &tasks);
        run.tried_to(5, measured(0.8));
        let wide = hopeful(&run.order.as_ref().expect("a plan was asked for").1, "ddp", 4);
        run.solved(0, Some(wide));
        let is_chosen = |record: &Record| matches!(record, Record::TrialsChosen { .. });
        assert!(run.records.iter().any(is_chosen));
        let is_stop = |record: &Record| matches!(record, Record::Stopping { .. });
        (run.records.iter().any(is_stop), run)
    };
    let (is_stopped, _) = stops(100);
    assert!(is_stopped, "80 s are too long to wait");
    let (is_stopped, mut run) = stops(1);
    assert!(!is_stopped && run.trials.is_empty(), "it is done in a second");
    let state = run.engine.state();
    let (id, _) = state.attempts.iter().next().expect("it trains");
    let (attempt, rank) = (*id, 0);
    let report = RankReport::Finished { step: 6, loss: None };
    run.handle(Event::Reported { attempt, rank, report });
    run.handle(Event::RankExited { attempt, rank, code: 0, last_words: String::new() });
    assert_eq!(run.running(), ["ddp x4"]);
}

#[test]
fn a_budget_in_seconds_is_kept() {
    let tasks = [("t", "k", 10_000)];
    let mut run = Run::new(TrialBudget::Seconds(5.0), &tasks);
    run.tried(measured(0.5));
    let wide = hopeful(&run.order.as_ref().expect("a plan was asked for").1, "ddp", 4);
    run.solved(0, Some(wide));
    assert!(run.running().is_empty(), "four devices for two seconds are beyond it");
}

#[test]
fn a_technique_that_is_new_is_tried_on_few_devices_first() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 10_000)]);
    run.tried(measured(0.5));
    let wide = hopeful(&run.order.as_ref().expect("a plan was asked for").1, "fsdp", 4);
    run.solved(0, Some(wide));
    assert_eq!(run.running(), ["fsdp x1"]);
}

#[test]
fn a_task_whose_strategy_fails_gets_another_measured() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.tried(measured(0.5));
    run.solved(0, None);
    let (attempt, _) = run
        .engine
        .state()
        .attempts
        .iter()
        .find(|(_, attempt)| attempt.purpose == Purpose::Train)
        .expect("it trains");
    let attempt = *attempt;
    let failed = RankReport::Failed {
        kind: FailureKind::OutOfMemory,
        error: "too large".to_owned(),
        traceback: String::new(),
    };
    run.handle(Event::Reported { attempt, rank: 0, report: failed });
    run.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words: String::new() });
    assert_eq!(run.running(), ["fsdp x1"], "ddp on one device is excluded now");
}
