//! A run of which each test plays the ranks and the solver.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Cluster, Inspection, Node, Plan, PlanStatus, Problem, TrialOutcome, Verdict,
};
use saturn_engine::{
    Action, AttemptId, Command, Decision, DeviceKind, Engine, Event, Level, Mode, NewTask, Policy,
    Purpose, RankReport, Record, RunConfig, SolveAnswer, SolveOrder, TaskSpec, TechniqueRef,
    TrialBudget,
};

use crate::specs::spec;

const TECHNIQUES: [&str; 3] = ["ddp", "fsdp", "offload"];

/// A run on four devices of one node.
pub(super) struct Run {
    pub(super) engine: Engine,
    pub(super) now_s: f64,
    /// Trials that run, by what they measure.
    pub(super) trials: Vec<(AttemptId, String, u32)>,
    /// Looks at models that have begun.
    pub(super) inspections: Vec<AttemptId>,
    /// The last plan that was asked for.
    pub(super) order: Option<(u64, SolveOrder)>,
    pub(super) records: Vec<Record>,
    /// What trials that waited for a word were told: the steps to go on to, or to end.
    pub(super) goes_on: Vec<Option<u64>>,
}

impl Run {
    /// A run whose models were looked at, and where nothing is ruled out.
    pub(super) fn new(budget: TrialBudget, tasks: &[(&str, &str, u64)]) -> Self {
        let mut run = Self::begun(budget, tasks);
        run.inspected(&[]);
        run
    }

    pub(super) fn begun(budget: TrialBudget, tasks: &[(&str, &str, u64)]) -> Self {
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

    pub(super) fn handle(&mut self, event: Event) {
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

    /// Inspects every model that waits for it; no inspection rules a strategy out but
    /// this.
    pub(super) fn inspected(&mut self, verdicts: &[Verdict]) {
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
    pub(super) fn running(&self) -> Vec<String> {
        self.trials.iter().map(|(_, technique, gpus)| format!("{technique} x{gpus}")).collect()
    }

    /// The oldest trial that runs comes to its end.
    pub(super) fn tried(&mut self, outcome: TrialOutcome) {
        let (attempt, _, gpus) = self.trials.remove(0);
        let report = RankReport::Trial { knobs: saturn_core::Knobs::new(), outcome, step: None };
        self.handle(Event::Reported { attempt, rank: 0, report });
        for rank in 0..gpus {
            let last_words = String::new();
            self.handle(Event::RankExited { attempt, rank, code: 0, last_words });
        }
    }

    /// The oldest trial that runs is measured, has done so many of its task's steps, and waits for
    /// a word; told to end, it does.
    pub(super) fn tried_to(&mut self, step: u64, outcome: TrialOutcome) {
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

    /// The solver answers with plans that use one candidate of each problem for every task, one
    /// task after another.
    pub(super) fn solved(&mut self, known: usize, optimistic: Option<usize>) {
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

pub(super) fn plan(problem: &Problem, candidate: usize) -> Plan {
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

pub(super) fn task(name: &str, key: &str, steps: u64) -> NewTask {
    let spec = TaskSpec { steps: Some(steps), profile_key: key.to_owned(), ..spec(name) };
    NewTask { spec, after: Vec::new() }
}

pub(super) fn measured(step_s: f64) -> TrialOutcome {
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

pub(super) fn out_of_memory() -> TrialOutcome {
    TrialOutcome::OutOfMemory { detail: "too large".to_owned() }
}

/// Index of an unmeasured candidate of the optimistic problem.
pub(super) fn hopeful(order: &SolveOrder, technique: &str, gpus: u32) -> usize {
    let optimistic = order.optimistic.as_ref().expect("something was not measured");
    let all = &optimistic.tasks[0].strategies;
    let known = order.problem.tasks[0].strategies.len();
    let found = all.iter().position(|one| *one.technique == *technique && one.gpus == gpus);
    found.filter(|index| *index >= known).expect("it was not measured")
}
