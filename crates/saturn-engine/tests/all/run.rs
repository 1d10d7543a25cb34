//! A run of which each test plays the ranks and the solver. Each task is a group of its own.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Cluster, Finding, Inspection, Knobs, Node, Placement, Plan, PlanStatus,
    TrialOutcome, Verdict, WHOLE,
};
use saturn_engine::{
    Action, AttemptId, Command, Decision, DeviceKind, Engine, Event, Judgement, Level, Machines,
    Metrics, Mode, NamedJudgement, NewTask, Policy, Purpose, RankReport, Record, Ruling, RunConfig,
    SolveAnswer, SolveOrder, TaskEnd, TaskId, TaskSpec, TaskStatus, TechniqueRef,
};

use crate::specs::spec;

/// A gigabyte, bytes.
pub(crate) const GB: u64 = 1_000_000_000;
/// The devices of the node of `Run::new` and `Run::of`.
pub(crate) const DEVICES: u32 = 2;

/// A run, what it has stored, and what it has asked for.
pub(crate) struct Run {
    pub(crate) engine: Engine,
    pub(crate) now_s: f64,
    pub(crate) records: Vec<Record>,
    /// What was to be done, but for solves.
    pub(crate) actions: Vec<Action>,
    /// The plan that was asked for last.
    order: Option<(u64, SolveOrder)>,
}

impl Run {
    /// A search on two devices. Each task is a group, with a model of so many GB; each device holds
    /// at least `least_gb` under the one technique.
    pub(crate) fn new(
        kind: DeviceKind,
        host_gb: u64,
        tasks: &[(&str, u64)],
        least_gb: u64,
    ) -> Self {
        Self::of(Mode::Search, kind, host_gb, tasks, least_gb)
    }

    pub(crate) fn of(
        mode: Mode,
        kind: DeviceKind,
        host_gb: u64,
        tasks: &[(&str, u64)],
        least_gb: u64,
    ) -> Self {
        Self::on((&[DEVICES], 1), mode, kind, host_gb, tasks, least_gb)
    }

    /// On nodes of so many devices, each of which has `host_gb`, with so many devices a task.
    pub(crate) fn on(
        (nodes, gpus): (&[u32], u32),
        mode: Mode,
        kind: DeviceKind,
        host_gb: u64,
        tasks: &[(&str, u64)],
        least_gb: u64,
    ) -> Self {
        let technique = TechniqueRef {
            name: "ddp".to_owned(),
            level: Level::Managed,
            import: None,
            pickle: None,
        };
        let config = RunConfig {
            mode,
            device_kind: kind,
            device_memory_bytes: None,
            techniques: vec![technique],
            policy: Policy {
                host_memory_bytes: Some(host_gb * GB),
                max_nodes: 2,
                ..Policy::default()
            },
        };
        let mut run = Self::begin(config, nodes);
        let new = tasks.iter().map(|(name, _)| task(name, gpus)).collect();
        run.tell(Event::Command { command: Command::Submit { tasks: new } });
        // Two at a time are looked at.
        while let Some(attempt) = run.live(Purpose::Inspection).first().copied() {
            let task = run.engine.state().attempts[&attempt].task;
            let inspection = Box::new(inspection(tasks[task.0].1 * GB, least_gb * GB));
            run.say(attempt, RankReport::Inspected { inspection });
            run.gone(attempt, 0);
        }
        run
    }

    /// On nodes of so many devices, without tasks.
    pub(crate) fn begin(config: RunConfig, nodes: &[u32]) -> Self {
        let engine = Engine::new(config);
        let (records, actions) = (Vec::new(), Vec::new());
        let mut run = Self { engine, records, now_s: 0.0, actions, order: None };
        let nodes = nodes.iter().enumerate();
        let nodes = nodes.map(|(index, devices)| Node::new(format!("n{index}"), *devices, "a"));
        let nodes = nodes.collect();
        run.tell(Event::Begin { cluster: Cluster { nodes } });
        run
    }

