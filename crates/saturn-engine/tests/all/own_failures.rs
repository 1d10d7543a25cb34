//! Errors of a task's own functions while its group is measured: they end no other task.

use saturn_core::{Knobs, TrialOutcome};
use saturn_engine::{
    AttemptId, Command, Event, FailureKind, Level, Mode, Policy, Purpose, RankReport, RunConfig,
    RunEnd, TaskId, TrialBudget,
};

use crate::inspected::{BOTH, Run, config, outcome, task, technique};
use crate::specs::measured;

/// Techniques of which two can run on one device, and neither is plain training.
const THREE: &[(&str, Level)] =
    &[("fsdp", Level::Managed), ("offload", Level::Managed), ("tensor", Level::Managed)];

/// A run whose trials are chosen, so that `ddp` on one device is tried first.
fn chosen() -> RunConfig {
    let policy = Policy { trial_budget: TrialBudget::Worthwhile, ..Policy::default() };
    RunConfig { policy, ..config(Mode::Orchestrate, BOTH) }
}

/// The strategy and the task of the only trial that runs.
fn trial(run: &Run) -> (AttemptId, String, TaskId) {
    let id = run.only(Purpose::Trial);
    let attempt = &run.state().attempts[&id];
    let key = attempt.strategy.key();
    (id, format!("{}x{}", key.technique, key.gpus), attempt.task)
}

fn measure(run: &mut Run, id: AttemptId) {
    let outcome = measured(0.1);
    run.say(id, RankReport::Trial { knobs: Knobs::new(), outcome, step: None });
    run.gone(id, 0);
}

fn ended(run: &Run) -> Vec<u32> {
    let ids = run.state().task_ids().filter(|task| run.state().has_ended(*task));
    ids.map(|task| u32::try_from(task.0).unwrap_or(u32::MAX)).collect()
}

fn tasks(names: &[&str]) -> Vec<saturn_engine::NewTask> {
    names.iter().map(|name| task(name, "one")).collect()
}

#[test]
fn a_group_is_inspected_with_the_next_task_and_the_same_error_is_told_in_short() {
    let mut run = Run::new(chosen(), tasks(&["a", "b", "c"]));
    for number in 0..2 {
        let id = run.only(Purpose::Inspection);
        assert_eq!(run.state().attempts[&id].task, TaskId(number));
        run.fail(id, FailureKind::Task);
    }
    let errors = run.errors();
    assert_eq!(errors[0], ("no <data>".to_owned(), "Traceback …".to_owned()));
    assert_eq!(errors[1], ("like `a`: no <data>".to_owned(), String::new()));
    run.find(run.only(Purpose::Inspection));
    let (id, strategy, of) = trial(&run);
    assert_eq!((strategy.as_str(), of), ("ddpx1", TaskId(2)));
    measure(&mut run, id);
    assert_eq!(ended(&run), [0, 1]);
}

#[test]
fn what_raises_in_plain_training_ends_its_task_alone() {
    let mut run = Run::new(chosen(), tasks(&["a", "b"]));
    run.find(run.only(Purpose::Inspection));
    run.fail(trial(&run).0, FailureKind::Task);
    assert_eq!(ended(&run), [0]);
    assert_eq!(run.errors()[0].0, "no <data>");
    let (id, strategy, of) = trial(&run);
    assert_eq!((strategy.as_str(), of), ("ddpx1", TaskId(1)), "as if `a` had never come");
    measure(&mut run, id);
    assert!(matches!(outcome(run.state(), "ddp", 1), Some(TrialOutcome::Measured { .. })));
    assert_eq!(ended(&run), [0]);
}

#[test]
fn bad_data_ends_its_task_alone_under_every_strategy() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), tasks(&["a", "b"]));
    run.find(run.only(Purpose::Inspection));
    let (id, strategy, _) = trial(&run);
    assert_eq!(strategy, "ddpx2", "everything is measured, and wide trials go first");
    run.fail(id, FailureKind::Certain);
    assert_eq!(ended(&run), [0]);
    assert!(run.live(Purpose::Trial).iter().all(|id| run.state().attempts[id].task == TaskId(1)));
}

#[test]
fn a_strategy_under_which_functions_raise_that_work_elsewhere_has_failed_for_all() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), tasks(&["a", "b", "c", "d"]));
    run.find(run.only(Purpose::Inspection));
    let (wide, strategy, _) = trial(&run);
    assert_eq!(strategy, "ddpx2");
    run.fail(wide, FailureKind::Task);
    assert!(ended(&run).is_empty() && outcome(run.state(), "ddp", 2).is_none());
    // Trials under which nothing has raised go first.
    let (plain, strategy, of) = trial(&run);
    assert_eq!((strategy.as_str(), of), ("ddpx1", TaskId(0)));
    measure(&mut run, plain);
    assert!(matches!(
        outcome(run.state(), "ddp", 2),
        Some(TrialOutcome::Failed { error, .. }) if error == "no <data>"
    ));
    assert!(run.live(Purpose::Trial).is_empty() && run.state().num_open_trials() == 0);
    assert!(ended(&run).is_empty());
}

