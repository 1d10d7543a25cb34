//! Pairs of features that meet seldom.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Gang, Inspection, Knobs, Node, Origin, Placement, Plan, PlanStatus, Strategy,
    Trained, Trial, TrialOutcome, WHOLE,
};
use saturn_engine::{
    Action, AttemptId, Command, Decision, Engine, Event, NewTask, PlanSource, Policy, Purpose,
    RankReport, SolveAnswer, SolveOrder, TaskId, TaskSpec, TrialBudget,
};

use crate::specs::{engine_on, measured, spec};

/// Seconds between two events.
const TURN_S: f64 = 20.0;

struct Run {
    engine: Engine,
    now_s: f64,
    launched: Vec<(AttemptId, Purpose, u32)>,
    order: Option<(u64, SolveOrder)>,
}

impl Run {
    /// A run on nodes of so many devices, whose gangs may take two of them.
    fn on(nodes: &[u32], techniques: &[&str], trial_budget: TrialBudget) -> Self {
        let nodes = nodes.iter().enumerate();
        let nodes = nodes.map(|(index, gpus)| Node::new(format!("n{index}"), *gpus, "cpu"));
        let policy = Policy { max_nodes: 2, stall_s: 1e9, trial_budget, ..Policy::default() };
        let engine = engine_on(nodes.collect(), techniques, policy);
        Self { engine, now_s: 0.0, launched: Vec::new(), order: None }
    }

    fn submit(&mut self, tasks: Vec<NewTask>) {
        self.tell(Event::Command { command: Command::Submit { tasks } });
    }

    /// The model that is to be inspected is: nothing is ruled out.
    fn inspected(&mut self) {
        let (look, purpose, _) = self.launched.pop().expect("it is inspected");
        assert_eq!(purpose, Purpose::Inspection);
        let inspection = Box::new(Inspection {
            parameters: 1,
            parameter_bytes: 4,
            trainable_bytes: 4,
            layers: None,
            checkpoint_bytes: 4,
            optimizer_state_ratio: 2.0,
            batches_per_epoch: None,
            verdicts: Vec::new(),
        });
        self.say(look, RankReport::Inspected { inspection });
        self.gone(look, 1);
    }

    /// A trial that was launched last is measured.
    fn tried(&mut self, knobs: Knobs, step_s: f64) {
        let (trial, purpose, gpus) = self.launched.pop().expect("a strategy is tried");
        assert_eq!(purpose, Purpose::Trial);
        self.say(trial, RankReport::Trial { knobs, outcome: measured(step_s), step: None });
        self.gone(trial, gpus);
    }

    /// A task trains on two nodes of one device.
    fn with_a_wide_gang() -> Self {
        let mut run = Self::on(&[1, 1], &["ddp"], TrialBudget::Full);
        run.submit(vec![task("wide", 2, 100_000, Some(1))]);
        run.answer(vec![("wide", 0, vec![part(0, &[0]), part(1, &[0])])]);
        let (wide, ..) = run.launched.pop().expect("it trains");
        run.say(wide, RankReport::Started { step: 0, setup_s: 2.0 });
        for step in [1, 21] {
            run.say(wide, RankReport::Progress { step, loss: None, step_s: None });
        }
        run
    }

    fn tell(&mut self, event: Event) {
        self.now_s += TURN_S;
        let Decision { actions, refusal, .. } = self.engine.handle(event, self.now_s);
        assert_eq!(refusal, None);
        for action in actions {
            match action {
                Action::Launch { attempt, purpose, strategy, .. } => {
                    self.launched.push((attempt, purpose, strategy.gpus));
                }
                Action::Solve { request, order } => self.order = Some((request, *order)),
                _ => {}
            }
        }
    }

    fn answer(&mut self, gangs: Vec<(&str, usize, Gang)>) {
        let (request, order) = self.order.take().expect("a plan is asked for");
        let problem = &order.problem;
        let assignments = gangs.into_iter().map(|(name, number, gang)| Assignment {
            task: problem.tasks.iter().position(|task| task.name == name).expect("it is asked"),
            strategy: 0,
            gang,
            share: WHOLE,
            start_s: number as f64,
            end_s: number as f64 + 1.0,
        });
        let plan = Plan::of(problem, order.objective, assignments.collect());
        let answer = SolveAnswer {
            plan: Plan { status: PlanStatus::Feasible, ..plan },
            current_practice_s: None,
            practice_is_estimate: false,
            optimistic: None,
        };
        // A solve takes no time, so idle devices wait for it.
        self.now_s -= TURN_S;
        self.tell(Event::Solved { request, answer: Ok(answer) });
    }

    fn say(&mut self, attempt: AttemptId, report: RankReport) {
        self.tell(Event::Reported { attempt, rank: 0, report });
    }