    /// Whether a plan is asked for that has not been answered.
    pub(crate) fn is_asked(&self) -> bool {
        self.order.is_some()
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.now_s += 1.0;
        let Decision { records, refusal, actions } = self.engine.handle(event, self.now_s);
        assert_eq!(refusal, None);
        assert!(self.engine.state().are_trials_named(), "after {records:?}");
        assert!(self.engine.state().is_kept_up(), "after {records:?}");
        assert!(self.engine.is_kept_up(self.now_s), "after {records:?}");
        self.records.extend(records);
        for action in actions {
            if let Action::Solve { request, order } = action {
                self.order = Some((request, *order));
            } else {
                self.actions.push(action);
            }
        }
    }

    /// Answers with a plan: each task on a device, in this order.
    pub(crate) fn plan(&mut self, places: &[(&str, u32)]) {
        let places: Vec<_> = places.iter().map(|(name, device)| (*name, 0, *device)).collect();
        self.plan_on(&places);
    }

    /// The same for those tasks that the plan is asked about.
    pub(crate) fn plan_asked(&mut self, places: &[(&str, u32)]) {
        let (_, order) = self.order.as_ref().expect("a plan is asked for");
        let is_asked = |name: &str| order.problem.tasks.iter().any(|task| task.name == name);
        let asked: Vec<_> = places.iter().filter(|(name, _)| is_asked(name)).copied().collect();
        self.plan(&asked);
    }

    /// The same on several nodes: each task on a node's device.
    pub(crate) fn plan_on(&mut self, places: &[(&str, usize, u32)]) {
        let (request, order) = self.order.take().expect("a plan is asked for");
        let problem = &order.problem;
        let assignments = (0_u32..).zip(places).map(|(number, (name, node, device))| Assignment {
            task: problem.tasks.iter().position(|task| task.name == *name).expect("it is asked"),
            strategy: 0,
            gang: vec![Placement { node: *node, devices: vec![*device] }],
            share: WHOLE,
            start_s: 1000.0 * f64::from(number),
            end_s: 1000.0 * f64::from(number + 1),
        });
        let plan = Plan::of(problem, order.objective, assignments.collect());
        let plan = Plan { status: PlanStatus::Feasible, ..plan };
        let answer = SolveAnswer {
            plan,
            current_practice_s: None,
            practice_is_estimate: false,
            optimistic: None,
        };
        self.tell(Event::Solved { request, answer: Ok(answer) });
    }

    /// Another process goes on from the journal, perhaps on other machines.
    pub(crate) fn resume(&mut self, change: impl FnOnce(&mut Machines)) {
        self.resume_on(self.engine.state().cluster.clone(), change);
    }

    pub(crate) fn resume_on(&mut self, cluster: Cluster, change: impl FnOnce(&mut Machines)) {
        self.restore();
        self.resume_with(cluster, Vec::new(), change);
    }

    /// The engine is rebuilt from the journal.
    pub(crate) fn restore(&mut self) {
        let records = (0_u32..).zip(&self.records);
        let records = records.map(|(number, record)| (record, f64::from(number)));
        self.engine = Engine::restore(records).expect("it has begun");
        self.order = None;
    }

    /// A restored run goes on, with attempts that live.
    pub(crate) fn resume_with(
        &mut self,
        cluster: Cluster,
        living: Vec<AttemptId>,
        change: impl FnOnce(&mut Machines),
    ) {
        let mut machines = self.engine.state().config.machines();
        change(&mut machines);
        self.tell(Event::Resume { cluster, device_memory_bytes: None, machines, living });
        self.tell(Event::Tick);
    }

    pub(crate) fn cancel(&mut self, name: &str) {
        self.tell(Event::Command { command: Command::Cancel { task: name.to_owned(), by: None } });
    }

