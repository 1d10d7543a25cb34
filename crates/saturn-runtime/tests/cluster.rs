//! Runs on agents, whose letters a thread carries as Ray would; the workers are `fake_python.py`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use saturn_runtime::{Agent, AgentSetup, Exchange, Outcome, RunRequest, Watcher};

use crate::harness::{GOOD, Run, quiet};

/// Agents that are served; one that is taken out is as dead.
type Served = Arc<Mutex<BTreeMap<u64, Arc<Agent>>>>;

fn agent(run: &Run, name: &str) -> Arc<Agent> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_python.py");
    let setup = AgentSetup {
        name: name.to_owned(),
        devices: Some(2),
        python: python.to_string_lossy().into_owned(),
        python_path: Vec::new(),
        cwd: run.dir.path().to_owned(),
        // Each as on a machine of its own.
        locks_dir: Some(run.dir.path().join(format!("locks-{name}"))),
        run: run.path(),
    };
    Agent::claim(setup).unwrap()
}

fn join(exchange: &Exchange, served: &Served, number: u64, agent: Arc<Agent>) {
    exchange.join(number, agent.description()).unwrap();
    served.lock().unwrap().insert(number, agent);
}

fn carry(exchange: Exchange, served: Served) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(orders) = exchange.orders(Duration::from_millis(5)) {
            let agents = served.lock().unwrap().clone();
            for (number, letter) in orders {
                if let Some(agent) = agents.get(&number) {
                    agent.take(&[letter]).unwrap();
                }
            }
            for (number, agent) in agents {
                if let Ok(letters) = agent.news(Duration::ZERO) {
                    exchange.deliver(number, &letters).unwrap();
                }
            }
        }
    })
}

fn drive(run: &Run, exchange: &Exchange, is_interrupted: &mut dyn FnMut() -> bool) -> Outcome {
    let mut request = RunRequest::from_json(&run.request()).unwrap();
    request.cluster = Some(exchange.clone());
    saturn_runtime::start(request, Watcher::new(quiet(), is_interrupted)).unwrap()
}

#[test]
fn a_run_uses_the_devices_of_all_agents_and_leaves_nothing_behind() {
    let run = Run::new(9, &[GOOD, GOOD, GOOD, GOOD]);
    let (exchange, served) = (Exchange::default(), Served::default());
    for (number, name) in [(0, "one"), (1, "two")] {
        join(&exchange, &served, number, agent(&run, name));
    }
    let carrier = carry(exchange.clone(), served);
    let outcome = drive(&run, &exchange, &mut || false);
    carrier.join().unwrap();
    assert_eq!(outcome.num_failed, 0);
    assert!((0..4).all(|task| run.saved_step(&format!("t{task}")) == 60));
    let report = run.report().to_string();
    assert!(report.contains("\"one\"") && report.contains("\"two\""), "{report}");
    assert!(outcome.left_behind.is_empty());
    run.assert_no_process_lives();
}

#[test]
fn what_a_lost_agent_had_is_given_up_and_done_by_those_that_come() {
    let run = Run::new(9, &[GOOD, GOOD, GOOD, GOOD]);
    let (exchange, served) = (Exchange::default(), Served::default());
    join(&exchange, &served, 0, agent(&run, "one"));
    join(&exchange, &served, 1, agent(&run, "two"));
    let carrier = carry(exchange.clone(), Arc::clone(&served));
    let mut looks = 0;
    let mut lost = None;
    let outcome = drive(&run, &exchange, &mut || {
        looks += 1;
        let trains = |task: usize| run.saved_step(&format!("t{task}")) > 0;
        if lost.is_none() && (0..4).any(trains) {
            lost = served.lock().unwrap().remove(&1);
            exchange.lose(1, "it was taken away".to_owned());
            join(&exchange, &served, 2, agent(&run, "three"));
        }
        false
    });
    carrier.join().unwrap();
    let lost = lost.unwrap();
    assert_eq!(outcome.num_failed, 0);
    assert!((0..4).all(|task| run.saved_step(&format!("t{task}")) == 60));
    let report = run.report().to_string();
    assert!(report.contains("\"three\""), "{report}");
    // Nobody has told it yet: its ranks may live, but are marked.
    let tasks = run.path().join("tasks");
    let attempts = (0..4).flat_map(|task| {
        let attempts = tasks.join(format!("t{task}/attempts"));
        std::fs::read_dir(attempts).unwrap().map(|attempt| attempt.unwrap().path())
    });
    let mark = |attempt: PathBuf| std::fs::read_to_string(attempt.join("given-up")).ok();
    let marks: Vec<String> = attempts.filter_map(mark).collect();
    assert!(!marks.is_empty() && marks.iter().all(|mark| mark == "it was taken away"), "{marks:?}");
    lost.end();
    assert!(lost.news(Duration::ZERO).unwrap_err().to_string().contains("told to end"));
    run.assert_no_process_lives();
}

#[test]
fn letters_that_are_missing_end_an_agent() {
    let run = Run::new(9, &[GOOD]);
    let one = agent(&run, "one");
    let exchange = Exchange::default();
    exchange.join(0, one.description()).unwrap();
    let wrong = one.take(&["{\"version\": 7}".to_owned()]).unwrap_err().to_string();
    assert_eq!(wrong, "a letter has version 7, not 1");
    assert_eq!(one.news(Duration::ZERO).unwrap_err().to_string(), wrong);
    let wrong = exchange.deliver(0, &["nothing".to_owned()]).unwrap_err().to_string();
    assert!(wrong.starts_with("a letter can't be read"), "{wrong}");
    assert!(exchange.join(1, "{}").unwrap_err().to_string().contains("what a node says of itself"));
}
