//! A scripted run: five tasks on two devices, written as records of a journal. It has a trial that
//! raises, one that runs out of memory and one that does not apply. It also has a retry, a new
//! plan, and a task that is given up.

use std::num::NonZeroU64;

use saturn_core::{
    Finding, Gang, Inspection, Knobs, Node, Placement, PlanStatus, Strategy, TrialOutcome, Verdict,
};
use saturn_engine::{
    Allowed, AttemptEnd, AttemptId, DeviceKind, FailureKind, Level, Mode, NodeId, Place,
    PlanSource, Policy, Purpose, RankFailure, Record, RunConfig, RunEnd, RunPlan, State,
    StopReason, TaskEnd, TaskId, TaskSpec, TechniqueRef, TrialKey, Wishes, no_strategy,
};
use saturn_view::History;

pub(crate) const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"sweep.py\", line 12, in \
                             get_dataloader\n\traise ValueError(\"no <data> \u{1b}[31mhere\")\n\
                             ValueError: no <data> \u{1b}[31mhere";

pub(crate) fn strategy(technique: &str, gpus: u32) -> Strategy {
    Strategy { technique: technique.to_owned(), gpus, knobs: Knobs::new() }
}

pub(crate) fn gang(devices: &[u32]) -> Gang {
    vec![Placement { node: 0, devices: devices.to_vec() }]
}

pub(crate) fn task(name: &str, steps: u64, key: &str) -> TaskSpec {
    TaskSpec {
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
        owner: None,
    }
}

pub(crate) fn config() -> RunConfig {
    let technique = |name: &str| TechniqueRef {
        name: name.to_owned(),
        level: Level::Managed,
        import: Some(format!("saturn.techniques.{name}:{name}")),
        pickle: None,
    };
    RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: vec![technique("ddp"), technique("fsdp")],
        policy: Policy::default(),
    }
}

fn tasks() -> [TaskSpec; 5] {
    [
        task("gpt-b8-lr1e-3", 400, "gpt-b8"),
        task("gpt-b8-lr3e-3", 400, "gpt-b8"),
        task("vit-b32", 300, "vit-b32"),
        task("vit <b64>", 150, "vit-b64"),
        task("broken", 100, "broken"),
    ]
}

/// The inspection of a group's model: `fsdp` can't run `gpt-b8` on one device.
fn inspection(group: &str) -> Inspection {
    let verdicts = ["ddp", "fsdp"].into_iter().flat_map(|technique| {
        let is_refused = group == "gpt-b8" && technique == "fsdp";
        (1..=2).map(move |gpus| Verdict {
            technique: technique.to_owned(),
            gpus,
            gpu_type: "cpu".to_owned(),
            finding: if is_refused && gpus == 1 {
                Finding::NotApplicable { reason: "one device leaves nothing to split".to_owned() }
            } else {
                Finding::CanRun { least_memory_bytes: Some(200_000_000), knob_sets: 2 }
            },
        })
    });
    Inspection {
        parameters: 24_100_000,
        parameter_bytes: 96_400_000,
        trainable_bytes: 96_400_000,
        layers: Some(12),
        checkpoint_bytes: 289_200_000,
        optimizer_state_ratio: 2.0,
        batches_per_epoch: Some(56),
        verdicts: verdicts.collect(),
    }
}

/// A state, a history, and the records that they have applied, with times.
pub(crate) struct Script {
    pub(crate) state: State,
    pub(crate) history: History,
    pub(crate) told: Vec<(Record, f64)>,
    next_attempt: u64,
}

impl Script {
    /// A run that has begun, with these nodes and tasks.
    pub(crate) fn of(config: RunConfig, nodes: &[Node], tasks: &[TaskSpec]) -> Self {
        let mut script = Self {
            state: State::new(config.clone()),
            history: History::default(),
            told: Vec::new(),
            next_attempt: 1,
        };
        script.tell(0.0, Record::Began { config });
        for (node, spec) in nodes.iter().enumerate() {
            script.tell(
                0.0,
                Record::NodeJoined {
                    node: NodeId(node),
                    spec: spec.clone(),
                    host_memory_bytes: None,
                },
            );
        }
        for spec in tasks {
            script.add(0.0, spec.clone());
        }
        script
    }

