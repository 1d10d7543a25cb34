//! What running tasks show of their strategies, what plans make of it, and where tasks begin.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Knobs, Origin, Placement, Plan, PlanStatus, Strategy, Trained, Trial, TrialOutcome,
    WHOLE,
};
use saturn_engine::{
    Action, AttemptId, Command, Decision, Engine, Event, NewTask, Policy, RankReport, Record,
    SolveAnswer, SolveOrder, TaskId, TaskSpec,
};

use crate::run::inspection;
use crate::specs::{engine, spec};

const STEPS: u64 = 1000;
const INTERVAL_S: f64 = 100.0;
/// Launch, and what the first step takes beyond the others, by the trials.
const SETUP_S: f64 = 2.0;
const WARMUP_S: f64 = 6.0;
/// Seconds a step by the trials, on one device.
const TRIED: [(&str, f64); 2] = [("ddp", 1.0), ("offload", 3.0)];

fn trial((technique, step_s): (&str, f64), variation: f64) -> Trial {
    Trial {
        task: "t".to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: Strategy { technique: technique.to_owned(), gpus: 1, knobs: Knobs::new() },
        outcome: Some(TrialOutcome::Measured {
            step_s,
            setup_s: SETUP_S,
            checkpoint_s: Some(0.0),
            peak_memory_bytes: 1,
            timed_steps: 9,
            relative_error: Some(0.03),
            warmup_s: Some(WARMUP_S),
            variation: Some(variation),
            batches_per_epoch: None,
            evaluation_s: None,
        }),
        trained: None,
        origin: Origin::default(),
    }
}

fn task(name: &str, variation: f64) -> NewTask {
    let spec = TaskSpec {
        steps: Some(STEPS),
        gpu_range: Some(vec![1]),
        profile_key: "k".to_owned(),
        measured: TRIED.map(|one| trial(one, variation)).to_vec(),
        ..spec(name)
    };
    NewTask { spec, after: Vec::new() }
}

fn order(decision: &Decision) -> Option<(u64, &SolveOrder)> {
    decision.actions.iter().find_map(|action| match action {
        Action::Solve { request, order } => Some((*request, &**order)),
        _ => None,
    })
}

/// Seconds of a task by a technique, in the problem that was asked about.
fn runtime_s(order: &SolveOrder, task: usize, technique: &str) -> f64 {
    let mut all = order.problem.tasks[task].strategies.iter();
    all.find(|one| *one.technique == *technique).expect("it was measured").runtime_s
}

