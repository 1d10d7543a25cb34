//! What a stopper says of tasks: who trains on, who waits, who ends, and whose devices they are.

use saturn_core::{
    Assignment, Cluster, Knobs, Node, Origin, Placement, Plan, PlanStatus, Strategy, Trial,
    TrialOutcome, WHOLE,
};
use saturn_engine::{
    Action, AttemptEnd, AttemptId, Command, Decision, DeviceKind, Engine, Event, Judgement, Level,
    Metrics, Mode, NamedJudgement, NewTask, Policy, RankReport, Record, Refusal, RefusalCode,
    Ruling, RunConfig, RunEnd, SolveAnswer, Stage, StopReason, TaskEnd, TaskId, TaskSpec,
    TechniqueRef,
};

use crate::specs::spec;

const A: TaskId = TaskId(0);
const B: TaskId = TaskId(1);

/// A run of tasks of 1000 s on one device, whose plans put them behind each other.
struct Run {
    engine: Engine,
    records: Vec<(Record, f64)>,
    /// Actions that were not looked at yet.
    actions: Vec<Action>,
    now_s: f64,
    refusal: Option<Refusal>,
    solver: Solver,
}

/// How tasks are planned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Solver {
    InOrder,
    LastFirst,
    Silent,
}

impl Run {
    fn of(names: &[&str]) -> Self {
        let level = Level::BlackBox;
        let technique = TechniqueRef { name: "ddp".into(), level, import: None, pickle: None };
        let config = RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cpu,
            device_memory_bytes: None,
            techniques: vec![technique],
            policy: Policy { interval_s: 1e6, ..Policy::default() },
        };
        let engine = Engine::new(config);
        let (records, actions) = (Vec::new(), Vec::new());
        let mut run =
            Self { engine, records, actions, now_s: 0.0, refusal: None, solver: Solver::InOrder };
        run.tell(Event::Begin { cluster: pool() });
        let tasks = names.iter().map(|name| task(name)).collect();
        run.ask(Command::Submit { tasks });
        run.ask(Command::Close);
        run
    }

    fn tell(&mut self, event: Event) {
        let Decision { records, actions, refusal } = self.engine.handle(event, self.now_s);
        self.records.extend(records.into_iter().map(|record| (record, self.now_s)));
        for action in actions {
            if let Action::Solve { request, order } = action {
                if self.solver == Solver::Silent {
                    continue;
                }
                let num_tasks = order.problem.tasks.len();
                let assignments = order.problem.tasks.iter().enumerate().map(|(index, task)| {
                    let is_last_first = self.solver == Solver::LastFirst;
                    let place = if is_last_first { num_tasks - 1 - index } else { index };
                    let start_s = place as f64 * 1000.0;
                    let end_s = start_s + task.strategies[0].runtime_s;
                    let gang = vec![Placement { node: 0, devices: vec![0] }];
                    Assignment { task: index, strategy: 0, gang, share: WHOLE, start_s, end_s }
                });
                let plan = Plan::of(&order.problem, order.objective, assignments.collect());
                let plan = Plan { status: PlanStatus::Feasible, ..plan };
                let answer = Ok(SolveAnswer {
                    plan,
                    current_practice_s: None,
                    practice_is_estimate: false,
                    optimistic: None,
                });
                self.tell(Event::Solved { request, answer });
            } else {
                self.actions.push(action);
            }
        }
        self.refusal = refusal;
    }

    fn ask(&mut self, command: Command) {
        self.tell(Event::Command { command });
    }

    fn judge(&mut self, task: &str, step: u64, ruling: Option<Ruling>) {
        let values = Metrics::from([("loss".to_owned(), Some(0.5))]);
        let judgement = Judgement { step, values, ruling, reason: "third of five".to_owned() };
        let judgements = vec![NamedJudgement { task: task.to_owned(), judgement }];
        self.ask(Command::Judge { judgements });
    }

    /// Lets time pass until a task was launched, which trains from a step on.
    fn trains(&mut self, task: TaskId, step: u64) -> AttemptId {
        for _ in 0..100 {
            let launched = self
                .actions
                .iter()
                .position(|one| matches!(one, Action::Launch { task: of, .. } if *of == task));
            if let Some(at) = launched
                && let Action::Launch { attempt, .. } = self.actions.remove(at)
            {
                self.report(attempt, RankReport::Started { step, setup_s: 0.0 });
                let progress = RankReport::Progress { step: step + 9, loss: None, step_s: None };
                self.report(attempt, progress);
                return attempt;
            }
            self.now_s += 1.0;
            self.tell(Event::Tick);
        }
        panic!("{task:?} is not launched: {:?}", self.actions)
    }

    fn report(&mut self, attempt: AttemptId, report: RankReport) {
        self.now_s += 1.0;
        self.tell(Event::Reported { attempt, rank: 0, report });
    }

    /// Whether an attempt was asked to stop; it has then done so.
    fn stops(&mut self, attempt: AttemptId, step: u64) -> bool {
        let order = Action::Stop { attempt };
        let is_asked = self.actions.contains(&order);
        self.actions.retain(|one| *one != order);
        if is_asked {
            self.report(
                attempt,
                RankReport::Checkpoint { step, save_s: 0.1, blocked_s: 0.1, loss: None },
            );
            self.report(attempt, RankReport::Stopped { step });
            let last_words = String::new();
            self.tell(Event::RankExited { attempt, rank: 0, code: 0, last_words });
        }
        is_asked
    }

    fn stage(&self, task: TaskId) -> Stage {
        self.engine.state().stage(task)
    }

    fn end(&self, task: TaskId) -> Option<&TaskEnd> {
        self.records.iter().find_map(|(record, _)| match record {
            Record::TaskEnded { task: of, end } if *of == task => Some(end),
            _ => None,
        })
    }
}