    fn gone(&mut self, attempt: AttemptId, ranks: u32) {
        for rank in 0..ranks {
            let last_words = String::new();
            self.tell(Event::RankExited { attempt, rank, code: 0, last_words });
        }
    }
}

/// What an earlier run knows of a strategy.
fn known(technique: &str, gpus: u32, outcome: Option<TrialOutcome>) -> Trial {
    Trial {
        task: "of an earlier run".to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: Strategy { technique: technique.to_owned(), gpus, knobs: Knobs::new() },
        outcome,
        trained: None,
        origin: Origin::default(),
    }
}

/// A task of which these strategies are known.
fn task_with(name: &str, measured: Vec<Trial>) -> NewTask {
    NewTask { spec: TaskSpec { measured, ..spec(name) }, after: Vec::new() }
}

/// A task that was measured on so many devices, which took several nodes if `node_gpus` says of how
/// many, and that takes no other number.
fn task(name: &str, gpus: u32, steps: u64, node_gpus: Option<u32>) -> NewTask {
    let origin = Origin { node_gpus, ..Origin::default() };
    let trial = Trial { origin, ..known("ddp", gpus, Some(measured(1.0))) };
    let mut new = task_with(name, vec![trial]);
    (new.spec.gpu_range, new.spec.steps) = (Some(vec![gpus]), Some(steps));
    new
}

fn part(node: usize, devices: &[u32]) -> Placement {
    Placement { node, devices: devices.to_vec() }
}

#[test]
fn the_solver_is_asked_what_it_takes_when_a_node_joins_that_could_hold_a_gang_on_two_nodes() {
    let mut run = Run::with_a_wide_gang();
    run.tell(Event::NodeJoined { spec: Node::new("n2", 2, "cpu"), host_memory_bytes: None });
    run.inspected();
    run.tried(Knobs::new(), 0.9);
    let (_, order) = run.order.as_ref().expect("a plan is asked for");
    order.problem.validate().expect("the solver takes it");
}

#[test]
fn plans_are_adopted_beside_a_gang_on_two_nodes_when_a_node_joins_that_could_hold_it() {
    let mut run = Run::with_a_wide_gang();
    run.tell(Event::NodeJoined { spec: Node::new("n2", 3, "cpu"), host_memory_bytes: None });
    let all = [("a", 500), ("b", 500), ("c", 500), ("quick", 10)];
    run.submit(all.iter().map(|(name, steps)| task(name, 1, *steps, None)).collect());
    let on = |device: u32| vec![part(2, &[device])];
    run.answer(vec![("quick", 0, on(0)), ("a", 1, on(0)), ("b", 2, on(1)), ("c", 3, on(2))]);
    let plan = run.engine.state().plan.as_ref().expect("it is planned");
    assert_eq!(plan.source, PlanSource::Solver);
    assert!(
        run.engine.state().attempt_of(TaskId(0)).is_some_and(|(_, one)| one.stopping.is_none())
    );
}

#[test]
fn a_task_that_ends_while_the_solver_works_is_planned_without() {
    let mut run = Run::on(&[1, 1], &["ddp"], TrialBudget::Full);
    let all = ["first", "cancelled", "second", "third"];
    run.submit(all.iter().map(|name| task(name, 1, 1000, None)).collect());
    run.now_s -= TURN_S;
    run.tell(Event::Command {
        command: Command::Cancel { task: "cancelled".to_owned(), by: None },
    });
    run.answer(vec![
        ("first", 0, vec![part(0, &[0])]),
        ("cancelled", 0, vec![part(1, &[0])]),
        ("second", 1, vec![part(0, &[0])]),
        ("third", 2, vec![part(0, &[0])]),
    ]);
    let (_, order) = run.order.as_ref().expect("a plan is asked for without it");
    assert_eq!(order.problem.tasks.len(), 3);
}

#[test]
fn what_training_showed_under_other_knobs_is_forgotten_when_a_trial_chooses_knobs() {
    let mut run = Run::on(&[1], &["ddp"], TrialBudget::Full);
    let knobs = |number: u64| Knobs::from_iter([("a".to_owned(), number.into())]);
    let mut trial = known("ddp", 1, None);
    trial.strategy.knobs = knobs(1);
    trial.trained =
        Some(Trained { step_s: 9.0, steps: 1000, relative_error: 0.02, measured_unix_s: None });
    run.submit(vec![task_with("t", vec![trial.clone()])]);
    let step_s = |run: &Run, number: u64| {
        let strategy = Strategy { knobs: knobs(number), ..trial.strategy.clone() };
        run.engine.state().step_s(TaskId(0), &strategy, "cpu").expect("it is known")
    };
    assert!((step_s(&run, 1) - 9.0).abs() < 1e-6);
    run.inspected();
    run.tried(knobs(2), 1.0);
    assert!((step_s(&run, 2) - 1.0).abs() < 1e-6, "{}", step_s(&run, 2));
}

