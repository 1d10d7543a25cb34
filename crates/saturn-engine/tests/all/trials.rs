//! Which trials are run where each must be worth its time.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::num::NonZeroU64;

use saturn_core::{
    Assignment, Cluster, Finding, Inspection, Node, Plan, PlanStatus, Problem, TrialOutcome,
    Verdict,
};
use saturn_engine::{
    Action, Allowed, AttemptId, Command, Decision, DeviceKind, Engine, Event, FailureKind, Level,
    Mode, NewTask, Policy, Purpose, RankReport, Record, RunConfig, SolveAnswer, SolveOrder,
    TaskSpec, TechniqueRef, TrialBudget, Wishes,
};

const TECHNIQUES: [&str; 3] = ["ddp", "fsdp", "offload"];

/// A run on four devices of one node.
struct Run {
    engine: Engine,
    now_s: f64,
    /// Trials that run, by what they measure.
    trials: Vec<(AttemptId, String, u32)>,
    /// Looks at models that have begun.
    inspections: Vec<AttemptId>,
    /// The last plan that was asked for.
    order: Option<(u64, SolveOrder)>,
    records: Vec<Record>,
    /// What trials that waited for a word were told: the steps to go on to, or to end.
    goes_on: Vec<Option<u64>>,
}

impl Run {
    /// A run whose models were looked at, and where nothing is ruled out.
    fn new(budget: TrialBudget, tasks: &[(&str, &str, u64)]) -> Self {
        let mut run = Self::begun(budget, tasks);
        run.inspected(&[]);
        run
    }

    fn begun(budget: TrialBudget, tasks: &[(&str, &str, u64)]) -> Self {
        let technique = |name: &&str| TechniqueRef {
            name: (*name).to_owned(),
            level: Level::Managed,
            import: None,
            pickle: None,
        };
        let config = RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cuda,
            device_memory_bytes: None,
            techniques: TECHNIQUES.iter().map(technique).collect(),
            policy: Policy { trial_budget: budget, ..Policy::default() },
        };
        let mut run = Self {
            engine: Engine::new(config),
            now_s: 0.0,
            trials: Vec::new(),
            inspections: Vec::new(),
            order: None,
            records: Vec::new(),
            goes_on: Vec::new(),
        };
        run.handle(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n0", 4, "a")] } });
        let tasks = tasks.iter().map(|(name, key, steps)| task(name, key, *steps)).collect();
        run.handle(Event::Command { command: Command::Submit { tasks } });
        run
    }

    fn handle(&mut self, event: Event) {
        self.now_s += 1.0;
        let Decision { records, actions, refusal } = self.engine.handle(event, self.now_s);
        assert_eq!(refusal, None);
        self.records.extend(records);
        for action in actions {
            match action {
                Action::Launch { attempt, purpose: Purpose::Inspection, .. } => {
                    self.inspections.push(attempt);
                }
                Action::Launch { attempt, purpose: Purpose::Trial, strategy, .. } => {
                    self.trials.push((attempt, strategy.technique, strategy.gpus));
                }
                Action::GoOn { steps, .. } => self.goes_on.push(Some(steps)),
                Action::Stop { .. } => self.goes_on.push(None),
                Action::Solve { request, order } => self.order = Some((request, *order)),
                _ => {}
            }
        }
    }

    /// Every model that is to be looked at is, and nothing is found that rules anything out but this.
    fn inspected(&mut self, verdicts: &[Verdict]) {
        while let Some(attempt) = self.inspections.pop() {
            let inspection = Box::new(Inspection {
                parameters: 10,
                parameter_bytes: 40,
                trainable_bytes: 40,
                layers: None,
                checkpoint_bytes: 120,
                optimizer_state_ratio: 2.0,
                batches_per_epoch: None,
                verdicts: verdicts.to_vec(),
            });
            let report = RankReport::Inspected { inspection };
            self.handle(Event::Reported { attempt, rank: 0, report });
            let last_words = String::new();
            self.handle(Event::RankExited { attempt, rank: 0, code: 0, last_words });
        }
    }

    /// The trials that run, in words.
    fn running(&self) -> Vec<String> {
        self.trials.iter().map(|(_, technique, gpus)| format!("{technique} x{gpus}")).collect()
    }

    /// The oldest trial that runs comes to its end.
    fn tried(&mut self, outcome: TrialOutcome) {
        let (attempt, _, gpus) = self.trials.remove(0);
        let report = RankReport::Trial { knobs: saturn_core::Knobs::new(), outcome, step: None };
        self.handle(Event::Reported { attempt, rank: 0, report });
        for rank in 0..gpus {
            let last_words = String::new();
            self.handle(Event::RankExited { attempt, rank, code: 0, last_words });
        }
    }

    /// The oldest trial that runs is measured, has done so many of its task's steps, and waits for a
    /// word; told to end, it does.
    fn tried_to(&mut self, step: u64, outcome: TrialOutcome) {
        let (attempt, _, gpus) = self.trials.remove(0);
        let knobs = saturn_core::Knobs::new();
        let report = RankReport::Trial { knobs, outcome, step: Some(step) };
        self.handle(Event::Reported { attempt, rank: 0, report });
        if self.goes_on.last() == Some(&None) {
            for rank in 0..gpus {
                let last_words = String::new();
                self.handle(Event::RankExited { attempt, rank, code: 0, last_words });
            }
        }
    }

