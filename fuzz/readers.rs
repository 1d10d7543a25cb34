//! What is done with the text that a fuzzer makes up, one function for each reader of files and
//! messages, and one that solves. `saturn-cli` compiles this file among its tests and reads
//! `fuzz/seeds` with it, so that the functions keep up with what they call.

use std::collections::BTreeMap;

use saturn_core::{Cluster, Node, PlanStatus, Problem, Profile, check};
use saturn_engine::migrate::migrate_v1;
use saturn_engine::{
    AttemptId, Command, DeviceKind, Engine, Event, Level, Machines, Mode, NewTask, Policy,
    RankReport, Record, RunConfig, TechniqueRef,
};
use saturn_runtime::RunRequest;
use saturn_runtime::control::Request;
use saturn_solver::{Backend, FrozenClock, Objective, Options, SolveError, solve};

#[path = "problems.rs"]
mod problems;

/// What people ask of a run, one command a line: done, or refused in words.
pub fn command(text: &str) {
    let mut engine = begun(Vec::new());
    for (index, line) in text.lines().enumerate() {
        if let Ok(command) = serde_json::from_str::<Command>(line) {
            engine.handle(Event::Command { command }, index as f64);
        }
    }
}

/// Lines on the control socket of a run: a request, or words that say why not.
pub fn control_line(line: &str) {
    if let Err(error) = Request::from_line(line) {
        assert!(!error.reason.is_empty());
    }
}

/// A journal's records, one a line: whatever can be read is folded, and the run goes on.
pub fn journal(text: &str) {
    let records: Vec<Record> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let timed = records.iter().enumerate().map(|(index, record)| (record, index as f64));
    if let Some(mut engine) = Engine::restore(timed) {
        let machines = Machines {
            device_kind: DeviceKind::Cpu,
            host_memory_bytes: None,
            host_memory_by_node: BTreeMap::new(),
            pool_may_grow: true,
            hardware: BTreeMap::new(),
        };
        let resume = Event::Resume {
            cluster: cluster(),
            device_memory_bytes: None,
            machines,
            living: Vec::new(),
        };
        engine.handle(resume, 1e6);
        engine.handle(Event::Tick, 1e6 + 1.0);
    }
}

/// A journal of version 1, one row a line: translated, or refused in words.
pub fn journal_v1(text: &str) {
    let rows = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    if let Ok(records) = migrate_v1(rows.map(|row| (row, 0.0))) {
        let _ = Engine::restore(records.iter().map(|(record, at_s)| (record, *at_s)));
    }
}

/// Losses as ranks write them, one point a line, torn where they were killed: read, never a panic.
pub fn metrics(bytes: &[u8]) {
    let found = saturn_view::read_metrics(bytes).unwrap_or_default();
    assert!(found.losses.is_sorted_by(|one, next| one.0 < next.0), "{:?}", found.losses);
}

/// A small problem, read as text or made of the bytes ([`problems`]). Its plans pass the checker, no
/// bound is above a plan's value, and an answer without a plan says why.
pub fn plan(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).ok();
    let read = text.and_then(|text| Problem::from_json(text).ok());
    let problem = read.unwrap_or_else(|| problems::of(bytes));
    let num_gpus: u32 = problem.cluster.nodes.iter().map(|node| node.gpus.min(1_000)).sum();
    if problem.tasks.len() > 8 || problem.cluster.nodes.len() > 5 || num_gpus > 40 {
        return;
    }
    let (mut is_possible, mut is_impossible) = (false, false);
    let kind = bytes.len() % 4;
    for &objective in Objective::ALL {
        let options = Options {
            objective,
            backend: if kind == 3 { Backend::Search } else { Backend::Auto },
            max_moves: Some(300),
            threads: 1,
            max_switches: if objective == Objective::Makespan { kind % 3 } else { 0 },
            min_move_gain: if kind == 2 { 0.05 } else { 0.0 },
            has_early_ends: kind > 0,
            ..Options::default()
        };
        let plan = match solve(&problem, &options, &FrozenClock) {
            Ok(plan) => plan,
            Err(SolveError::Wrong(fault)) => panic!("{objective}: {fault:?}"),
            Err(_) => return,
        };
        is_possible |= plan.is_usable();
        is_impossible |= plan.status == PlanStatus::Infeasible;
        if plan.is_usable() {
            check(&problem, &plan).expect("the solver has checked it");
            assert!(plan.bound() <= plan.value() * (1.0 + 1e-9), "{objective}: {plan:?}");
        } else {
            assert!(!plan.reasons.is_empty(), "{objective}: {plan:?}");
        }
    }
    assert!(!(is_possible && is_impossible), "no plan under one objective, but under another");
}

/// A planning problem: refused in words, or read back as it was written.
pub fn problem(text: &str) {
    if let Ok(problem) = Problem::from_json(text) {
        let again = serde_json::to_string(&problem).expect("it is data");
        assert_eq!(Problem::from_json(&again).expect("it was just written"), problem);
        let _ = problem.unplaceable();
    }
}

/// A profile: refused in words, or read back as it was written.
pub fn profile(text: &str) {
    if let Ok(profile) = Profile::from_json(text) {
        assert_eq!(Profile::from_json(&profile.to_json()).expect("it was just written"), profile);
    }
}

/// What ranks say, one report a line: the engine takes it in, whatever it is.
pub fn rank_report(text: &str) {
    let technique =
        TechniqueRef { name: "ddp".into(), level: Level::Managed, import: None, pickle: None };
    let mut engine = begun(vec![technique]);
    let task = r#"{"name": "t", "dir": "tasks/t", "steps": 9, "profile_key": "k"}"#;
    let task: NewTask = serde_json::from_str(task).expect("it is a task");
    engine.handle(Event::Command { command: Command::Submit { tasks: vec![task] } }, 0.0);
    for (index, line) in text.lines().enumerate() {
        let Ok(report) = serde_json::from_str::<RankReport>(line) else { continue };
        let attempt = AttemptId(1 + index as u64 % 2);
        engine.handle(Event::Reported { attempt, rank: 0, report }, index as f64);
    }
}

/// What the Python face asks for: a run, or words that say what is wrong with it.
pub fn run_request(json: &str) {
    if let Err(error) = RunRequest::from_json(json) {
        assert!(!error.to_string().is_empty());
    }
}

fn cluster() -> Cluster {
    Cluster { nodes: vec![Node::new("n0", 2, "cpu")] }
}

/// The engine of a run that has just begun.
fn begun(techniques: Vec<TechniqueRef>) -> Engine {
    let mut engine = Engine::new(RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques,
        policy: Policy::default(),
    });
    engine.handle(Event::Begin { cluster: cluster() }, 0.0);
    engine
}
