//! Gangs across nodes that become slow while they train: which of their nodes is taken to be slow.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Gang, Knobs, Node, Origin, Placement, Plan, PlanStatus, Strategy, Trial, WHOLE,
};
use saturn_engine::{
    Action, AttemptId, Command, Decision, Engine, Event, NewTask, Policy, RankReport, SolveAnswer,
    TaskSpec,
};

use crate::specs::{engine_on, measured, spec};

/// Seconds a step on nodes that are well.
const STEP_S: f64 = 1.0;
/// Steps between two reports.
const REPORT_STEPS: u64 = 10;

/// A run of three nodes of three devices each, whose tasks all train at once, on virtual time.
struct Run {
    engine: Engine,
    now_s: f64,
    /// Attempts in the order of the tasks, each with its finished steps.
    attempts: Vec<(AttemptId, u64)>,
    /// For each task, when its next report comes, and how many seconds a step takes.
    due_s: Vec<f64>,
    step_s: Vec<f64>,
}

/// Devices of nodes: `(0, 3)` are three devices of node 0.
type Parts<'a> = &'a [(usize, u32)];

impl Run {
    /// A run whose tasks train on these parts of nodes.
    fn of(places: &[Parts]) -> Self {
        let nodes = (0..3).map(|index| Node::new(format!("n{index}"), 3, "cpu")).collect();
        let policy = Policy { max_nodes: 3, ..Policy::default() };
        let engine = engine_on(nodes, &["ddp"], policy);
        let mut run = Self {
            engine,
            now_s: 0.0,
            attempts: Vec::new(),
            due_s: vec![0.0; places.len()],
            step_s: vec![STEP_S; places.len()],
        };
        let mut free = [0; 3];
        let gangs = places.iter().map(|parts| gang(parts, &mut free)).collect();
        run.begin(gangs);
        run
    }

    fn begin(&mut self, gangs: Vec<Gang>) {
        let of =
            |(index, gang): (usize, &Gang)| NewTask { spec: task(index, gang), after: Vec::new() };
        let tasks = gangs.iter().enumerate().map(of).collect();
        let actions = self.tell(Event::Command { command: Command::Submit { tasks } });
        let asked = actions.into_iter().find_map(|action| match action {
            Action::Solve { request, order } => Some((request, order)),
            _ => None,
        });
        let (request, order) = asked.expect("all is measured");
        let problem = &order.problem;
        let assignments = gangs.into_iter().enumerate().map(|(task, gang)| Assignment {
            task,
            strategy: 0,
            gang,
            share: WHOLE,
            start_s: 0.0,
            end_s: problem.tasks[task].strategies[0].runtime_s,
        });
        let plan = Plan::of(problem, order.objective, assignments.collect());
        let answer = SolveAnswer {
            plan: Plan { status: PlanStatus::Feasible, ..plan },
            current_practice_s: None,
            practice_is_estimate: false,
            optimistic: None,
        };
        for action in self.tell(Event::Solved { request, answer: Ok(answer) }) {
            if let Action::Launch { attempt, .. } = action {
                self.attempts.push((attempt, 1));
            }
        }
        for (attempt, step) in self.attempts.clone() {
            self.say(attempt, RankReport::Started { step: 0, setup_s: 2.0 });
            self.say(attempt, RankReport::Progress { step, loss: None, step_s: None });
        }
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let Decision { actions, refusal, .. } = self.engine.handle(event, self.now_s);
        assert_eq!(refusal, None);
        actions
    }

    fn say(&mut self, attempt: AttemptId, report: RankReport) {
        for action in self.tell(Event::Reported { attempt, rank: 0, report }) {
            if let Action::Solve { request, .. } = action {
                // So the plan stays.
                self.tell(Event::Solved { request, answer: Err("none".to_owned()) });
            }
        }
    }

    /// Trains for so many seconds.
    fn train_s(&mut self, seconds: f64) {
        let until_s = self.now_s + seconds;
        loop {
            for (due_s, step_s) in self.due_s.iter_mut().zip(&self.step_s) {
                if *due_s <= self.now_s {
                    *due_s += REPORT_STEPS as f64 * step_s;
                }
            }
            self.now_s = self.due_s.iter().copied().fold(f64::INFINITY, f64::min);
            if self.now_s > until_s {
                return;
            }
            for index in 0..self.attempts.len() {
                if self.due_s[index] <= self.now_s {
                    self.attempts[index].1 += REPORT_STEPS;
                    let (attempt, step) = self.attempts[index];
                    self.say(attempt, RankReport::Progress { step, loss: None, step_s: None });
                }
            }
        }
    }