fn pool() -> Cluster {
    Cluster { nodes: vec![Node::new("n", 1, "cpu")] }
}

/// One named `once` can't go on from a checkpoint.
fn task(name: &str) -> NewTask {
    let measured = Trial {
        task: name.to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: Strategy { technique: "ddp".into(), gpus: 1, knobs: Knobs::new() },
        outcome: Some(TrialOutcome::Measured {
            step_s: 1.0,
            setup_s: 0.0,
            checkpoint_s: Some(0.0),
            peak_memory_bytes: 1,
            timed_steps: 3,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: None,
            evaluation_s: None,
        }),
        trained: None,
        origin: Origin::default(),
    };
    let spec = TaskSpec {
        can_resume: name != "once",
        gpu_range: Some(vec![1]),
        measured: vec![measured],
        ..spec(name)
    };
    NewTask { spec, after: Vec::new() }
}

#[test]
fn a_task_that_is_held_gives_its_device_to_others_and_goes_on_from_there() {
    let mut run = Run::of(&["a", "b"]);
    let first = run.trains(A, 0);
    run.judge("a", 9, Some(Ruling::Hold));
    assert_eq!(run.stage(A), Stage::Held);
    assert_eq!(run.engine.state().task(A).held(), Some("third of five"));
    let why = Record::Stopping { attempt: first, reason: StopReason::Judged };
    assert!(run.records.iter().any(|(record, _)| *record == why));
    assert!(run.stops(first, 10));
    let second = run.trains(B, 0);
    // Held a second time, or only looked at, it stays as it is.
    run.judge("a", 10, None);
    assert_eq!(run.stage(A), Stage::Held);
    run.ask(Command::Unpause { task: "a".to_owned() });
    let refusal = run.refusal.clone().expect("nobody paused it").reason;
    assert!(
        refusal.contains("`a` is not paused: the stopper holds it (third of five)"),
        "{refusal}"
    );
    run.judge("a", 10, Some(Ruling::GoOn));
    run.judge("b", 9, Some(Ruling::Hold));
    assert_eq!((run.stage(A), run.stage(B)), (Stage::Waiting, Stage::Held));
    assert!(run.stops(second, 10));
    run.trains(A, 10);
}