    /// A closed run of five tasks on two CPU slots.
    pub(crate) fn new() -> Self {
        let mut script = Self::of(config(), &[Node::new("n0", 2, "cpu")], &tasks());
        script.tell(0.0, Record::Closed);
        script
    }

    pub(crate) fn add(&mut self, now_s: f64, spec: TaskSpec) -> TaskId {
        let task = TaskId(self.state.tasks.len());
        self.tell(now_s, Record::TaskAdded { task, spec });
        task
    }

    pub(crate) fn tell(&mut self, now_s: f64, record: Record) {
        self.state.apply(&record, now_s);
        self.history.record(&self.state, &record, now_s);
        self.told.push((record, now_s));
    }

    pub(crate) fn launch(
        &mut self,
        now_s: f64,
        task: usize,
        purpose: Purpose,
        strategy: Strategy,
        devices: &[u32],
    ) -> AttemptId {
        self.launch_on(now_s, task, purpose, strategy, gang(devices))
    }

    pub(crate) fn launch_on(
        &mut self,
        now_s: f64,
        task: usize,
        purpose: Purpose,
        strategy: Strategy,
        gang: Gang,
    ) -> AttemptId {
        let attempt = AttemptId(self.next_attempt);
        self.next_attempt += 1;
        let (task, until_step) = (TaskId(task), None);
        let launched = Record::Launched { attempt, task, purpose, strategy, gang, until_step };
        self.tell(now_s, launched);
        attempt
    }

    /// All open trials, by group, wide trials first.
    fn open_trials(&self) -> Vec<(usize, TrialKey)> {
        let mut open: Vec<(usize, TrialKey)> = self.state.open_trials().collect();
        open.sort_by_key(|(group, key)| (*group, std::cmp::Reverse(key.strategy.gpus)));
        open
    }

    fn launch_trial(&mut self, now_s: f64, group: usize, key: &TrialKey) -> AttemptId {
        let strategy = self.state.groups[group].trials[key].strategy.as_ref().clone();
        let devices: Vec<u32> = (0..strategy.gpus).collect();
        let task = self.state.groups[group].tasks[0];
        let mut nodes = self.state.present_nodes();
        let node = nodes.find(|node| self.state.gpu_type(*node) == key.gpu_type).unwrap().0;
        drop(nodes);
        let gang = vec![Placement { node, devices }];
        self.launch_on(now_s, task.0, Purpose::Trial, strategy, gang)
    }

    /// Inspects every model that needs it, at once.
    pub(crate) fn inspections(&mut self) {
        let at_s = self.state.now_s;
        for group in 0..self.state.groups.len() {
            if !self.state.is_to_inspect(group) {
                continue;
            }
            let key = self.state.groups[group].key.clone();
            let task = self.state.groups[group].tasks[0];
            let attempt =
                self.launch_on(at_s, task.0, Purpose::Inspection, no_strategy(), Vec::new());
            self.tell(at_s, Record::Inspected { inspection: inspection(&key), group: key });
            let end = AttemptEnd::Finished;
            self.tell(at_s, Record::Ended { attempt, end, step: 0, step_s: None });
        }
    }

    /// Runs all trials, from 1 s to 17 s, and gives up the task that can't run.
    pub(crate) fn trials(&mut self) {
        self.some_trials(usize::MAX);
        let end = TaskEnd::Failed {
            error: "no technique can run it; ddp×1: ValueError: no <data> \u{1b}[31mhere"
                .to_owned(),
            traceback: TRACEBACK.to_owned(),
        };
        self.tell(17.0, Record::TaskEnded { task: TaskId(4), end });
    }

    /// Runs the first `number` trials, one a second. If more are left, the next is launched.
    pub(crate) fn some_trials(&mut self, number: usize) {
        self.inspections();
        let mut from_s = self.state.now_s.floor() + 1.0;
        for (group, key) in self.open_trials().into_iter().take(number) {
            self.trial(from_s, group, &key);
            from_s += 1.0;
        }
        if let Some((group, key)) = self.open_trials().first() {
            self.launch_trial(from_s, *group, key);
        }
    }