    /// Which nodes are taken to be slow.
    fn slow(&self) -> Vec<usize> {
        let nodes = self.engine.state().nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.slowness.is_some()).map(|(node, _)| node).collect()
    }

    /// Seconds a step by which a task's strategy is planned.
    fn known_s(&self, task: usize) -> f64 {
        let state = self.engine.state();
        let attempt = &state.attempts[&self.attempts[task].0];
        state.step_s(attempt.task, &attempt.strategy, "cpu").expect("it is measured")
    }
}

/// The next devices of these nodes.
fn gang(parts: Parts, free: &mut [u32; 3]) -> Gang {
    let of = |(node, devices): &(usize, u32)| {
        let first = free[*node];
        free[*node] += devices;
        Placement { node: *node, devices: (first..free[*node]).collect() }
    };
    parts.iter().map(of).collect()
}

fn task(index: usize, gang: &Gang) -> TaskSpec {
    let devices: usize = gang.iter().map(|part| part.devices.len()).sum();
    let gpus = u32::try_from(devices).expect("few");
    let name = format!("t{index}");
    let trial = Trial {
        task: name.clone(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: Strategy { technique: "ddp".to_owned(), gpus, knobs: Knobs::new() },
        outcome: Some(measured(STEP_S)),
        trained: None,
        origin: Origin { node_gpus: (gpus > 3).then_some(3), ..Origin::default() },
    };
    TaskSpec {
        steps: Some(100_000),
        gpu_range: Some(vec![gpus]),
        measured: vec![trial],
        ..spec(&name)
    }
}

#[test]
fn a_node_that_is_slow_for_its_own_task_explains_a_gang_across_nodes() {
    // The first task trains on nodes 0 and 1, the second on the other devices of node 1.
    let mut run = Run::of(&[&[(0, 3), (1, 1)], &[(1, 2)]]);
    run.train_s(300.0);
    assert!(run.slow().is_empty());
    run.step_s = vec![2.0, 2.0];
    run.train_s(600.0);
    assert_eq!(run.slow(), [1], "nothing tells of node 0 but what node 1 explains");
    assert!((run.known_s(0) - STEP_S).abs() < 0.03, "{}", run.known_s(0));
}

#[test]
fn a_task_at_its_usual_pace_clears_its_node_of_gangs_across_nodes() {
    // Two gangs that share node 1 with a task.
    let mut run = Run::of(&[&[(0, 3), (1, 1)], &[(1, 1), (2, 3)], &[(1, 1)]]);
    run.train_s(300.0);
    run.step_s = vec![2.0, 2.0, 1.0];
    run.train_s(600.0);
    assert_eq!(run.slow(), [0, 2]);
}

#[test]
fn a_gang_alone_on_its_nodes_has_all_of_them_taken_to_be_slow_and_keeps_its_strategy() {
    let mut run = Run::of(&[&[(0, 3), (1, 3)]]);
    run.train_s(300.0);
    run.step_s = vec![2.0];
    run.train_s(600.0);
    assert_eq!(run.slow(), [0, 1]);
    assert!((run.known_s(0) - STEP_S).abs() < 0.03, "{}", run.known_s(0));
}

#[test]
fn the_pace_across_a_network_is_not_that_of_a_node_that_comes() {
    let mut run = Run::of(&[&[(0, 3), (1, 1)]]);
    run.train_s(300.0);
    run.step_s = vec![2.0];
    run.tell(Event::NodeJoined { spec: Node::new("wide", 4, "cpu"), host_memory_bytes: None });
    run.train_s(600.0);
    let state = run.engine.state();
    let of_four = |(key, _): &(&std::sync::Arc<saturn_engine::TrialKey>, _)| key.strategy.gpus == 4;
    let (_, trial) = state.groups[0].trials.iter().find(of_four).expect("it is there");
    assert_eq!((trial.trained_step_s, trial.trained), (None, None));
}