#[test]
fn a_task_that_may_go_on_comes_before_all_that_waits() {
    for solver in [Solver::Silent, Solver::LastFirst] {
        let mut run = Run::of(&["a", "b", "c"]);
        let first = run.trains(A, 0);
        run.judge("a", 9, Some(Ruling::Hold));
        assert!(run.stops(first, 10));
        let second = run.trains(B, 0);
        run.solver = solver;
        run.judge("a", 10, Some(Ruling::GoOn));
        run.judge("b", 9, Some(Ruling::Hold));
        assert!(run.stops(second, 10));
        run.trains(A, 10);
        assert_eq!(run.stage(TaskId(2)), Stage::Waiting);
    }
}

#[test]
fn a_task_that_may_go_on_is_placed_once_and_not_while_the_run_stops() {
    let is_plan = |(record, _): &(Record, f64)| matches!(record, Record::Planned { .. });
    for is_stopping in [false, true] {
        let mut run = Run::of(&["a", "b"]);
        let first = run.trains(A, 0);
        run.judge("a", 9, Some(Ruling::Hold));
        assert!(run.stops(first, 10));
        run.trains(B, 0);
        run.solver = Solver::Silent;
        if is_stopping {
            run.tell(Event::Interrupt);
        }
        let new_plans = |run: &mut Run| {
            let before = run.records.len();
            run.judge("a", 10, Some(Ruling::GoOn));
            run.records[before..].iter().filter(|record| is_plan(record)).count()
        };
        assert_eq!(new_plans(&mut run), usize::from(!is_stopping));
        assert_eq!(new_plans(&mut run), 0, "it has its place");
    }
}

#[test]
fn a_task_whose_own_code_ends_it_is_done_and_its_device_goes_to_the_next() {
    for is_asked_to_stop in [false, true] {
        let mut run = Run::of(&["a", "b"]);
        let attempt = run.trains(A, 0);
        if is_asked_to_stop {
            run.judge("a", 9, Some(Ruling::Hold));
        }
        let saved = RankReport::Checkpoint { step: 10, save_s: 0.1, blocked_s: 0.1, loss: None };
        run.report(attempt, saved);
        run.report(attempt, RankReport::Finished { step: 10, loss: Some(0.5) });
        let last_words = String::new();
        run.tell(Event::RankExited { attempt, rank: 0, code: 0, last_words });
        assert_eq!(run.end(A), Some(&TaskEnd::Done { loss: Some(0.5) }));
        assert_eq!((run.stage(A), run.engine.state().task(A).step), (Stage::Done, 10));
        run.trains(B, 0);
        assert!(run.now_s < 200.0, "the next was planned at 1000 s");
    }
}

#[test]
fn a_task_that_is_to_stop_ends_at_its_checkpoint_and_for_good() {
    let mut run = Run::of(&["a", "b"]);
    let first = run.trains(A, 0);
    run.judge("a", 9, Some(Ruling::Stop));
    assert_eq!(run.end(A), None, "it saves first");
    run.judge("a", 10, Some(Ruling::GoOn));
    assert!(run.stops(first, 10));
    let reason = "third of five".to_owned();
    assert_eq!(run.end(A), Some(&TaskEnd::Stopped { reason: reason.clone() }));
    assert_eq!(run.engine.state().task(A).checkpoint_step, 10);
    let second = run.trains(B, 0);
    // What waits ends at once, and so does the run with its last task.
    run.judge("b", 9, Some(Ruling::Hold));
    assert!(run.stops(second, 10));
    run.judge("b", 10, Some(Ruling::Stop));
    assert_eq!(run.end(B), Some(&TaskEnd::Stopped { reason }));
    assert_eq!(run.engine.state().ended, Some(RunEnd::Complete));
}

