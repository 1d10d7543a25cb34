//! What runs together fits the machine's own memory, and running out of it is not a device's fault.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use saturn_core::{
    Assignment, Cluster, Finding, Inspection, Knobs, Node, Placement, Plan, PlanStatus, Strategy,
    TrialOutcome, Verdict, WHOLE,
};
use saturn_engine::{
    Action, AttemptId, Command, Decision, DeviceKind, Engine, Event, FailureKind, Judgement, Level,
    Machines, Metrics, Mode, NamedJudgement, NewTask, Policy, Purpose, RankReport, Record, Ruling,
    RunConfig, SolveAnswer, SolveOrder, TaskEnd, TaskId, TaskSpec, TaskStatus, TechniqueRef,
};

use crate::specs::spec;

const GB: u64 = 1_000_000_000;
const DEVICES: u32 = 2;

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
    fn new(kind: DeviceKind, host_gb: u64, tasks: &[(&str, u64)], least_gb: u64) -> Self {
        Self::of(Mode::Search, kind, host_gb, tasks, least_gb)
    }

    fn of(
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
        self.tell(Event::Command { command: Command::Cancel { task: name.to_owned() } });
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
    fn trials(&self) -> Vec<(usize, u32)> {
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

#[test]
fn trials_wait_until_there_is_host_memory_for_them() {
    // Each device holds all of a training state: in host memory there are the weights alone.
    let mut run = Run::new(DeviceKind::Cuda, 10, &[("a", 6), ("b", 6), ("c", 3)], 24);
    assert_eq!(run.trials(), [(0, 1), (2, 1)], "b waits, though it came before c");
    let [first, second] = run.live(Purpose::Trial)[..] else { panic!("two run") };
    run.measured(second, 1);
    assert_eq!(run.trials(), [(0, 1)], "a device is free, and still no memory");
    run.measured(first, 1);
    assert_eq!(run.trials(), [(1, 1)]);
}

#[test]
fn what_devices_do_not_hold_lies_in_host_memory() {
    // 4 times the weights train; each device has 1 GB of that.
    let run = Run::new(DeviceKind::Cuda, 20, &[("a", 4), ("b", 4)], 1);
    assert_eq!(run.trials(), [(0, 1)], "15 GB each");
    let run = Run::new(DeviceKind::Cuda, 30, &[("a", 4), ("b", 4)], 1);
    assert_eq!(run.trials(), [(0, 1), (1, 1)]);
}

#[test]
fn slots_hold_the_training_state_in_host_memory() {
    let run = Run::new(DeviceKind::Cpu, 20, &[("a", 3), ("b", 3)], 12);
    assert_eq!(run.trials(), [(0, 1)]);
    let run = Run::new(DeviceKind::Cpu, 24, &[("a", 3), ("b", 3)], 12);
    assert_eq!(run.trials(), [(0, 1), (1, 1)]);
}

#[test]
fn each_node_has_host_memory_of_its_own() {
    let tasks = [("a", 6), ("b", 6), ("c", 3)];
    let run = |nodes: &[u32]| Run::on((nodes, 1), Mode::Search, DeviceKind::Cuda, 10, &tasks, 24);
    assert_eq!(run(&[3]).trials(), [(0, 1), (2, 1)]);
    assert_eq!(run(&[1, 1]).trials(), [(0, 1), (1, 1)]);
    assert_eq!(run(&[2, 1]).trials(), [(0, 1), (1, 1), (2, 1)], "c beside a or b");
    assert_eq!(run(&[2, 2]).trials(), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn a_gang_on_two_nodes_takes_host_memory_of_both() {
    let run = |host_gb, nodes: &[u32]| {
        let slots = DeviceKind::Cpu;
        Run::on((nodes, 2), Mode::Orchestrate, slots, host_gb, &[("a", 3), ("b", 3)], 12)
    };
    assert_eq!(run(12, &[1, 1]).trials(), [(0, 2)], "12 GB on each");
    assert!(run(11, &[1, 1]).end_of(0).is_some());
    assert!(run(23, &[2]).end_of(0).is_some(), "24 GB on one");
    assert_eq!(run(24, &[2]).trials(), [(0, 2)]);
    assert_eq!(run(24, &[2, 2]).trials(), [(0, 2), (1, 2)]);
}

#[test]
fn a_model_keeps_its_size_when_a_wider_node_puts_its_inspection_in_doubt() {
    let tasks = [("a", 6), ("b", 6)];
    let mut run = Run::of(Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 24);
    run.judge(&tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(&tasks, Ruling::GoOn);
    run.plan(&[("a", 0), ("b", 1)]);
    assert_eq!(run.training(), ["a"]);
    run.tell(Event::NodeJoined {
        spec: Node::new("wide", DEVICES + 2, "a"),
        host_memory_bytes: None,
    });
    assert_eq!(
        run.training(),
        ["a"],
        "b still waits: its node has no more host memory than before"
    );
}

#[test]
fn the_limit_of_a_node_is_its_own_unless_the_user_gives_one() {
    let tasks = [("a", 6), ("b", 6), ("c", 6), ("d", 6)];
    let mut run = Run::of(Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 24);
    run.judge(&tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(&tasks, Ruling::GoOn);
    run.resume(|machines| {
        machines.host_memory_bytes = None;
        machines.host_memory_by_node = BTreeMap::from([("n0".to_owned(), 48 * GB)]);
    });
    let small =
        || Event::NodeJoined { spec: Node::new("n1", 2, "a"), host_memory_bytes: Some(8 * GB) };
    run.tell(small());
    let places = [("a", 0, 0), ("b", 0, 1), ("c", 1, 0), ("d", 1, 1)];
    run.plan_on(&places);
    assert_eq!(run.training(), ["a", "b", "c"], "12 of 48 GB, and 6 of 8");
    // The user's limit replaces the limit of each node.
    run.resume(|machines| machines.host_memory_bytes = Some(10 * GB));
    run.plan_on(&places);
    assert_eq!(run.training(), ["a", "c"]);
}

#[test]
fn a_strategy_that_no_node_was_large_enough_for_is_tried_when_a_larger_node_joins() {
    let slots = DeviceKind::Cpu;
    let mut run = Run::on((&[2, 2, 2], 1), Mode::Search, slots, 15, &[("other", 1)], 1);
    run.resume(|machines| {
        machines.host_memory_bytes = None;
        let each = (0..3).map(|node| (format!("n{node}"), 15 * GB));
        machines.host_memory_by_node = each.collect();
    });
    let [trial] = run.live(Purpose::Trial)[..] else { panic!("one runs") };
    run.measured(trial, 1); // on slots, an inspection waits for trials
    let mut new = task("wide", 1);
    new.spec.gpu_range = Some(vec![1, 2]);
    run.tell(Event::Command { command: Command::Submit { tasks: vec![new] } });
    let looked = |run: &Run| run.live(Purpose::Inspection).first().copied();
    while let Some(attempt) = looked(&run) {
        let inspection = Box::new(inspection(3 * GB, 12 * GB));
        run.say(attempt, RankReport::Inspected { inspection });
        run.gone(attempt, 0);
    }
    let wide = |run: &Run| run.trials().contains(&(1, 2));
    assert!(!wide(&run), "two ranks of a node hold 24 GB: {:?}", run.trials());
    let spec = Node::new("n3", 2, "a");
    run.tell(Event::NodeJoined { spec, host_memory_bytes: Some(48 * GB) });
    assert!(wide(&run), "{:?}", run.trials());
}

#[test]
fn a_model_too_large_for_the_host_is_told_in_one_line_and_the_others_go_on() {
    let tasks = [("huge", 12), ("small", 2)];
    let mut run = Run::of(Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 48);
    assert_eq!(run.trials(), [(1, 1)]);
    let Some(TaskEnd::Failed { error, .. }) = run.end_of(0) else { panic!("it can't be trained") };
    assert_eq!(
        error,
        "no technique can run it; ddp×1: it needs at least 12.0 GB of host memory, and a node allows \
         10.0 GB (host_memory)"
    );
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    assert_eq!(run.end_of(1), None);
}

#[test]
fn a_trial_that_the_kernel_kills_for_host_memory_is_not_out_of_device_memory() {
    for kind in [FailureKind::HostMemory, FailureKind::Killed] {
        let mut run = Run::new(DeviceKind::Cuda, 10, &[("a", 6)], 24);
        let mut times = 0;
        while let Some(trial) = run.live(Purpose::Trial).first().copied() {
            times += 1;
            let error = "killed".to_owned();
            let traceback = String::new();
            run.say(trial, RankReport::Failed { kind, error, traceback });
            run.gone(trial, -9);
        }
        assert!(times > 1, "once may be a passing shortage");
        let strategy = Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() };
        let trial = run.engine.state().trial_of(TaskId(0), &strategy, "a").expect("it was tried");
        assert!(matches!(trial.outcome, Some(TrialOutcome::Failed { .. })), "{:?}", trial.outcome);
    }
}