    pub(crate) fn judge(&mut self, tasks: &[(&str, u64)], ruling: Ruling) {
        let judgement = Judgement {
            step: 0,
            values: Metrics::new(),
            ruling: Some(ruling),
            reason: String::new(),
        };
        let judgements = tasks.iter().map(|(name, _)| NamedJudgement {
            task: (*name).to_owned(),
            judgement: judgement.clone(),
        });
        let judgements = judgements.collect();
        self.tell(Event::Command { command: Command::Judge { judgements } });
    }

    /// The tasks that train.
    pub(crate) fn training(&self) -> Vec<&str> {
        let state = self.engine.state();
        state.running().map(|(task, _)| state.name(task)).collect()
    }

    /// A task that trains has done all of its steps.
    pub(crate) fn finish(&mut self, name: &str) {
        let state = self.engine.state();
        let task = state.task_named(name).expect("it is there");
        let (attempt, _) = state.attempt_of(task).expect("it trains");
        let step = state.task(task).steps.expect("it says so");
        self.say(attempt, RankReport::Finished { step, loss: None });
        self.gone(attempt, 0);
    }

    pub(crate) fn live(&self, purpose: Purpose) -> Vec<AttemptId> {
        let live = self.engine.state().attempts.iter();
        live.filter(|(_, one)| one.purpose == purpose).map(|(id, _)| *id).collect()
    }

    /// The trials that run: task and device count.
    pub(crate) fn trials(&self) -> Vec<(usize, u32)> {
        let live = self.engine.state().attempts.values();
        let trials = live.filter(|one| one.purpose == Purpose::Trial);
        trials.map(|one| (one.task.0, one.strategy.gpus)).collect()
    }

    pub(crate) fn say(&mut self, attempt: AttemptId, report: RankReport) {
        self.tell(Event::Reported { attempt, rank: 0, report });
    }

    pub(crate) fn gone(&mut self, attempt: AttemptId, code: i32) {
        for rank in 0..self.engine.state().attempts[&attempt].live_ranks {
            let last_words = String::new();
            self.tell(Event::RankExited { attempt, rank, code, last_words });
        }
    }

    pub(crate) fn measured(&mut self, attempt: AttemptId, peak_memory_bytes: u64) {
        let outcome = TrialOutcome::Measured {
            step_s: 1.0,
            setup_s: 1.0,
            checkpoint_s: None,
            peak_memory_bytes,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: None,
            evaluation_s: None,
            timed_steps: 2,
        };
        self.say(attempt, RankReport::Trial { knobs: Knobs::new(), outcome, step: None });
        self.gone(attempt, 0);
    }

    pub(crate) fn end_of(&self, task: usize) -> Option<TaskEnd> {
        match &self.engine.state().task(TaskId(task)).status {
            TaskStatus::Ended(end) => Some(end.clone()),
            _ => None,
        }
    }
}

/// Each step takes a second: a task takes 100 of them, `long…` ten times as many.
pub(crate) fn task(name: &str, gpus: u32) -> NewTask {
    let steps = if name.starts_with("long") { 1000 } else { 100 };
    let spec = TaskSpec { steps: Some(steps), gpu_range: Some(vec![gpus]), ..spec(name) };
    NewTask { spec, after: Vec::new() }
}

pub(crate) fn inspection(bytes: u64, least: u64) -> Inspection {
    let can_run = Finding::CanRun { least_memory_bytes: Some(least), knob_sets: 1 };
    let verdict = |gpus| Verdict {
        technique: "ddp".to_owned(),
        gpus,
        gpu_type: "a".to_owned(),
        finding: can_run.clone(),
    };
    Inspection {
        parameters: bytes / 4,
        parameter_bytes: bytes,
        trainable_bytes: bytes,
        layers: None,
        checkpoint_bytes: 3 * bytes,
        optimizer_state_ratio: 2.0,
        batches_per_epoch: None,
        verdicts: vec![verdict(1), verdict(2)],
    }
}