    fn trial(&mut self, from_s: f64, group: usize, key: &TrialKey) {
        let name = self.state.groups[group].key.clone();
        let strategy = self.state.groups[group].trials[key].strategy.as_ref().clone();
        let speed = f64::from(strategy.gpus).sqrt();
        let outcome = match (name.as_str(), strategy.technique.as_str()) {
            ("broken", _) => TrialOutcome::Failed {
                error: "ValueError: no <data> \u{1b}[31mhere".to_owned(),
                traceback: TRACEBACK.to_owned(),
            },
            ("vit-b32", "fsdp") if strategy.gpus == 2 => {
                TrialOutcome::NotApplicable { reason: "no layer to wrap".to_owned() }
            }
            ("vit-b64", "fsdp") if strategy.gpus == 1 => TrialOutcome::OutOfMemory {
                detail: "DefaultCPUAllocator: can't allocate memory: you tried to allocate \
                         4096 bytes"
                    .to_owned(),
            },
            (name, technique) => TrialOutcome::Measured {
                step_s: if name.starts_with("gpt") { 0.05 } else { 0.03 } / speed
                    * if key.gpu_type == "H100" { 0.6 } else { 1.0 }
                    * if technique == "fsdp" { 1.2 } else { 1.0 },
                setup_s: 0.5,
                checkpoint_s: Some(0.4),
                peak_memory_bytes: 412_000_000,
                timed_steps: 3,
                relative_error: None,
                warmup_s: None,
                variation: None,
                batches_per_epoch: Some(56),
                evaluation_s: None,
            },
        };
        let attempt = self.launch_trial(from_s, group, key);
        let to_s = from_s + 0.9;
        let gpu_type = key.gpu_type.clone();
        self.tell(to_s, Record::Tried { group: name, gpu_type, strategy, outcome });
        let end = AttemptEnd::Finished;
        self.tell(to_s, Record::Ended { attempt, end, step: 0, step_s: None });
    }

    /// Adopts the first plan, at 17.4 s.
    pub(crate) fn plan(&mut self) {
        let place = |task: usize, technique: &str, devices: &[u32], start: f64, end: f64| Place {
            task: TaskId(task),
            strategy: strategy(technique, u32::try_from(devices.len()).unwrap()).into(),
            gang: gang(devices).into(),
            share: saturn_core::WHOLE,
            until_step: None,
            is_estimate: task == 3,
            start_s: 17.4 + start,
            end_s: 17.4 + end,
        };
        let plan = RunPlan {
            at_s: 17.4,
            source: PlanSource::Solver,
            status: PlanStatus::Feasible,
            makespan_s: 30.0,
            lower_bound_s: 29.1,
            solve_s: 0.4,
            practice_is_estimate: false,
            current_practice_s: Some(41.2),
            instead_of_s: None,
            places: vec![
                place(0, "ddp", &[0], 0.0, 20.5),
                place(1, "ddp", &[1], 0.0, 20.5),
                place(2, "ddp", &[0], 20.5, 30.0),
                place(3, "ddp", &[1], 20.5, 25.5),
            ],
        };
        self.tell(17.4, Record::Planned { plan: plan.into() });
    }

    /// Trains up to 30 s: the first task runs, and the second fails once and is tried again.
    pub(crate) fn first_training(&mut self) {
        let first = self.launch(17.4, 0, Purpose::Train, strategy("ddp", 1), &[0]);
        let second = self.launch(17.4, 1, Purpose::Train, strategy("ddp", 1), &[1]);
        self.tell(17.9, Record::Started { attempt: first, step: 0, setup_s: 0.5 });
        self.tell(17.9, Record::Started { attempt: second, step: 0, setup_s: 0.5 });
        let text = "the loader is iterable: resuming reads 0 batches again".to_owned();
        self.tell(18.0, Record::Noted { task: Some(TaskId(0)), text });
        self.tell(
            23.0,
            Record::Checkpointed {
                attempt: second,
                step: 100,
                save_s: 0.5,
                blocked_s: 0.5,
                loss: None,
            },
        );
        let failure = RankFailure {
            rank: 0,
            kind: FailureKind::Died,
            error: "rank 0 was killed by signal 9".to_owned(),
            traceback: String::new(),
        };
        self.tell(
            24.0,
            Record::Ended {
                attempt: second,
                end: AttemptEnd::Failed { failure },
                step: 100,
                step_s: None,
            },
        );
        self.tell(24.0, Record::Retrying { task: TaskId(1), not_before_s: 25.0, counts: true });
        let again = self.launch(25.0, 1, Purpose::Train, strategy("ddp", 1), &[1]);
        self.tell(25.5, Record::Started { attempt: again, step: 100, setup_s: 0.5 });
        self.tell(29.0, Record::PlanKept { time_left_s: 22.0, best_s: 21.4 });
        self.report(again, 160, 2.91, 0.05, 29.9);
        self.report(first, 238, 2.31, 0.05, 29.9);
    }