/// One after another on the only device, by the first technique.
fn answer((request, order): (u64, &SolveOrder)) -> Event {
    let mut now_s = 0.0;
    let tasks = order.problem.tasks.iter().enumerate();
    let assignments = tasks.map(|(task, spec)| {
        let start_s = now_s;
        now_s += spec.strategies[0].runtime_s;
        let gang = vec![Placement { node: 0, devices: vec![0] }];
        Assignment { task, strategy: 0, gang, share: WHOLE, start_s, end_s: now_s }
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    let answer = SolveAnswer {
        plan,
        current_practice_s: None,
        practice_is_estimate: false,
        optimistic: None,
    };
    Event::Solved { request, answer: Ok(answer) }
}

/// An engine of one device that knows the techniques.
fn begun() -> Engine {
    let policy = Policy { interval_s: INTERVAL_S, ..Policy::default() };
    engine(&TRIED.map(|(name, _)| name), 1, policy)
}

fn launched(decision: &Decision) -> AttemptId {
    let launch = |action: &Action| match action {
        Action::Launch { attempt, .. } => Some(*attempt),
        _ => None,
    };
    decision.actions.iter().find_map(launch).expect("it trains")
}

/// Two tasks of one group, whose steps differ by `variation`; the first trains on the only device,
/// its steps `step_s` each but for the first. What the engine decides where it asks for a plan
/// again, at a step or at the first interval, and the engine then.
fn at_the_next_plan(step_s: f64, variation: f64) -> (Decision, Engine) {
    let mut engine = begun();
    let tasks = vec![task("a", variation), task("b", variation)];
    let asked = engine.handle(Event::Command { command: Command::Submit { tasks } }, 0.0);
    let (request, first) = order(&asked).expect("all is measured");
    for (technique, tried_s) in TRIED {
        let expected_s = SETUP_S + WARMUP_S + STEPS as f64 * tried_s;
        assert!((runtime_s(first, 0, technique) - expected_s).abs() < 1e-6, "once a launch");
    }
    let planned = engine.handle(answer((request, first)), 1.0);
    let attempt = launched(&planned);
    let mut say = |report: RankReport, now_s: f64| {
        engine.handle(Event::Reported { attempt, rank: 0, report }, now_s)
    };
    say(RankReport::Started { step: 0, setup_s: SETUP_S }, 1.0 + SETUP_S);
    // The first step takes six times as long as a trial said of any.
    let warm_s = 1.0 + SETUP_S + 6.0;
    for step in 1..=30 {
        let now_s = warm_s + (step - 1) as f64 * step_s;
        let said = say(RankReport::Progress { step, loss: None, step_s: None }, now_s);
        if order(&said).is_some() {
            return (said, engine);
        }
        // Ten steps after the first, and as many again.
        let is_interval = matches!(said.records[..], [Record::Clocked { .. }]);
        assert!(is_interval == [11, 21].contains(&step) && said.records.len() <= 1, "{said:?}");
    }
    (engine.handle(Event::Tick, 1.0 + INTERVAL_S), engine)
}

fn noted(decision: &Decision) -> Vec<(String, f64)> {
    let observed = |record: &Record| match record {
        Record::Observed { strategy, step_s, .. } => Some((strategy.technique.clone(), *step_s)),
        _ => None,
    };
    decision.records.iter().filter_map(observed).collect()
}

fn strategy(technique: &str) -> Strategy {
    Strategy { technique: technique.to_owned(), gpus: 1, knobs: Knobs::new() }
}

#[test]
fn what_trains_far_otherwise_than_planned_is_noted_at_once_for_all_of_its_group() {
    let (decision, engine) = at_the_next_plan(1.5, 0.0);
    let [(technique, step_s)] = &noted(&decision)[..] else {
        panic!("one strategy trains: {:?}", decision.records)
    };
    assert_eq!(technique, "ddp");
    assert!(engine.state().now_s < INTERVAL_S, "{}", engine.state().now_s);
    assert!((step_s - 1.5).abs() < 1e-9, "its first step counts as launching: {step_s}");
    let (_, order) = order(&decision).expect("it is news");
    let waiting_s = runtime_s(order, 1, "ddp");
    let expected_s = SETUP_S + WARMUP_S + STEPS as f64 * 1.5;
    assert!((waiting_s - expected_s).abs() < 1e-6, "{waiting_s}");
    // What was not seen moves with it, but for what may be a trial's noise.
    let other_s = engine.state().step_s(TaskId(1), &strategy("offload"), "cpu").expect("measured");
    assert!(4.2 < other_s && other_s < 4.5, "{other_s}");
}

/// The first interval of a task that trains for a second a step, and for 1.5 s while an inspection runs
/// beside it, from step 7 up to `last`: the step after which it is put on record, its steps, and the
/// seconds of each.
fn interval_beside_an_inspection(last: u64) -> (u64, u64, f64) {
    let mut engine = begun();
    let tasks = vec![task("a", 0.0)];
    let asked = engine.handle(Event::Command { command: Command::Submit { tasks } }, 0.0);
    let planned = engine.handle(answer(order(&asked).expect("all is measured")), 1.0);
    let attempt = launched(&planned);
    let report = RankReport::Started { step: 0, setup_s: SETUP_S };
    engine.handle(Event::Reported { attempt, rank: 0, report }, 1.0 + SETUP_S);
    let (mut now_s, mut look) = (10.0, None);
    for step in 1..=30 {
        if step == 7 {
            let spec = TaskSpec { profile_key: "other".to_owned(), ..spec("b") };
            let tasks = vec![NewTask { spec, after: Vec::new() }];
            let asked = engine.handle(Event::Command { command: Command::Submit { tasks } }, now_s);
            look = Some(launched(&asked));
        }
        if let Some(look) = look.take_if(|_| step > last) {
            let report = RankReport::Inspected { inspection: Box::new(inspection(1, 1)) };
            engine.handle(Event::Reported { attempt: look, rank: 0, report }, now_s);
            let last_words = String::new();
            let gone = Event::RankExited { attempt: look, rank: 0, code: 0, last_words };
            engine.handle(gone, now_s);
        }
        now_s += if look.is_some() { 1.5 } else { 1.0 };
        let report = RankReport::Progress { step, loss: None, step_s: None };
        let said = engine.handle(Event::Reported { attempt, rank: 0, report }, now_s);
        let clocked = said.records.iter().find_map(|record| match record {
            Record::Clocked { trained, .. } => Some((step, trained.steps, trained.step_s)),
            _ => None,
        });
        if let Some(interval) = clocked {
            return interval;
        }
    }
    panic!("no interval is put on record")
}

#[test]
fn steps_beside_an_inspection_tell_nothing_of_their_strategy() {
    let (step, num_steps, step_s) = interval_beside_an_inspection(12);
    assert_eq!((step, num_steps), (17, 10), "steps 2 to 6 and 13 to 17");
    assert!((step_s - 1.0).abs() < 1e-9, "{step_s}");
    // After ten seconds the inspection is taken to wait for something.
    let (step, num_steps, step_s) = interval_beside_an_inspection(30);
    assert_eq!((step, num_steps), (18, 10), "steps 2 to 6 and 14 to 18");
    assert!((step_s - 1.25).abs() < 1e-9, "{step_s}");
}

#[test]
fn a_task_that_continues_another_is_planned_from_where_that_ended() {
    let mut engine = begun();
    let mut new = task("longer", 0.0);
    new.spec.start_step = 400;
    let asked =
        engine.handle(Event::Command { command: Command::Submit { tasks: vec![new] } }, 0.0);
    let (request, first) = order(&asked).expect("all is measured");
    let of_steps = |steps: u64| SETUP_S + WARMUP_S + steps as f64;
    assert!((runtime_s(first, 0, "ddp") - of_steps(STEPS - 400)).abs() < 1e-6);
    let stands = |engine: &Engine| {
        let task = engine.state().task(TaskId(0));
        (task.step, task.checkpoint_step)
    };
    assert_eq!(stands(&engine), (400, 400));
    let planned = engine.handle(answer((request, first)), 1.0);
    let attempt = launched(&planned);
    // It ends before it has come to say anything: nothing that it brought is lost.
    let gone = Event::RankExited { attempt, rank: 0, code: 1, last_words: String::new() };
    engine.handle(gone, 2.0);
    assert_eq!(stands(&engine), (400, 400));
    let attempt = launched(&engine.handle(Event::Tick, 10.0));
    // The launch finds another step in the checkpoint than the task was submitted with: the launch
    // is right.
    let report = RankReport::Started { step: 300, setup_s: SETUP_S };
    engine.handle(Event::Reported { attempt, rank: 0, report }, 12.0);
    assert_eq!(stands(&engine), (300, 300));
    let left_s = engine.state().time_left_s(&engine.state().attempts[&attempt], None, 12.0);
    assert!((left_s - (STEPS - 300) as f64).abs() < 1e-6, "{left_s}");
}

/// Two rests of one script, of which it is guessed that they take a second.
fn rests(names: [&str; 2]) -> Vec<NewTask> {
    let rest = |name: &str| {
        let mut new = task(name, 0.0);
        let spec = &mut new.spec;
        (spec.steps, spec.can_resume, spec.is_rest) = (Some(1), false, true);
        for guess in &mut spec.measured {
            if let Some(TrialOutcome::Measured { setup_s, warmup_s, .. }) = &mut guess.outcome {
                (*setup_s, *warmup_s) = (0.0, None);
            }
        }
        new
    };
    names.map(rest).to_vec()
}

#[test]
fn the_rest_of_a_script_is_planned_as_long_as_another_of_its_group_took() {
    let mut engine = begun();
    let command = Command::Submit { tasks: rests(["a-rest", "b-rest"]) };
    let asked = engine.handle(Event::Command { command }, 0.0);
    let (request, first) = order(&asked).expect("both are guessed");
    assert!((runtime_s(first, 1, "ddp") - 1.0).abs() < 1e-6);
    let attempt = launched(&engine.handle(answer((request, first)), 1.0));
    let mut say = |report: RankReport, now_s: f64| {
        engine.handle(Event::Reported { attempt, rank: 0, report }, now_s);
    };
    say(RankReport::Started { step: 0, setup_s: 1.5 }, 2.5);
    say(RankReport::Finished { step: 1, loss: None }, 40.0);
    let gone = Event::RankExited { attempt, rank: 0, code: 0, last_words: String::new() };
    let ended = engine.handle(gone, 41.0);
    assert_eq!(noted(&ended), [("ddp".to_owned(), 40.0)]);
    let (_, again) = order(&ended).expect("what is left takes longer");
    let planned: Vec<&str> = again.problem.tasks.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(planned, ["b-rest"]);
    assert!((runtime_s(again, 0, "ddp") - 40.0).abs() < 1e-6, "launch and all");
    // What they took together is kept, also for later runs.
    let known = engine.state().groups[0].trial(&strategy("ddp"), "cpu").expect("it is known");
    let trained = known.trained.expect("one has ended");
    assert_eq!((trained.steps, trained.step_s), (1, 40.0));
}

#[test]
fn what_trains_as_planned_is_no_news() {
    let (decision, engine) = at_the_next_plan(1.01, 0.0);
    assert_eq!(noted(&decision), []);
    let other_s = engine.state().step_s(TaskId(1), &strategy("offload"), "cpu");
    assert_eq!(other_s, Some(3.0));
}

#[test]
fn a_departure_within_a_trials_noise_corrects_its_own_strategy_alone() {
    let (decision, engine) = at_the_next_plan(1.03, 0.0);
    assert_eq!(noted(&decision).len(), 1);
    let step_s = |technique| engine.state().step_s(TaskId(1), &strategy(technique), "cpu");
    assert!((step_s("ddp").expect("measured") - 1.03).abs() < 1e-9);
    assert!((step_s("offload").expect("measured") - 3.0).abs() < 0.03);
}

#[test]
fn few_steps_that_differ_much_from_one_another_are_believed_in_part() {
    let step_s = |variation: f64| {
        let (decision, _) = at_the_next_plan(1.5, variation);
        noted(&decision)[0].1
    };
    assert!((step_s(0.0) - 1.5).abs() < 1e-9);
    let (alike, unlike) = (step_s(0.1), step_s(1.0));
    assert!(1.4 < alike && alike < 1.5, "{alike}");
    assert!(1.05 < unlike && unlike < 1.2, "{unlike}");
}

/// What training found of `ddp` in an earlier run.
fn earlier(step_s: f64) -> Trained {
    Trained { step_s, steps: 400, relative_error: 0.02, measured_unix_s: Some(1) }
}

#[test]
fn what_an_earlier_run_s_training_found_counts_for_more_than_its_trial() {
    let mut engine = begun();
    let mut new = task("a", 0.0);
    new.spec.measured[0].trained = Some(earlier(0.5));
    let asked =
        engine.handle(Event::Command { command: Command::Submit { tasks: vec![new] } }, 0.0);
    let (_, order) = order(&asked).expect("all is known");
    let expected_s = SETUP_S + WARMUP_S + STEPS as f64 * 0.5;
    let planned_s = runtime_s(order, 0, "ddp");
    assert!((planned_s - expected_s).abs() < 1e-6, "{planned_s}");
    // The trial of what has not trained was off by as much, as far as anybody knows.
    let other_s = engine.state().step_s(TaskId(0), &strategy("offload"), "cpu").expect("measured");
    assert!(1.5 < other_s && other_s < 1.65, "{other_s}");
}

#[test]
fn what_trained_on_an_estimate_alone_needs_no_trial_later() {
    let mut engine = begun();
    let mut new = task("a", 0.0);
    let trial = &mut new.spec.measured[0];
    (trial.outcome, trial.trained) = (None, Some(earlier(0.5)));
    engine.handle(Event::Command { command: Command::Submit { tasks: vec![new] } }, 0.0);
    assert_eq!(engine.state().step_s(TaskId(0), &strategy("ddp"), "cpu"), Some(0.5));
    let choices = engine.state().choices(TaskId(0));
    assert_eq!(choices.filter(|choice| !choice.trial.is_estimate()).count(), 2);
}

#[test]
fn each_interval_of_training_is_a_measurement_that_counts_once() {
    let (_, engine) = at_the_next_plan(1.01, 0.0);
    let group = &engine.state().groups[0];
    let trial = group.trial(&strategy("ddp"), "cpu").expect("it was tried");
    let trained = trial.trained.expect("it trained");
    assert_eq!(trained.steps, 20, "the last nine steps are no interval yet");
    assert!((trained.step_s - 1.01).abs() < 1e-9);
    assert!((0.014..0.015).contains(&trained.relative_error), "{trained:?}");
}