#[test]
fn a_trial_that_runs_meanwhile_decides_about_its_strategy() {
    let mut tasks = tasks(&["a", "b"]);
    for task in &mut tasks {
        task.spec.gpu_range = Some(vec![1]);
    }
    let mut run = Run::new(config(Mode::Orchestrate, THREE), tasks);
    run.find(run.only(Purpose::Inspection));
    let trials = run.live(Purpose::Trial);
    let technique = |run: &Run, id: &AttemptId| run.state().attempts[id].strategy.technique.clone();
    let of = |run: &Run, name: &str| {
        run.live(Purpose::Trial).into_iter().find(|id| technique(run, id) == name)
    };
    assert_eq!(trials.len(), 2, "one on each device");
    let (first, second) = (technique(&run, &trials[0]), technique(&run, &trials[1]));
    run.fail(trials[0], FailureKind::Task);
    let again = of(&run, &first).expect("it is repeated with `b`, on the free device");
    assert_eq!(run.state().attempts[&again].task, TaskId(1));
    let other = of(&run, &second).expect("it runs");
    measure(&mut run, other);
    assert!(outcome(run.state(), &first, 1).is_none(), "the trial with `b` decides");
    measure(&mut run, again);
    assert!(matches!(outcome(run.state(), &first, 1), Some(TrialOutcome::Measured { .. })));
}

#[test]
fn a_strategy_is_tried_with_another_task_once_the_first_is_known_to_be_bad() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), tasks(&["a", "b"]));
    run.find(run.only(Purpose::Inspection));
    run.fail(trial(&run).0, FailureKind::Task);
    run.fail(trial(&run).0, FailureKind::Task);
    assert_eq!(ended(&run), [0]);
    for expected in ["ddpx1", "ddpx2"] {
        let (id, strategy, of) = trial(&run);
        assert_eq!((strategy.as_str(), of), (expected, TaskId(1)));
        measure(&mut run, id);
    }
    assert!(matches!(outcome(run.state(), "ddp", 2), Some(TrialOutcome::Measured { .. })));
}

#[test]
fn of_functions_that_have_worked_an_error_is_the_strategys() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), tasks(&["a"]));
    run.find(run.only(Purpose::Inspection));
    let wide = trial(&run).0;
    measure(&mut run, wide);
    run.fail(trial(&run).0, FailureKind::Task);
    assert!(ended(&run).is_empty());
    assert!(matches!(outcome(run.state(), "ddp", 1), Some(TrialOutcome::Failed { .. })));
}

#[test]
fn tasks_that_only_a_wide_strategy_may_run_fail_each_for_itself() {
    let mut tasks = tasks(&["a", "b", "c"]);
    for task in &mut tasks {
        task.spec.gpu_range = Some(vec![2]);
    }
    let mut run = Run::new(chosen(), tasks);
    run.find(run.only(Purpose::Inspection));
    run.fail(trial(&run).0, FailureKind::Task);
    let (id, strategy, of) = trial(&run);
    assert_eq!((strategy.as_str(), of), ("ddpx2", TaskId(1)));
    measure(&mut run, id);
    assert_eq!(ended(&run), [0], "no strategy is left to it");
    assert!(run.errors()[0].0.contains("ddp×2: no <data>"), "{:?}", run.errors());
}

#[test]
fn a_trial_that_no_task_is_left_to_run_is_closed() {
    let mut tasks = tasks(&["a", "b"]);
    tasks[0].spec.gpu_range = Some(vec![1, 2]);
    let techniques = [("ddp", Level::Managed)];
    let mut run = Run::new(config(Mode::Search, &techniques), tasks);
    run.find(run.only(Purpose::Inspection));
    let (wide, strategy, _) = trial(&run);
    assert_eq!(strategy, "ddpx2");
    run.fail(wide, FailureKind::Task);
    let (plain, ..) = trial(&run);
    // While `a` is tried, the other task goes: nobody is left for the wide trial but `a`, which
    // has failed under it.
    run.tell(Event::Command { command: Command::Cancel { task: "b".to_owned(), by: None } });
    measure(&mut run, plain);
    assert_eq!(run.state().num_open_trials(), 0);
    assert_eq!(run.state().ended, Some(RunEnd::Complete), "the search is over");
}

#[test]
fn a_task_that_comes_later_is_measured_although_the_first_of_its_group_failed() {
    let mut run =
        Run::open(RunConfig { techniques: vec![technique("ddp", Level::Managed)], ..chosen() });
    run.tell(Event::Command { command: Command::Submit { tasks: tasks(&["a"]) } });
    run.find(run.only(Purpose::Inspection));
    run.fail(trial(&run).0, FailureKind::Task);
    assert_eq!(ended(&run), [0]);
    run.tell(Event::Command { command: Command::Submit { tasks: tasks(&["b"]) } });
    let (id, ..) = trial(&run);
    measure(&mut run, id);
    assert_eq!(ended(&run), [0]);
}

#[test]
fn another_driver_knows_who_was_to_blame() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), tasks(&["a", "b"]));
    run.find(run.only(Purpose::Inspection));
    run.fail(trial(&run).0, FailureKind::Task);
    run.resume(None);
    let group = |run: &Run| {
        let trials = run.state().groups[0].trials.values();
        trials.map(|trial| trial.own_failures).sum::<u32>()
    };
    assert_eq!(group(&run), 1);
    let inspections = run.live(Purpose::Inspection);
    for id in inspections {
        run.find(id);
    }
    let (id, strategy, of) = trial(&run);
    assert_eq!((strategy.as_str(), of), ("ddpx1", TaskId(0)));
    measure(&mut run, id);
    assert!(matches!(outcome(run.state(), "ddp", 2), Some(TrialOutcome::Failed { .. })));
}
