//! Which trials go on as training.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::Node;
use saturn_engine::{
    AttemptId, Command, DeviceId, Engine, Event, FailureKind, Judgement, Metrics, NamedJudgement,
    RankReport, Record, Ruling, TaskId, TrialBudget, Undead,
};

use super::run::{Run, hopeful, measured, task};

#[test]
fn a_trial_goes_on_as_training_where_nothing_else_waits_for_its_devices() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000), ("u", "k", 1000)]);
    run.tried_to(5, measured(0.5));
    let went_on = |record: &Record| matches!(record, Record::WentOn { step: 5, .. });
    assert!(run.records.iter().any(went_on));
    let state = run.engine.state();
    let (task, attempt) = state.running().next().expect("it trains");
    assert_eq!((state.name(task), attempt.step), ("t", 5));
    assert_eq!(run.goes_on, [Some(1000)]);
    let (_, order) = run.order.as_ref().expect("both can be planned");
    let is_running = |name: &str| {
        let task = order.problem.tasks.iter().find(|task| task.name == name).expect("it is left");
        task.running.is_some()
    };
    assert!(is_running("t") && !is_running("u"));
    let (id, _) = state.attempt_of(task).expect("it trains");
    run.solved(0, None);
    let state = run.engine.state();
    assert!(state.attempts[&id].stopping.is_none(), "it goes on where it is");
    let plan = state.plan.as_ref().expect("there is a plan");
    assert!(plan.places.iter().any(|place| place.task == task), "and has a place in it");
}

#[test]
fn a_trial_that_went_on_is_told_so_again_by_the_next_driver() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.tried_to(5, measured(0.5));
    assert_eq!(run.goes_on, [Some(1000)]);
    let records = run.records.iter().map(|record| (record, run.now_s));
    run.engine = Engine::restore(records).expect("it has begun");
    let cluster = run.engine.state().cluster.clone();
    let (living, machines) = (run.engine.adoptable(&cluster), run.engine.state().config.machines());
    run.handle(Event::Resume { cluster, device_memory_bytes: None, machines, living });
    assert_eq!(run.goes_on, [Some(1000), Some(1000)], "the last driver may have died before that");
}

#[test]
fn what_waits_for_another_inspection_alone_is_planned_after_it() {
    let names = ["t", "u", "v", "w", "x", "y"];
    let tasks: Vec<(&str, &str, u64)> = names.iter().map(|name| (*name, "k", 1000)).collect();
    let mut run = Run::new(TrialBudget::Worthwhile, &tasks);
    run.tried_to(5, measured(0.5));
    run.solved(0, None);
    let records = run.records.iter().map(|record| (record, run.now_s));
    run.engine = Engine::restore(records).expect("it has begun");
    let (cluster, machines) =
        (run.engine.state().cluster.clone(), run.engine.state().config.machines());
    run.order = None;
    // Another limit of memory puts the inspection in doubt, and not what was measured.
    let device_memory_bytes = Some(1 << 30);
    run.handle(Event::Resume { cluster, device_memory_bytes, machines, living: Vec::new() });
    run.handle(Event::Tick);
    if run.order.is_some() {
        run.solved(0, None);
    }
    assert_eq!(run.inspections.len(), 1);
    run.inspected(&[]);
    // The solver rests for a while after its last answer.
    run.now_s += 100.0;
    run.handle(Event::Tick);
    let (_, order) = run.order.as_ref().expect("no trial is wanted, and a task waits");
    let is_asked = |name: &str| order.problem.tasks.iter().any(|task| task.name == name);
    assert!(names.iter().all(|name| is_asked(name)));
}

#[test]
fn a_trial_ends_where_others_wait_for_devices() {
    let groups = ["a", "b", "c", "d", "e"];
    let tasks: Vec<(&str, &str, u64)> = groups.iter().map(|key| (*key, *key, 1000)).collect();
    let mut run = Run::new(TrialBudget::Worthwhile, &tasks);
    assert_eq!(run.running().len(), 4, "one waits for a device");
    run.tried_to(5, measured(0.5));
    assert_eq!(run.goes_on, [None]);
    run.tried_to(5, measured(0.5));
    assert_eq!(run.goes_on, [None, Some(1000)], "nothing waits any more");
}

#[test]
fn a_trial_goes_on_where_others_wait_for_devices_that_can_not_be_its_own() {
    let mut run = Run::begun(TrialBudget::Worthwhile, &[]);
    run.handle(Event::NodeJoined { spec: Node::new("n1", 1, "a"), host_memory_bytes: None });
    let on = |name: &str, gpus: u32| {
        let mut new = task(name, name, 1000);
        new.spec.gpu_range = Some(vec![gpus]);
        new
    };
    let tasks = vec![on("wide", 4), on("as wide", 4), on("narrow", 1)];
    run.handle(Event::Command { command: Command::Submit { tasks } });
    run.inspected(&[]);
    run.trials.sort_by_key(|(_, _, gpus)| *gpus);
    let widths: Vec<u32> = run.trials.iter().map(|(_, _, gpus)| *gpus).collect();
    assert_eq!(widths, [1, 4], "one waits for the wide node");
    run.tried_to(5, measured(0.5));
    assert_eq!(run.goes_on, [Some(1000)]);
}

#[test]
fn a_trial_ends_where_its_task_is_not_to_train() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.handle(Event::Command { command: Command::Pause { task: "t".to_owned() } });
    run.tried_to(5, measured(0.5));
    assert_eq!(run.goes_on, [None]);
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 5)]);
    run.tried_to(5, measured(0.5));
    assert_eq!(run.goes_on, [None], "the trial has done all of it, and saved nothing");
}

