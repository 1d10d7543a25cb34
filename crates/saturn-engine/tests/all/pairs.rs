//! Pairs of features that meet seldom.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Gang, Inspection, Knobs, Node, Origin, Placement, Plan, PlanStatus, Strategy,
    Trial, TrialOutcome, WHOLE,
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
    run.tell(Event::Command { command: Command::Cancel { task: "cancelled".to_owned() } });
    run.answer(vec![
        ("first", 0, vec![part(0, &[0])]),
        ("cancelled", 0, vec![part(1, &[0])]),
        ("second", 1, vec![part(0, &[0])]),
        ("third", 2, vec![part(0, &[0])]),
    ]);
    let (_, order) = run.order.as_ref().expect("a plan is asked for without it");
    assert_eq!(order.problem.tasks.len(), 3);
}
