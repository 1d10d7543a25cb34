//! A cluster that exists only in a test: it performs the engine's actions on a clock of its own,
//! injects faults from a seed, and checks the engine's invariants at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::{
    Assignment, Candidate, Cluster, Gang, Knobs, Node, Objective, Plan, Problem, TrialOutcome,
    WHOLE,
};
use saturn_engine::{
    Action, AttemptId, Decision, DeviceKind, Engine, Event, FailureKind, Level, Mode, Phase,
    Policy, Purpose, RankReport, Record, RunConfig, RunEnd, SolveAnswer, State, TaskId, TaskSpec,
    TaskStatus, TechniqueRef,
};
use saturn_solver::{FrozenClock, Options, solve};

/// What may go wrong, as probabilities an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// A rank dies while training.
    pub(crate) death: f64,
    /// A rank runs out of memory.
    pub(crate) out_of_memory: f64,
    /// An attempt falls silent.
    pub(crate) hang: f64,
    /// The task's own code raises.
    pub(crate) task_error: f64,
    /// The driver dies, at each event.
    pub(crate) driver_crash: f64,
}

#[derive(Debug)]
struct LiveGang {
    task: TaskId,
    gang: Gang,
    ranks: BTreeSet<u32>,
    saved_step: u64,
    is_silent: bool,
}

/// The cluster, its clock, and everything that the engine has journaled.
pub(crate) struct VirtualCluster {
    pub(crate) engine: Engine,
    pub(crate) journal: Vec<(Record, f64)>,
    pub(crate) now_s: f64,
    /// Step of each task's newest checkpoint on the virtual disk.
    pub(crate) disk: BTreeMap<TaskId, u64>,
    /// Solves from this one on are answered by the real solver, earlier ones by a poor plan.
    pub(crate) solves_well_from: u64,
    /// Seconds that a checkpoint is said to take.
    pub(crate) save_s: f64,
    events: BTreeMap<(u64, u64), Event>,
    num_events: u64,
    live: BTreeMap<AttemptId, LiveGang>,
    rng: Xoshiro256PlusPlus,
    faults: Faults,
}

/// A workload of `num_tasks` tasks of 100 steps on one node.
pub(crate) fn config(num_tasks: usize, gpus: u32) -> RunConfig {
    let technique = |name: &str| TechniqueRef {
        name: name.to_owned(),
        level: Level::Managed,
        import: Some(format!("saturn.techniques.{name}:T")),
        pickle: None,
    };
    RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        cluster: Cluster { nodes: vec![Node::new("n0", gpus, "cpu")] },
        device_memory_bytes: None,
        techniques: vec![technique("ddp"), technique("fsdp")],
        tasks: (0..num_tasks)
            .map(|index| TaskSpec {
                name: format!("t{index}"),
                dir: format!("tasks/t{index}"),
                steps: Some(100),
                epochs: None,
                batches_a_step: NonZeroU64::MIN,
                gpu_range: None,
                profile_key: format!("group {}", index / 3),
                measured: Vec::new(),
            })
            .collect(),
        policy: Policy { interval_s: 20.0, stall_s: 60.0, ..Policy::default() },
    }
}

impl VirtualCluster {
    pub(crate) fn new(config: RunConfig, faults: Faults, seed: u64) -> Self {
        let mut cluster = Self {
            engine: Engine::new(config),
            journal: Vec::new(),
            now_s: 0.0,
            disk: BTreeMap::new(),
            solves_well_from: u64::MAX,
            save_s: 0.1,
            events: BTreeMap::new(),
            num_events: 0,
            live: BTreeMap::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            faults,
        };
        cluster.schedule(0.0, Event::Begin);
        cluster.schedule(0.0, Event::Tick);
        cluster
    }

    pub(crate) fn state(&self) -> &State {
        self.engine.state()
    }

    /// Runs to the end of the run; panics where it takes longer than any run could.
    pub(crate) fn run(&mut self) -> RunEnd {
        for _ in 0..200_000 {
            if let Phase::Ended(end) = self.state().phase() {
                assert!(self.live.is_empty(), "processes outlive the run");
                return end;
            }
            self.step();
        }
        panic!("the run does not end: {:?}", self.state());
    }