    /// Applies a worker's progress, as the engine does.
    pub(crate) fn report(
        &mut self,
        attempt: AttemptId,
        step: u64,
        loss: f64,
        step_s: f64,
        now_s: f64,
    ) {
        self.state.observe(attempt, step, Some(loss), Some(step_s), now_s);
    }

    /// Goes from 30 s to the end: the first task ends, a new plan moves the second, and all others
    /// train.
    pub(crate) fn rest(&mut self) {
        let (first, again) = (AttemptId(self.next_attempt - 3), AttemptId(self.next_attempt - 1));
        self.end(first, 400, 2.104, 38.1);
        let mut plan = RunPlan::clone(&self.history.plans[0]);
        plan.at_s = 38.2;
        plan.makespan_s = 15.2;
        plan.lower_bound_s = 15.2;
        plan.status = PlanStatus::Optimal;
        plan.current_practice_s = None;
        plan.instead_of_s = Some(17.1);
        plan.places = vec![
            Place {
                task: TaskId(1),
                strategy: strategy("ddp", 2).into(),
                gang: gang(&[0, 1]).into(),
                share: saturn_core::WHOLE,
                until_step: None,
                is_estimate: false,
                start_s: 38.2,
                end_s: 44.0,
            },
            Place { start_s: 44.0, end_s: 53.4, ..self.history.plans[0].places[2].clone() },
            Place { start_s: 44.0, end_s: 49.0, ..self.history.plans[0].places[3].clone() },
        ];
        self.tell(38.2, Record::Planned { plan: plan.into() });
        self.tell(38.2, Record::Stopping { attempt: again, reason: StopReason::Replan });
        self.tell(
            38.5,
            Record::Ended { attempt: again, end: AttemptEnd::Stopped, step: 340, step_s: None },
        );
        let moved = self.launch(38.5, 1, Purpose::Train, strategy("ddp", 2), &[0, 1]);
        self.tell(39.1, Record::Started { attempt: moved, step: 340, setup_s: 0.6 });
        self.end(moved, 400, 1.987, 42.0);
        let third = self.launch(42.0, 2, Purpose::Train, strategy("ddp", 1), &[0]);
        let fourth = self.launch(42.0, 3, Purpose::Train, strategy("ddp", 1), &[1]);
        self.tell(42.5, Record::Started { attempt: third, step: 0, setup_s: 0.5 });
        self.tell(42.5, Record::Started { attempt: fourth, step: 0, setup_s: 0.5 });
        self.end(fourth, 150, 0.1423, 47.4);
        self.end(third, 300, 0.051, 51.4);
        self.tell(51.4, Record::RunEnded { end: RunEnd::Complete });
    }

    pub(crate) fn end(&mut self, attempt: AttemptId, step: u64, loss: f64, now_s: f64) {
        let task = self.state.attempts[&attempt].task;
        let end = AttemptEnd::Finished;
        self.tell(now_s, Record::Ended { attempt, end, step, step_s: None });
        self.tell(now_s, Record::TaskEnded { task, end: TaskEnd::Done { loss: Some(loss) } });
    }

    /// A person asks the run to stop, at 30 s.
    pub(crate) fn ask_to_stop(&mut self) {
        self.tell(30.0, Record::Interrupted { at_once: false });
        let live: Vec<AttemptId> = self.state.attempts.keys().copied().collect();
        for attempt in live {
            self.tell(30.0, Record::Stopping { attempt, reason: StopReason::Interrupt });
        }
    }

    /// The same, and everything stops at checkpoints.
    pub(crate) fn interrupt(&mut self) {
        self.ask_to_stop();
        let live: Vec<AttemptId> = self.state.attempts.keys().copied().collect();
        for attempt in live {
            let step = self.state.attempts[&attempt].step;
            let end = AttemptEnd::Stopped;
            self.tell(30.4, Record::Ended { attempt, end, step, step_s: None });
        }
        self.tell(30.4, Record::RunEnded { end: RunEnd::Interrupted });
    }
}