#[test]
fn a_word_on_what_has_ended_is_kept_and_changes_nothing_and_nobody_is_no_task() {
    let mut run = Run::of(&["a"]);
    run.trains(A, 0);
    run.ask(Command::Cancel { task: "a".to_owned(), by: None });
    let before = run.records.len();
    run.judge("a", 9, Some(Ruling::Stop));
    assert_eq!((run.refusal.as_ref(), run.stage(A)), (None, Stage::Cancelled));
    assert!(
        matches!(run.records[before..], [(Record::Judged { task: A, .. }, _)]),
        "the stopper has seen the value, and that is all"
    );
    run.judge("nobody", 9, None);
    let refusal = RefusalCode::UnknownTask.because("there is no task `nobody`; there are `a`");
    assert_eq!(run.refusal, Some(refusal));
}

#[test]
fn a_resumed_run_holds_what_was_held_and_ends_what_was_to_end() {
    let mut run = Run::of(&["a", "b"]);
    let first = run.trains(A, 0);
    run.judge("a", 9, Some(Ruling::Hold));
    assert!(run.stops(first, 10));
    run.trains(B, 0);
    run.judge("b", 9, Some(Ruling::Stop));
    // Its driver dies before the task has stopped.
    let records = run.records.iter().map(|(record, at_s)| (record, *at_s));
    run.engine = Engine::restore(records).expect("it began");
    let machines = run.engine.state().config.machines();
    run.tell(Event::Resume {
        cluster: pool(),
        device_memory_bytes: None,
        machines,
        living: Vec::new(),
    });
    run.tell(Event::Tick);
    assert!(matches!(run.end(B), Some(TaskEnd::Stopped { .. })));
    assert_eq!(run.stage(A), Stage::Held);
    let lost = run
        .records
        .iter()
        .any(|(record, _)| matches!(record, Record::Ended { end: AttemptEnd::Lost, .. }));
    assert!(lost);
    run.judge("a", 10, Some(Ruling::GoOn));
    run.trains(A, 10);
}

#[test]
fn a_task_whose_last_loss_is_no_number_diverged_and_what_comes_after_it_starts() {
    let mut run = Run::of(&["a", "b"]);
    let attempt = run.trains(A, 0);
    let steps = run.engine.state().task(A).steps.unwrap();
    let told = |loss| RankReport::Progress { step: 10, loss, step_s: None };
    run.report(attempt, told(Some(0.5)));
    run.report(attempt, told(Some(f64::NAN)));
    assert!(run.engine.state().task(A).has_diverged());
    let after = vec!["a".to_owned()];
    run.ask(Command::Wish {
        task: "b".to_owned(),
        priority: None,
        deadline_s: None,
        no_deadline: false,
        release_s: None,
        after: Some(after),
    });
    // As a rank says it: JSON has no infinity.
    let finished = format!(r#"{{"type": "finished", "step": {steps}, "loss": "-inf"}}"#);
    run.report(attempt, serde_json::from_str(&finished).unwrap());
    let last_words = String::new();
    run.tell(Event::RankExited { attempt, rank: 0, code: 0, last_words });
    assert_eq!(run.stage(A), Stage::Diverged);
    assert_eq!(run.end(A), Some(&TaskEnd::Done { loss: Some(f64::NEG_INFINITY) }));
    run.trains(B, 0);
}

#[test]
fn what_would_begin_anew_is_held_before_it_trains_and_not_while_it_does() {
    let mut run = Run::of(&["once", "b"]);
    let first = run.trains(A, 0);
    run.judge("once", 9, Some(Ruling::Hold));
    assert!(!run.stops(first, 10), "its 9 steps would be lost");
    assert_eq!(run.stage(A), Stage::Running);
    let says_so = |(record, _): &(Record, f64)| matches!(record, Record::Noted { task: Some(A), text } if text.contains("not held"));
    assert!(run.records.iter().any(says_so));
    run.judge("once", 19, Some(Ruling::Stop));
    assert!(run.stops(first, 20), "it is not wanted any more");
    assert!(matches!(run.end(A), Some(TaskEnd::Stopped { .. })));

    let mut run = Run::of(&["b", "once"]);
    run.trains(A, 0);
    run.judge("once", 0, Some(Ruling::Hold));
    assert_eq!(run.stage(B), Stage::Held);
}