    /// Delivers the next event, or a tick where the engine wants one earlier.
    pub(crate) fn step(&mut self) {
        let next = self.events.keys().next().copied();
        let next_s = next.map(|(at_us, _)| at_us as f64 * 1e-6);
        let tick_s = self.engine.next_tick_s();
        let event = match (next, next_s, tick_s) {
            (_, Some(next_s), Some(tick_s)) if tick_s.max(self.now_s + 0.05) < next_s => {
                // As the real driver, which looks every now and then: never twice at one moment.
                self.now_s = tick_s.max(self.now_s + 0.05);
                Event::Tick
            }
            (Some(key), Some(next_s), _) => {
                self.now_s = next_s.max(self.now_s);
                self.events.remove(&key).expect("it was just there")
            }
            (_, _, Some(tick_s)) => {
                self.now_s = tick_s.max(self.now_s + 0.05);
                Event::Tick
            }
            _ => panic!("nothing will ever happen again: {:?}", self.state()),
        };
        if !self.journal.is_empty() && self.is_unlucky(self.faults.driver_crash) {
            self.crash();
            return;
        }
        self.deliver(event);
    }

    /// Gives the engine an event now.
    pub(crate) fn deliver(&mut self, event: Event) {
        if let Event::RankExited { attempt, rank, .. } = &event
            && let Some(gang) = self.live.get_mut(attempt)
        {
            gang.ranks.remove(rank);
            if gang.ranks.is_empty() {
                self.live.remove(attempt);
            }
        }
        if let Event::Reported { attempt, report: RankReport::Checkpoint { step, .. }, .. } = &event
            && let Some(gang) = self.live.get_mut(attempt)
        {
            gang.saved_step = *step;
            self.disk.insert(gang.task, *step);
        }
        let Decision { records, actions } = self.engine.handle(event, self.now_s);
        self.journal.extend(records.into_iter().map(|record| (record, self.now_s)));
        for action in actions {
            self.perform(action);
        }
        self.check_invariants();
    }

    /// The driver dies with all its workers, and another takes the run over from the journal.
    pub(crate) fn crash(&mut self) {
        let gpus = self.state().config.cluster.num_gpus();
        self.shrink_to(gpus);
    }

    /// The same, on a pool of another size.
    pub(crate) fn shrink_to(&mut self, gpus: u32) {
        self.events.clear();
        self.live.clear();
        let records = self.journal.iter().map(|(record, at_s)| (record, *at_s));
        self.engine = Engine::restore(records).expect("the journal begins with the beginning");
        let mut cluster = self.state().config.cluster.clone();
        cluster.nodes[0].gpus = gpus;
        let device_memory_bytes = self.state().config.device_memory_bytes;
        self.deliver(Event::Resume { cluster, device_memory_bytes });
        self.deliver(Event::Tick);
    }

    fn schedule(&mut self, at_s: f64, event: Event) {
        self.num_events += 1;
        self.events.insert(((at_s * 1e6) as u64, self.num_events), event);
    }

