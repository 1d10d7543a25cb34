//! A run whose models are inspected, told event by event.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{Cluster, Finding, Inspection, Node, TrialOutcome, Verdict};
use saturn_engine::{
    Action, AttemptId, Command, Decision, DeviceKind, Engine, Event, FailureKind, Level, Mode,
    NewTask, Policy, Purpose, RankReport, Record, RunConfig, State, TaskEnd, TaskSpec,
    TechniqueRef,
};

use crate::specs::spec;

pub(crate) const DEVICES: u32 = 2;

pub(crate) fn technique(name: &str, level: Level) -> TechniqueRef {
    TechniqueRef { name: name.to_owned(), level, import: None, pickle: None }
}

pub(crate) fn config(mode: Mode, techniques: &[(&str, Level)]) -> RunConfig {
    RunConfig {
        mode,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: techniques.iter().map(|(name, level)| technique(name, *level)).collect(),
        policy: Policy::default(),
    }
}

pub(crate) const BOTH: &[(&str, Level)] = &[("ddp", Level::Managed), ("fsdp", Level::Managed)];

pub(crate) fn pool() -> Cluster {
    Cluster { nodes: vec![Node::new("n0", DEVICES, "cpu")] }
}

pub(crate) fn task(name: &str, key: &str) -> NewTask {
    let spec = TaskSpec { steps: Some(100), profile_key: key.to_owned(), ..spec(name) };
    NewTask { spec, after: Vec::new() }
}

/// `fsdp` on one device can't run; on two it is too large.
pub(crate) fn inspection() -> Inspection {
    let verdict = |technique: &str, gpus, finding| Verdict {
        technique: technique.to_owned(),
        gpus,
        gpu_type: "cpu".to_owned(),
        finding,
    };
    let can_run = Finding::CanRun { least_memory_bytes: None, knob_sets: 1 };
    Inspection {
        parameters: 10,
        parameter_bytes: 40,
        trainable_bytes: 40,
        layers: Some(2),
        checkpoint_bytes: 120,
        optimizer_state_ratio: 2.0,
        batches_per_epoch: Some(7),
        verdicts: vec![
            verdict("ddp", 1, can_run.clone()),
            verdict("ddp", 2, can_run),
            verdict("fsdp", 1, Finding::NotApplicable { reason: "nothing to split".to_owned() }),
            verdict("fsdp", 2, Finding::OutOfMemory { detail: "needs 9 GB".to_owned() }),
        ],
    }
}

/// An engine, and all that it has stored.
pub(crate) struct Run {
    pub(crate) engine: Engine,
    pub(crate) journal: Vec<(Record, f64)>,
    pub(crate) now_s: f64,
}

impl Run {
    pub(crate) fn new(config: RunConfig, tasks: Vec<NewTask>) -> Self {
        let mut run = Self::open(config);
        run.tell(Event::Command { command: Command::Submit { tasks } });
        run.tell(Event::Command { command: Command::Close });
        run
    }

    /// One to which tasks may come.
    pub(crate) fn open(config: RunConfig) -> Self {
        let mut run = Self { engine: Engine::new(config), journal: Vec::new(), now_s: 0.0 };
        run.tell(Event::Begin { cluster: pool() });
        run
    }

    pub(crate) fn tell(&mut self, event: Event) -> Vec<Action> {
        self.now_s += 1.0;
        let Decision { records, actions, refusal } = self.engine.handle(event, self.now_s);
        assert_eq!(refusal, None);
        self.journal.extend(records.into_iter().map(|record| (record, self.now_s)));
        actions
    }

    pub(crate) fn state(&self) -> &State {
        self.engine.state()
    }

    pub(crate) fn live(&self, purpose: Purpose) -> Vec<AttemptId> {
        let live = self.state().attempts.iter();
        live.filter(|(_, one)| one.purpose == purpose).map(|(id, _)| *id).collect()
    }

    pub(crate) fn only(&self, purpose: Purpose) -> AttemptId {
        let live = self.live(purpose);
        assert_eq!(live.len(), 1, "{:?}", self.state().attempts);
        live[0]
    }

    pub(crate) fn say(&mut self, attempt: AttemptId, report: RankReport) {
        self.tell(Event::Reported { attempt, rank: 0, report });
    }

    pub(crate) fn gone(&mut self, attempt: AttemptId, code: i32) {
        let ranks = self.state().attempts[&attempt].live_ranks;
        for rank in 0..ranks {
            let last_words = String::new();
            self.tell(Event::RankExited { attempt, rank, code, last_words });
        }
    }

    /// An inspection finds what it finds, and ends.
    pub(crate) fn find(&mut self, attempt: AttemptId) {
        self.say(attempt, RankReport::Inspected { inspection: Box::new(inspection()) });
        self.gone(attempt, 0);
    }

    /// A rank fails and its gang is gone.
    pub(crate) fn fail(&mut self, attempt: AttemptId, kind: FailureKind) {
        let (error, traceback) = ("no <data>".to_owned(), "Traceback …".to_owned());
        self.say(attempt, RankReport::Failed { kind, error, traceback });
        self.gone(attempt, 1);
    }

    pub(crate) fn errors(&self) -> Vec<(String, String)> {
        let ends = self.journal.iter().filter_map(|(record, _)| match record {
            Record::TaskEnded { end: TaskEnd::Failed { error, traceback }, .. } => {
                Some((error.clone(), traceback.clone()))
            }
            _ => None,
        });
        ends.collect()
    }

    /// Another driver goes on from the journal.
    pub(crate) fn resume(&mut self, device_memory_bytes: Option<u64>) {
        let records = self.journal.iter().map(|(record, at_s)| (record, *at_s));
        self.engine = Engine::restore(records).expect("it has begun");
        let machines = self.engine.state().config.machines();
        self.tell(Event::Resume {
            cluster: pool(),
            device_memory_bytes,
            machines,
            living: Vec::new(),
        });
        self.tell(Event::Tick);
    }
}

pub(crate) fn outcome<'a>(
    state: &'a State,
    technique: &str,
    gpus: u32,
) -> Option<&'a TrialOutcome> {
    let group = &state.groups[0];
    let (_, trial) = group
        .trials
        .iter()
        .find(|(key, _)| key.strategy.technique == technique && key.strategy.gpus == gpus)?;
    trial.outcome.as_ref()
}
