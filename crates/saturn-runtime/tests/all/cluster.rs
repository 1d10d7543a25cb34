//! Tests of runs on agents. A thread carries the letters as Ray would; the workers are
//! `fake_python.py`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use saturn_runtime::{
    Agent, AgentSetup, Exchange, Outcome, ResumeOptions, RunRequest, StoreOpener, Watcher,
};

use crate::harness::{GOOD, Run, quiet};

/// Agents whose letters are carried. An agent that is removed from here seems dead.
type Served = Arc<Mutex<BTreeMap<u64, Arc<Agent>>>>;

fn agent(run: &Run, name: &str) -> Arc<Agent> {
    agent_with(run, name, || Ok("127.0.0.1:1".to_owned()))
}

fn agent_with(
    run: &Run,
    name: &str,
    open_store: impl Fn() -> Result<String, String> + Send + Sync + 'static,
) -> Arc<Agent> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_python.py");
    let setup = AgentSetup {
        name: name.to_owned(),
        devices: Some(2),
        fewer_will_do: false,
        python: python.to_string_lossy().into_owned(),
        python_path: Vec::new(),
        cwd: run.dir.path().to_owned(),
        // Separate locks make each agent seem to be on a machine of its own.
        locks_dir: Some(run.dir.path().join(format!("locks-{name}"))),
        run: run.path(),
        interface: None,
        stores: StoreOpener(Arc::new(open_store)),
    };
    Agent::claim(setup).unwrap()
}

fn join(exchange: &Exchange, served: &Served, number: u64, agent: Arc<Agent>) {
    exchange.join(number, agent.description()).unwrap();
    served.lock().unwrap().insert(number, agent);
}

fn carry(exchange: Exchange, served: Served) -> JoinHandle<()> {
    carry_by(exchange, served, || true)
}

/// Carries letters; where `is_answered` says no, the answer of a call is lost, and the call is made
/// again.
fn carry_by(
    exchange: Exchange,
    served: Served,
    mut is_answered: impl FnMut() -> bool + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut num_read = BTreeMap::new();
        while let Some(orders) = exchange.orders(Duration::from_millis(5)) {
            let agents = served.lock().unwrap().clone();
            for (number, letter) in orders {
                let Some(agent) = agents.get(&number) else { continue };
                let letters = [letter];
                let mut taken = agent.take(&letters);
                while taken.is_ok() && !is_answered() {
                    taken = agent.take(&letters);
                }
                if let Err(error) = taken {
                    served.lock().unwrap().remove(&number);
                    exchange.lose(number, error.to_string());
                }
            }
            for (number, agent) in agents {
                let read = num_read.entry(number).or_default();
                if let Ok(letters) = agent.news(Duration::ZERO, *read)
                    && is_answered()
                {
                    let delivered = exchange.deliver(number, &letters).unwrap();
                    // The agent may not hear how far the driver has read.
                    *read = if is_answered() { delivered } else { *read };
                }
            }
        }
    })
}

fn drive(run: &Run, exchange: &Exchange, is_interrupted: &mut dyn FnMut() -> bool) -> Outcome {
    drive_request(&run.request(), exchange, is_interrupted)
}