    fn is_unlucky(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random::<f64>() < probability
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Launch { attempt, task, purpose, strategy, gang, steps, until_step } => {
                let ranks = 0..strategy.gpus;
                for device in gang.iter().flat_map(|placement| &placement.devices) {
                    let is_taken = self.live.values().any(|other| {
                        other.gang.iter().any(|placement| placement.devices.contains(device))
                    });
                    assert!(!is_taken, "device {device} is given to two gangs");
                }
                let live = LiveGang {
                    task,
                    gang,
                    ranks: ranks.collect(),
                    saved_step: self.disk.get(&task).copied().unwrap_or(0),
                    is_silent: false,
                };
                self.live.insert(attempt, live);
                match purpose {
                    Purpose::Trial(_) => self.run_trial(attempt, task, strategy.gpus),
                    Purpose::Train => {
                        self.train(attempt, strategy.gpus, steps.expect("known"), until_step);
                    }
                }
            }
            Action::Stop { attempt } => self.stop(attempt),
            Action::Kill { attempt } => self.end_ranks(attempt, self.now_s + 0.1, -9),
            Action::Solve { request, problem, max_switches, warm_start } => {
                let plan = if request >= self.solves_well_from {
                    let options = Options {
                        max_moves: Some(2000),
                        threads: 1,
                        max_switches,
                        warm_start,
                        ..Options::default()
                    };
                    solve(&problem, &options, &FrozenClock).expect("a valid problem")
                } else {
                    one_by_one(&problem, max_switches > 0)
                };
                let answer = SolveAnswer { plan, current_practice_s: None };
                let event = Event::Solved { request, answer: Ok(answer) };
                self.schedule(self.now_s + 0.5, event);
            }
        }
    }

    fn run_trial(&mut self, attempt: AttemptId, task: TaskId, gpus: u32) {
        if self.fail(attempt, self.now_s + 0.7, gpus) {
            return;
        }
        let outcome = TrialOutcome::Measured {
            step_s: true_step_s(task, gpus) * (0.9 + 0.2 * self.rng.random::<f64>()),
            setup_s: 0.5,
            checkpoint_s: Some(self.save_s),
            peak_memory_bytes: 1 << 20,
            timed_steps: 3,
            batches_per_epoch: Some(50),
        };
        let report = RankReport::Trial { knobs: Knobs::new(), outcome };
        self.schedule(self.now_s + 1.0, Event::Reported { attempt, rank: 0, report });
        self.end_ranks(attempt, self.now_s + 1.1, 0);
    }

    fn train(&mut self, attempt: AttemptId, gpus: u32, all_steps: u64, until_step: Option<u64>) {
        let steps = until_step.unwrap_or(all_steps);
        let from = self.live[&attempt].saved_step;
        let task = self.live[&attempt].task;
        let step_s = true_step_s(task, gpus);
        let begin_s = self.now_s + 0.5;
        let started = RankReport::Started { step: from, setup_s: 0.5 };
        self.schedule(begin_s, Event::Reported { attempt, rank: 0, report: started });
        let fails_after = begin_s + step_s * (1.0 + 30.0 * self.rng.random::<f64>());
        if self.is_unlucky(self.faults.hang) {
            self.live.get_mut(&attempt).expect("just launched").is_silent = true;
            return;
        }
        let fails = self.fail(attempt, fails_after, gpus);
        // A worker whose newest checkpoint is already there trains nothing.
        let steps = steps.max(from);
        for step in (from + 1)..=steps {
            let at_s = begin_s + step_s * (step - from) as f64;
            if fails && at_s >= fails_after {
                return;
            }
            let progress = RankReport::Progress { step, loss: Some(1.0), step_s: Some(step_s) };
            self.schedule(at_s, Event::Reported { attempt, rank: 0, report: progress });
            if step % 20 == 0 || step == steps {
                let saved =
                    RankReport::Checkpoint { step, save_s: self.save_s, blocked_s: self.save_s };
                self.schedule(at_s, Event::Reported { attempt, rank: 0, report: saved });
            }
        }
        let end_s = begin_s + step_s * (steps - from) as f64 + 0.1;
        let report = if steps < all_steps {
            RankReport::Stopped { step: steps }
        } else {
            RankReport::Finished { step: steps, loss: Some(0.5) }
        };
        self.schedule(end_s, Event::Reported { attempt, rank: 0, report });
        self.end_ranks(attempt, end_s + 0.1, 0);
    }

    /// Perhaps schedules a failure; whether it did.
    fn fail(&mut self, attempt: AttemptId, at_s: f64, gpus: u32) -> bool {
        let rank = self.rng.random_range(0..gpus);
        let kind = if self.is_unlucky(self.faults.out_of_memory) {
            FailureKind::OutOfMemory
        } else if self.is_unlucky(self.faults.task_error) {
            FailureKind::Task
        } else if self.is_unlucky(self.faults.death) {
            let last_words = String::new();
            self.schedule(at_s, Event::RankExited { attempt, rank, code: -11, last_words });
            return true;
        } else {
            return false;
        };
        // Its peers notice, and may be heard first.
        if gpus > 1 && self.rng.random::<bool>() {
            let echo = RankReport::Failed {
                kind: FailureKind::PeerLost,
                error: "connection closed by peer".to_owned(),
                traceback: String::new(),
            };
            let peer = (rank + 1) % gpus;
            self.schedule(at_s, Event::Reported { attempt, rank: peer, report: echo });
        }
        let (error, traceback) = (format!("{kind:?}"), "Traceback …".to_owned());
        let report = RankReport::Failed { kind, error, traceback };
        self.schedule(at_s, Event::Reported { attempt, rank, report });
        true
    }

    /// Honours a stop: drops what was still to come of the attempt.
    fn stop(&mut self, attempt: AttemptId) {
        if self.live.get(&attempt).is_none_or(|gang| gang.is_silent) {
            return;
        }
        let step = self.state().attempts[&attempt].step.max(self.live[&attempt].saved_step);
        self.forget_events_of(attempt);
        let saved = RankReport::Checkpoint { step, save_s: self.save_s, blocked_s: self.save_s };
        self.schedule(self.now_s + 0.3, Event::Reported { attempt, rank: 0, report: saved });
        let stopped = RankReport::Stopped { step };
        self.schedule(self.now_s + 0.3, Event::Reported { attempt, rank: 0, report: stopped });
        self.end_ranks(attempt, self.now_s + 0.4, 0);
    }

    /// All live ranks of an attempt end at `at_s`, and nothing else of it happens from then on.
    fn end_ranks(&mut self, attempt: AttemptId, at_s: f64, code: i32) {
        if code != 0 {
            self.forget_events_of(attempt);
        }
        let Some(gang) = self.live.get(&attempt) else { return };
        for rank in gang.ranks.clone() {
            let last_words = String::new();
            self.schedule(at_s, Event::RankExited { attempt, rank, code, last_words });
        }
    }

    fn forget_events_of(&mut self, gone: AttemptId) {
        self.events.retain(|_, event| {
            !matches!(event, Event::Reported { attempt, .. } | Event::RankExited { attempt, .. }
                if *attempt == gone)
        });
    }

    fn check_invariants(&self) {
        let state = self.state();
        let mut held = BTreeSet::new();
        let mut training = BTreeSet::new();
        for (_, attempt) in state.live_attempts() {
            for placement in &attempt.gang {
                for device in &placement.devices {
                    assert!(held.insert((placement.node, *device)), "{device} is held twice");
                }
            }
            if attempt.purpose == Purpose::Train {
                assert!(training.insert(attempt.task), "{:?} has two attempts", attempt.task);
            }
        }
        for task in state.task_ids() {
            let saved = self.disk.get(&task).copied().unwrap_or(0);
            assert_eq!(state.task(task).checkpoint_step, saved, "of {task:?}: the disk's truth");
            if let TaskStatus::Running(attempt) = state.task(task).status {
                assert!(state.attempts[&attempt].is_live());
            }
        }
    }
}