#[test]
fn what_an_earlier_run_measured_tells_of_other_strategies_before_anything_is_measured() {
    let mut run = Run::on(&[4], &["ddp"], TrialBudget::Worthwhile);
    run.submit(vec![task_with("t", vec![known("ddp", 1, Some(measured(1.0)))])]);
    run.inspected();
    let (_, order) = run.order.as_ref().expect("a plan is asked for");
    assert!(order.optimistic.is_some(), "more devices may be faster");
}

#[test]
fn what_was_measured_tells_of_the_wider_gangs_of_a_node_that_joins() {
    let mut run = Run::on(&[2], &["ddp"], TrialBudget::Worthwhile);
    let all = [(1, 1.0), (2, 0.55)];
    let all = all.map(|(gpus, step_s)| known("ddp", gpus, Some(measured(step_s))));
    run.submit(vec![task_with("t", all.to_vec())]);
    run.answer(vec![("t", 0, vec![part(0, &[0])])]);
    run.launched.clear();
    run.tell(Event::NodeJoined { spec: Node::new("n1", 8, "cpu"), host_memory_bytes: None });
    run.inspected();
    let (_, order) = run.order.as_ref().expect("a plan is asked for");
    let optimistic = order.optimistic.as_ref().expect("more devices may be faster");
    assert!(optimistic.tasks[0].strategies.iter().any(|one| one.gpus == 8));
}

#[test]
fn what_trained_with_more_memory_than_the_next_driver_allows_is_tried_again() {
    let mut run = Run::on(&[1], &["ddp"], TrialBudget::Worthwhile);
    let mut large = measured(1.0);
    if let TrialOutcome::Measured { peak_memory_bytes, .. } = &mut large {
        *peak_memory_bytes = 1000;
    }
    let trained = Trained { step_s: 1.0, steps: 99, relative_error: 0.02, measured_unix_s: None };
    let trial = Trial { trained: Some(trained), ..known("ddp", 1, Some(large)) };
    run.submit(vec![task_with("t", vec![trial])]);
    let num_choices = |run: &Run| run.engine.state().choices(TaskId(0)).count();
    assert_eq!(num_choices(&run), 1);
    let state = run.engine.state();
    let (cluster, machines) = (state.cluster.clone(), state.config.machines());
    let (device_memory_bytes, living) = (Some(999), Vec::new());
    run.tell(Event::Resume { cluster, device_memory_bytes, machines, living });
    assert_eq!(num_choices(&run), 0);
}

#[test]
fn no_plan_counts_on_an_estimate_where_more_devices_ran_out_of_memory() {
    let strategies = |is_short: bool| {
        let mut run = Run::on(&[4], &["ddp", "fsdp"], TrialBudget::Worthwhile);
        run.tell(Event::NodeJoined { spec: Node::new("m", 4, "large"), host_memory_bytes: None });
        let on = |gpu_type: &str, technique: &str, gpus: u32, step_s: f64| Trial {
            gpu_type: Some(gpu_type.to_owned()),
            ..known(technique, gpus, Some(measured(step_s)))
        };
        let mut all = Vec::new();
        for (gpus, step_s) in [(1, 4.0), (2, 2.1), (3, 1.45), (4, 1.1)] {
            all.push(on("large", "ddp", gpus, step_s));
            all.push(on("large", "fsdp", gpus, 1.05 * step_s));
            all.push(on("cpu", "fsdp", gpus, 2.1 * step_s));
            if gpus > 2 {
                all.push(on("cpu", "ddp", gpus, 2.0 * step_s));
            }
        }
        let detail = "too large".to_owned();
        let short = known("ddp", 2, Some(TrialOutcome::OutOfMemory { detail }));
        let of_two = if is_short {
            Trial { gpu_type: Some("cpu".to_owned()), ..short }
        } else {
            on("cpu", "ddp", 2, 4.2)
        };
        all.push(of_two);
        run.submit(vec![task_with("t", all)]);
        let state = run.engine.state();
        let choices = state.choices(TaskId(0)).filter(|one| one.gpu_type == "cpu");
        let ddp = choices.filter(|one| one.trial.strategy.technique == "ddp");
        ddp.map(|one| one.trial.strategy.gpus).collect::<Vec<_>>()
    };
    assert_eq!(strategies(false), [1, 2, 3, 4], "the estimate for one device is sure");
    assert_eq!(strategies(true), [3, 4]);
}