fn drive_request(
    request: &str,
    exchange: &Exchange,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Outcome {
    let mut request = RunRequest::from_json(request).unwrap();
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
fn answers_that_get_lost_cost_no_agent_and_no_step() {
    let run = Run::new(9, &[GOOD, GOOD, GOOD]);
    let (exchange, served) = (Exchange::default(), Served::default());
    for (number, name) in [(0, "one"), (1, "two")] {
        join(&exchange, &served, number, agent(&run, name));
    }
    // Every third answer on average, in no pattern that always hits the same agent.
    let mut draw = 1_u64;
    let carrier = carry_by(exchange.clone(), Arc::clone(&served), move || {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        !(draw >> 33).is_multiple_of(3)
    });
    let outcome = drive(&run, &exchange, &mut || false);
    carrier.join().unwrap();
    assert_eq!(served.lock().unwrap().len(), 2, "an agent was given up");
    assert_eq!(outcome.num_failed, 0);
    assert!((0..3).all(|task| run.saved_step(&format!("t{task}")) == 60));
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
    // The lost agent does not know that it is lost. Its ranks may live, but their attempts are
    // marked.
    let tasks = run.path().join("tasks");
    let attempts = (0..4).flat_map(|task| {
        let attempts = tasks.join(format!("t{task}/attempts"));
        std::fs::read_dir(attempts).unwrap().map(|attempt| attempt.unwrap().path())
    });
    let mark = |attempt: PathBuf| std::fs::read_to_string(attempt.join("given-up")).ok();
    let marks: Vec<String> = attempts.filter_map(mark).collect();
    assert!(!marks.is_empty() && marks.iter().all(|mark| mark == "it was taken away"), "{marks:?}");
    lost.end();
    // What its ranks have said until then comes first.
    let error = (0..100).find_map(|_| lost.news(Duration::ZERO, u64::MAX).err()).unwrap();
    assert!(error.to_string().contains("told to end"), "{error}");
    run.assert_no_process_lives();
}

/// A request in which every task needs three of the four devices of two agents.
fn wide(run: &Run) -> String {
    run.request().replace("\"gpu_range\":null", "\"gpu_range\":[3]")
}

/// The specs of a task's newest attempt, by first rank. There is one spec for each node.
fn specs(run: &Run, task: &str) -> Vec<serde_json::Value> {
    let attempts = std::fs::read_dir(run.path().join("tasks").join(task).join("attempts")).unwrap();
    let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let newest = attempts.map(|one| one.unwrap().path()).max_by_key(|path| number(path)).unwrap();
    let files = std::fs::read_dir(newest).unwrap().map(|file| file.unwrap().path());
    let mut specs: Vec<serde_json::Value> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .map(|path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
        .collect();
    specs.sort_by_key(|spec| spec["first_rank"].as_u64());
    specs
}

#[test]
fn a_gang_takes_two_agents_and_has_each_of_its_ranks_once() {
    let run = Run::new(9, &[GOOD, GOOD]);
    let (exchange, served) = (Exchange::default(), Served::default());
    let opened = Arc::new(Mutex::new(0));
    for (number, name) in [(0, "one"), (1, "two")] {
        let opened = Arc::clone(&opened);
        let open_store = move || {
            *opened.lock().unwrap() += 1;
            Ok("127.0.0.1:7".to_owned())
        };
        join(&exchange, &served, number, agent_with(&run, name, open_store));
    }
    let carrier = carry(exchange.clone(), served);
    let outcome = drive_request(&wide(&run), &exchange, &mut || false);
    carrier.join().unwrap();
    assert_eq!(outcome.num_failed, 0);
    assert!((0..2).all(|task| run.saved_step(&format!("t{task}")) == 60));
    let specs = specs(&run, "t1");
    let numbers = |field: &str| -> Vec<u64> {
        specs.iter().map(|spec| spec[field].as_u64().unwrap()).collect()
    };
    assert_eq!((numbers("first_rank"), numbers("world_size")), (vec![0, 2], vec![3, 3]));
    for (spec, here) in specs.iter().zip([2, 1]) {
        assert_eq!(spec["node_gpus"], serde_json::json!([2, 1]));
        assert_eq!(spec["store"], "127.0.0.1:7");
        assert_eq!(spec["devices"].as_array().unwrap().len(), here);
        assert_eq!(spec["cores"].as_array().unwrap().len(), here);
    }
    assert_eq!(*opened.lock().unwrap(), 1, "one store serves all attempts of a node");
    run.assert_no_process_lives();
}

#[test]
fn a_gang_is_given_up_as_one_when_one_of_its_agents_is_lost() {
    let mut run = Run::new(9, &[GOOD]);
    run.steps = 200;
    let (exchange, served) = (Exchange::default(), Served::default());
    join(&exchange, &served, 0, agent(&run, "one"));
    join(&exchange, &served, 1, agent(&run, "two"));
    let carrier = carry(exchange.clone(), Arc::clone(&served));
    let mut lost = None;
    let outcome = drive_request(&wide(&run), &exchange, &mut || {
        if lost.is_none() && run.saved_step("t0") > 0 {
            lost = served.lock().unwrap().remove(&1);
            exchange.lose(1, "it was taken away".to_owned());
            join(&exchange, &served, 2, agent(&run, "three"));
        }
        false
    });
    carrier.join().unwrap();
    assert_eq!(outcome.num_failed, 0);
    assert_eq!(run.saved_step("t0"), 200);
    let report = run.report();
    let trained: Vec<_> = report["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["purpose"] == "train")
        .map(|one| one["how"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(trained.len(), 2, "{trained:?}");
    lost.unwrap().end();
    run.assert_no_process_lives();
}

#[test]
fn other_launches_go_on_while_a_gang_waits_for_its_store() {
    let run = Run::new(9, &[GOOD, GOOD, GOOD, GOOD]);
    let (exchange, served) = (Exchange::default(), Served::default());
    for (number, name) in [(0, "one"), (1, "two")] {
        let open_store = || {
            std::thread::park_timeout(Duration::from_millis(300));
            Ok("127.0.0.1:7".to_owned())
        };
        join(&exchange, &served, number, agent_with(&run, name, open_store));
    }
    let carrier = carry(exchange.clone(), served);
    let outcome = drive_request(&wide(&run), &exchange, &mut || false);
    carrier.join().unwrap();
    assert_eq!(outcome.num_failed, 0);
    let report = run.report();
    let attempts = report["attempts"].as_array().unwrap();
    assert!(!attempts.is_empty() && attempts.iter().all(|one| one["how"] != "lost"), "{report}");
    run.assert_no_process_lives();
}

#[test]
fn a_store_that_can_not_be_opened_is_told() {
    let run = Run::new(9, &[GOOD]);
    let (exchange, served) = (Exchange::default(), Served::default());
    let asked = Arc::new(AtomicU32::new(0));
    for (number, name) in [(0, "one"), (1, "two")] {
        let asked = Arc::clone(&asked);
        let open_store = move || {
            asked.fetch_add(1, Ordering::Relaxed);
            Err("no port is left".to_owned())
        };
        join(&exchange, &served, number, agent_with(&run, name, open_store));
    }
    let carrier = carry(exchange.clone(), served);
    let mut has_tried_again = || asked.load(Ordering::Relaxed) > 1;
    let outcome = drive_request(&wide(&run), &exchange, &mut has_tried_again);
    carrier.join().unwrap();
    // Neither the task nor a device is to blame, so the task is tried again for a long time.
    assert_eq!((outcome.end, outcome.num_failed), (saturn_engine::RunEnd::Interrupted, 0));
    let (_, history) = saturn_runtime::read(&run.path()).unwrap();
    let history = format!("{history:?}");
    let error = "the gang's rendezvous store could not be opened: no port is left";
    assert!(history.contains(&format!("kind: Saturn, error: \"{error}\"")), "{history}");
    run.assert_no_process_lives();
}

#[test]
fn letters_that_are_missing_end_an_agent() {
    let run = Run::new(9, &[GOOD]);
    let one = agent(&run, "one");
    let exchange = Exchange::default();
    exchange.join(0, one.description()).unwrap();
    let wrong = one.take(&["{\"version\": 7}".to_owned()]).unwrap_err().to_string();
    assert_eq!(wrong, "a letter has version 7, not 3");
    assert_eq!(one.news(Duration::ZERO, u64::MAX).unwrap_err().to_string(), wrong);
    let wrong = exchange.deliver(0, &["nothing".to_owned()]).unwrap_err().to_string();
    assert!(wrong.starts_with("a letter can't be read"), "{wrong}");
    assert!(exchange.join(1, "{}").unwrap_err().to_string().contains("what a node says of itself"));
}

/// An agent whose ranks have outlived the driver of a run. The thread gives all that it is told after
/// its welcome.
fn outlived_agent(run: &Run) -> JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(run.path().join("agent.sock")).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        assert!(lines.next().is_some_and(|line| line.contains("hello")));
        let hardware = serde_json::json!({"kind": "cpu", "nodes": [], "warnings": []});
        let welcome = serde_json::json!({"welcome": {
            "agent": "a", "hardware": hardware, "attempts": [], "is_ready": true, "stays_s": 60.0,
        }});
        stream.write_all(format!("{welcome}\n").as_bytes()).unwrap();
        // An agent that is to end closes the connection, once it has.
        let told = lines.next();
        stream.shutdown(Shutdown::Both).ok();
        told.into_iter().collect()
    })
}

#[test]
fn a_resume_on_a_cluster_that_is_refused_ends_no_ranks_that_live() {
    let run = Run::new(1, &[GOOD]);
    run.start_interrupted(&mut || true).unwrap();
    let told = outlived_agent(&run);
    // A cluster without an agent has no device.
    let options = ResumeOptions { cluster: Some(Exchange::default()), ..ResumeOptions::default() };
    let refused =
        saturn_runtime::resume(&run.path(), options, Watcher::new(quiet(), &mut || false));
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("the cluster has no agent"), "{why}");
    assert_eq!(told.join().unwrap(), Vec::<String>::new());
}