#[test]
fn a_task_that_was_let_go_on_comes_first_no_more_once_it_trains_by_its_trial() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    for ruling in [Ruling::Hold, Ruling::GoOn] {
        let judgement = Judgement {
            step: 0,
            values: Metrics::new(),
            ruling: Some(ruling),
            reason: String::new(),
        };
        let judgements = vec![NamedJudgement { task: "t".to_owned(), judgement }];
        run.handle(Event::Command { command: Command::Judge { judgements } });
    }
    let is_let_go_on = |run: &Run| run.engine.state().task(TaskId(0)).is_let_go_on;
    assert!(is_let_go_on(&run));
    run.tried_to(5, measured(0.5));
    assert_eq!(run.goes_on, [Some(1000)]);
    assert!(!is_let_go_on(&run), "it was launched since");
}

#[test]
fn a_trial_that_goes_on_and_crashes_begins_again_from_the_last_checkpoint() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.tried_to(5, measured(0.5));
    run.solved(0, None);
    let attempt = run.engine.state().running().map(|(task, _)| task).next();
    let task = attempt.expect("it trains");
    let (attempt, _) = run.engine.state().attempt_of(task).expect("it trains");
    run.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words: String::new() });
    let retried = |record: &Record| matches!(record, Record::Retrying { counts: true, .. });
    assert!(run.records.iter().any(retried), "it is a failure of training, not of a trial");
    assert_eq!(run.engine.state().task(task).step, 0);
}

/// The attempt that trains `t`.
fn training(run: &Run) -> AttemptId {
    let state = run.engine.state();
    let task = state.running().map(|(task, _)| task).next().expect("it trains");
    state.attempt_of(task).expect("it trains").0
}

#[test]
fn a_trial_does_not_go_on_where_training_has_saved_more_since_perhaps() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 10_000)]);
    run.tried_to(5, measured(0.8));
    let wide = hopeful(&run.order.as_ref().expect("a plan was asked for").1, "ddp", 3);
    run.solved(0, Some(wide));
    assert_eq!(run.running(), ["ddp x3"]);
    // It saves a checkpoint, and dies before it can say so.
    let attempt = training(&run);
    run.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words: String::new() });
    run.now_s += 60.0;
    run.tried_to(5, measured(0.3));
    assert_eq!(run.goes_on, [Some(10_000), None]);
}

#[test]
fn a_node_that_comes_back_has_no_processes_of_before() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.tried_to(5, measured(0.5));
    run.solved(0, None);
    // Its process neither goes on nor ends.
    let abandoned = |run: &mut Run| {
        let attempt = training(run);
        let (error, traceback) = ("illegal access".to_owned(), String::new());
        let report = RankReport::Failed { kind: FailureKind::Died, error, traceback };
        run.handle(Event::Reported { attempt, rank: 0, report });
        run.now_s += 60.0;
        run.handle(Event::Tick);
        assert!(!run.engine.state().attempts.contains_key(&attempt), "it is given up");
        attempt
    };
    abandoned(&mut run);
    run.handle(Event::NodeLeft { name: "n0".to_owned(), reason: "its power failed".to_owned() });
    run.handle(Event::NodeJoined { spec: Node::new("n0", 4, "a"), host_memory_bytes: None });
    run.now_s += 60.0;
    run.handle(Event::Tick);
    let attempt = abandoned(&mut run);
    let taken_back = |run: &Run| {
        run.records.iter().filter(|one| matches!(one, Record::TakenBack { .. })).count()
    };
    assert_eq!(taken_back(&run), 0);
    run.handle(Event::RankExited { attempt, rank: 0, code: -9, last_words: String::new() });
    assert_eq!(taken_back(&run), 1, "nothing else holds its device");
}

#[test]
fn devices_stay_set_aside_under_the_next_driver_while_processes_on_them_outlive_their_kill() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.tried_to(5, measured(0.5));
    run.solved(0, None);
    let attempt = training(&run);
    let held: Vec<DeviceId> = run.engine.state().attempts[&attempt].devices().collect();
    let (error, traceback) = ("illegal access".to_owned(), String::new());
    let report = RankReport::Failed { kind: FailureKind::Died, error, traceback };
    run.handle(Event::Reported { attempt, rank: 0, report });
    run.now_s += 60.0;
    run.handle(Event::Tick);
    let why = |run: &Run| run.engine.state().device(held[0]).unwrap().set_aside.clone();
    let reason = why(&run).expect("it was given up");
    let records = run.records.iter().map(|record| (record, run.now_s));
    run.engine = Engine::restore(records).expect("it has begun");
    let cluster = run.engine.state().cluster.clone();
    let machines = run.engine.state().config.machines();
    let living = Vec::new();
    run.handle(Event::Resume { cluster, device_memory_bytes: None, machines, living });
    assert_eq!(why(&run), None, "another driver may find devices good");
    let undead = Undead { attempt, task: TaskId(0), devices: held.clone(), num_ranks: 1 };
    run.handle(Event::Undead { attempts: vec![undead] });
    assert_eq!(why(&run), Some(reason));
    let node = run.engine.state().cluster.nodes[0].name.clone();
    let devices = vec![held[0].device];
    run.handle(Event::Command { command: Command::TakeBack { node, devices } });
    assert!(why(&run).is_some(), "nobody can take it back");
    run.handle(Event::RankExited { attempt, rank: 0, code: -9, last_words: String::new() });
    assert_eq!(why(&run), None, "its processes are gone");
}