/// Seconds a step, in truth: each group has its speed, and devices help less and less.
fn true_step_s(task: TaskId, gpus: u32) -> f64 {
    0.1 * (1.0 + (task.0 / 3) as f64 * 0.5) / f64::from(gpus).powf(0.7)
}

/// A valid plan that needs no solver: each task under its first strategy, one after another. Where
/// tasks may be switched, two fifths of each, and then the rest of each under its last strategy.
fn one_by_one(problem: &Problem, may_switch: bool) -> Plan {
    let mut end_s = 0.0;
    let mut assignments = Vec::new();
    for is_second in [false, true] {
        for (task, spec) in problem.tasks.iter().enumerate() {
            let switch_cost_s = spec.switch_cost_s.filter(|_| may_switch);
            let (share, strategy, lost_s) = match (is_second, switch_cost_s) {
                (false, None) => (WHOLE, 0, 0.0),
                (false, Some(_)) => (0.4, 0, 0.0),
                (true, None) => continue,
                (true, Some(cost_s)) => (0.6, spec.strategies.len() - 1, cost_s),
            };
            let Candidate { gpus, runtime_s, .. } = spec.strategies[strategy];
            let gang = vec![saturn_core::Placement { node: 0, devices: (0..gpus).collect() }];
            let start_s = end_s;
            end_s += share * runtime_s + lost_s;
            assignments.push(Assignment { task, strategy, gang, share, start_s, end_s });
        }
    }
    Plan { lower_bound_s: end_s / 10.0, ..Plan::of(problem, Objective::Makespan, assignments) }
}