    /// The solver answers with plans that use one candidate of each problem for every task, one task
    /// after another.
    fn solved(&mut self, known: usize, optimistic: Option<usize>) {
        let (request, order) = self.order.take().expect("a plan was asked for");
        let answer = SolveAnswer {
            plan: plan(&order.problem, known),
            current_practice_s: None,
            practice_is_estimate: false,
            optimistic: order.optimistic.as_ref().zip(optimistic).map(|(one, at)| plan(one, at)),
        };
        self.handle(Event::Solved { request, answer: Ok(answer) });
    }
}

fn plan(problem: &Problem, candidate: usize) -> Plan {
    let mut now_s = 0.0;
    let mut assignments = Vec::new();
    for (task, of_task) in problem.tasks.iter().enumerate() {
        let candidate = candidate.min(of_task.strategies.len() - 1);
        let one = &of_task.strategies[candidate];
        let gang = vec![saturn_core::Placement { node: 0, devices: (0..one.gpus).collect() }];
        let end_s = now_s + one.runtime_s;
        let (start_s, share) = (now_s, 1.0);
        assignments.push(Assignment { task, strategy: candidate, gang, share, start_s, end_s });
        now_s = end_s;
    }
    Plan {
        status: PlanStatus::Feasible,
        makespan_s: now_s,
        assignments,
        ..Plan::none(saturn_core::Objective::Makespan)
    }
}

fn task(name: &str, key: &str, steps: u64) -> NewTask {
    let spec = TaskSpec {
        name: name.to_owned(),
        dir: format!("tasks/{name}"),
        steps: Some(steps),
        epochs: None,
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: None,
        allowed: Allowed::default(),
        profile_key: key.to_owned(),
        measured: Vec::new(),
        wishes: Wishes::default(),
        evaluation: None,
        parameters: saturn_core::Knobs::new(),
        goal: None,
        is_rest: false,
        start_step: 0,
    };
    NewTask { spec, after: Vec::new() }
}

fn measured(step_s: f64) -> TrialOutcome {
    TrialOutcome::Measured {
        step_s,
        setup_s: 1.0,
        checkpoint_s: Some(0.5),
        peak_memory_bytes: 1,
        timed_steps: 3,
        relative_error: None,
        warmup_s: None,
        variation: None,
        batches_per_epoch: None,
        evaluation_s: None,
    }
}

fn out_of_memory() -> TrialOutcome {
    TrialOutcome::OutOfMemory { detail: "too large".to_owned() }
}

/// Index of an unmeasured candidate of the optimistic problem.
fn hopeful(order: &SolveOrder, technique: &str, gpus: u32) -> usize {
    let optimistic = order.optimistic.as_ref().expect("something was not measured");
    let all = &optimistic.tasks[0].strategies;
    let known = order.problem.tasks[0].strategies.len();
    let found = all.iter().position(|one| *one.technique == *technique && one.gpus == gpus);
    found.filter(|index| *index >= known).expect("it was not measured")
}

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

/// What the trial saves and costs that is chosen for a task of so many steps of 0.8 s, if any is: where the
/// task trains meanwhile, and where its first trial has ended and nothing trains.
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
    run.handle(Event::NodeJoined { spec: Node::new("n1", 1, "a") });
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
    run.handle(Event::NodeJoined { spec: Node::new("n0", 4, "a") });
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

impl Run {
    /// The oldest trial that runs meets a full disk.
    fn met_a_full_disk(&mut self) {
        let (attempt, _, _) = self.trials.remove(0);
        let (kind, error) = (FailureKind::NoSpace, "would write 5 MB".to_owned());
        let report = RankReport::Failed { kind, error, traceback: String::new() };
        self.handle(Event::Reported { attempt, rank: 0, report });
        let last_words = String::new();
        self.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words });
    }

    fn waits_for_space(&self) -> Vec<&str> {
        let state = self.engine.state();
        state.without_space().map(|(task, _)| state.name(task)).collect()
    }
}

#[test]
fn a_trial_that_met_a_full_disk_waits_until_there_is_room() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000), ("u", "k", 1000)]);
    run.met_a_full_disk();
    let since_s = run.now_s;
    while run.now_s < since_s + 50.0 {
        run.handle(Event::Tick);
        assert!(run.running().is_empty(), "at {} s", run.now_s);
    }
    assert_eq!(run.waits_for_space(), ["t", "u"]);
    run.handle(Event::SpaceFreed);
    assert_eq!(run.running(), ["ddp x1"]);
    assert!(run.waits_for_space().is_empty());
    // Where nobody sees that there is room, it is tried again after a minute.
    run.met_a_full_disk();
    let since_s = run.now_s;
    while run.running().is_empty() {
        run.now_s = run.engine.next_tick_s().expect("a timer is set") - 1.0;
        run.handle(Event::Tick);
    }
    assert!((run.now_s - since_s - 60.0).abs() < 1e-9, "at {} s", run.now_s);
    run.tried(measured(0.5));
    assert!(run.order.is_some(), "it says nothing of the strategy");
}

#[test]
fn others_are_tried_and_planned_while_a_group_waits_for_space() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000), ("u", "l", 1000)]);
    assert_eq!(run.running(), ["ddp x1", "ddp x1"]);
    run.met_a_full_disk();
    run.tried(measured(0.5));
    assert!(run.order.is_some(), "the other task can train");
    assert_eq!(run.waits_for_space(), ["u"], "the model that was looked at first");
}
