//! A receiver that is not there, hangs, fails and comes back is told everything, in its order.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver as Heard, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use tempfile::TempDir;

use crate::hooks::happenings::What;
use crate::hooks::receiver::Receiver;
use crate::hooks::telling::{Telling, Webhook};
use crate::tests::recorded::{Recorded, runs};
use crate::tests::world::named;

const SECRET: &str = "a secret of two";
/// How long the test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a receiver does with a request.
#[derive(Debug, Clone)]
enum Answer {
    /// Reads it, and says nothing until the sender has gone.
    Hang,
    /// Reads it, and closes the connection.
    HangUp,
    /// Answers with this status and these headers.
    Status(u16, String),
}

/// A request that came.
#[derive(Debug, Clone)]
struct Came {
    head: BTreeMap<String, String>,
    body: Value,
    status: u16,
}

/// Listens on a port: answers the first requests as `answers` says, and all others by 200.
fn listen(port: u16, answers: Vec<Answer>) -> (u16, Heard<Came>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        for stream in listener.incoming() {
            let answer = answers.next().unwrap_or(Answer::Status(200, String::new()));
            serve(stream.unwrap(), &answer, &sender);
        }
    });
    (port, heard)
}

fn serve(mut stream: TcpStream, answer: &Answer, to: &Sender<Came>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("POST /hook HTTP/1.1"), "{line}");
    let mut head = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        head.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; head["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let mut code = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    code.update(&body);
    let code = code.finalize().into_bytes();
    let signature =
        code.iter().fold("sha256=".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    assert_eq!(head["x-saturn-signature-256"], signature);
    let status = if let Answer::Status(status, _) = answer { *status } else { 0 };
    let body = serde_json::from_slice(&body).unwrap();
    let _ = to.send(Came { head, body, status });
    match answer {
        Answer::Hang => {
            let _ = reader.read(&mut [0]);
        }
        Answer::HangUp => {}
        Answer::Status(status, headers) => {
            let _ = write!(
                stream,
                "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
            );
        }
    }
}

/// A port on which nobody listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

type Notes = Arc<Mutex<Vec<String>>>;

fn tell(home: &Path, runs: &Path, port: u16, wanted: &[What]) -> Result<(Telling, Notes), String> {
    let receiver = Receiver::new(&format!("http://127.0.0.1:{port}/hook"), Some(SECRET))?;
    let wanted: BTreeSet<What> = wanted.iter().copied().collect();
    let webhook = Webhook { receiver, wanted, home: home.to_owned() };
    let (runs, notes) = (runs.to_owned(), Notes::default());
    let told = Arc::clone(&notes);
    let note = move |note: &str| told.lock().unwrap().push(note.to_owned());
    Ok((Telling::start(webhook, move || named(&runs), note)?, notes))
}

/// Tells again once the last teller has let go of the receiver.
fn tell_again(home: &Path, runs: &Path, port: u16, wanted: &[What]) -> (Telling, Notes) {
    for _ in 0..3000 {
        match tell(home, runs, port, wanted) {
            Ok(telling) => return telling,
            Err(why) => assert!(why.contains("another `saturn web`"), "{why}"),
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("the receiver stays taken");
}

fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("it never is so");
}

fn all() -> Vec<What> {
    What::ALL.map(|(_, what)| what).to_vec()
}

/// All that comes until the end of the run is told.
fn until_done(heard: &Heard<Came>) -> Vec<Came> {
    let mut came = Vec::new();
    loop {
        let next = heard.recv_timeout(PATIENCE);
        let so_far = || came.iter().map(|one: &Came| id(one).to_owned()).collect::<Vec<_>>();
        came.push(next.unwrap_or_else(|_| panic!("after {:?} comes nothing", so_far())));
        let last = came.last().unwrap();
        if last.body["task"].is_null() && last.body["what"] == "done" && last.status == 200 {
            return came;
        }
    }
}

fn id(came: &Came) -> &str {
    came.body["id"].as_str().unwrap()
}

#[test]
fn a_receiver_that_hangs_fails_and_comes_back_is_told_everything_once_and_in_order() {
    let (dir, home) = (runs(), TempDir::new().unwrap());
    let port = free_port();
    // Nobody listens yet.
    let (telling, notes) = tell(home.path(), dir.path(), port, &all()).unwrap();
    let mut run = Recorded::new(dir.path(), "demo", 100);
    wait_until(|| !notes.lock().unwrap().is_empty());
    let (elsewhere, strangers) = listen(0, Vec::new());
    let redirected = format!("Location: http://127.0.0.1:{elsewhere}/hook\r\n");
    let answers = vec![
        Answer::Hang,
        Answer::Status(500, String::new()),
        Answer::Status(307, redirected),
        Answer::HangUp,
        Answer::Status(429, String::new()),
    ];
    let num_failures = answers.len();
    let (_, heard) = listen(port, answers);
    run.write(usize::MAX);
    let came = until_done(&heard);
    let first = &came[0];
    assert!(came[..num_failures].iter().all(|one| one.body == first.body), "told as it was");
    assert_eq!(came[num_failures].body, first.body);
    let taken: Vec<&Came> = came.iter().filter(|one| one.status == 200).collect();
    let ids: BTreeSet<&str> = taken.iter().map(|one| id(one)).collect();
    assert_eq!(ids.len(), taken.len(), "each is taken once");
    let events: Vec<u64> = taken.iter().map(|one| one.body["event"].as_u64().unwrap()).collect();
    assert!(events.is_sorted(), "{events:?}");
    for one in &came {
        assert_eq!(one.head["idempotency-key"], id(one));
        assert_eq!(one.head["content-type"], "application/json");
        assert_eq!((&one.body["run"], &one.body["run_id"]), (&"demo".into(), &"demo".into()));
        let when = one.body["when"].as_str().unwrap();
        assert!(when.len() == 20 && when.ends_with('Z') && when.as_bytes()[10] == b'T', "{when}");
        assert!(!one.body["why"].as_str().unwrap().is_empty(), "{}", one.body);
    }
    assert!(strangers.try_recv().is_err(), "no redirection is followed");
    let (_, history) = saturn_runtime::read(&run.path).unwrap();
    let num = |what: &str| taken.iter().filter(|one| one.body["what"] == what).count();
    let num_moves: usize = (0..history.tasks.len())
        .map(|task| history.moves(saturn_engine::TaskId(task)).count())
        .sum();
    assert_eq!((num("done"), num("moved")), (history.tasks.len() + 1, num_moves));
    let notes = notes.lock().unwrap().clone();
    assert!(notes[0].contains("nobody listens there; it is tried again and again"), "{notes:?}");
    assert!(notes.last().unwrap().contains("it answers again"), "{notes:?}");
    assert!(
        notes.iter().all(|note| !note.contains("/hook")),
        "an address may be secret: {notes:?}"
    );
    drop(telling);
}

#[test]
fn after_a_crash_nothing_is_lost_and_nothing_that_was_taken_is_told_again() {
    let (dir, home) = (runs(), TempDir::new().unwrap());
    let (port, heard) = listen(0, Vec::new());
    // Another receiver is told all by one server.
    let (other_port, other) = listen(0, Vec::new());
    let (telling_other, _) = tell(home.path(), dir.path(), other_port, &all()).unwrap();
    // Of a run that began before a receiver was known, the receiver is not told what has happened.
    drop(tell(home.path(), dir.path(), port, &all()).unwrap());
    let mut run = Recorded::new(dir.path(), "demo", 60);
    let num_records = run.num_records();
    // Each server ends at once, wherever it is. The last one has the time that it needs.
    for written in (60..num_records).step_by(15) {
        let telling = tell_again(home.path(), dir.path(), port, &all());
        run.write(15);
        std::thread::park_timeout(Duration::from_millis(written as u64 % 7 * 5));
        drop(telling);
    }
    let telling = tell_again(home.path(), dir.path(), port, &all());
    run.write(usize::MAX);
    let taken = until_done(&heard);
    drop(telling);
    let ids: Vec<&str> = taken.iter().map(id).collect();
    let different: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), different.len(), "{ids:?}");
    let (again, _) = tell_again(home.path(), dir.path(), port, &all());
    std::thread::park_timeout(Duration::from_millis(300));
    assert!(heard.try_recv().is_err(), "all was told");
    drop(again);
    let others: Vec<Came> = until_done(&other);
    assert_eq!(others.iter().map(id).collect::<Vec<_>>(), ids);
    drop(telling_other);
}

#[test]
fn of_earlier_runs_only_what_is_still_to_come_is_told() {
    let (dir, home) = (runs(), TempDir::new().unwrap());
    let old = Recorded::new(dir.path(), "failing-task", usize::MAX);
    old.begin_earlier();
    let mut going_on = Recorded::new(dir.path(), "demo", 150);
    going_on.begin_earlier();
    let (port, heard) = listen(0, Vec::new());
    let (telling, _) = tell(home.path(), dir.path(), port, &[What::Done, What::Failed]).unwrap();
    // It has seen both runs.
    wait_until(|| {
        let mut files = std::fs::read_dir(home.path().join("webhooks")).unwrap().flatten();
        let kept = files.find(|file| file.path().extension().is_some_and(|one| one == "json"));
        let text = kept.and_then(|file| std::fs::read_to_string(file.path()).ok());
        text.is_some_and(|text| text.contains("/demo\"") && text.contains("/failing-task\""))
    });
    assert!(heard.try_recv().is_err());
    going_on.write(usize::MAX);
    let came = until_done(&heard);
    assert!(came.iter().all(|one| one.body["event"].as_u64().unwrap() > 150));
    assert!(came.iter().all(|one| one.body["run"] == "demo" && one.body["what"] == "done"));
    let second = tell(home.path(), dir.path(), port, &all()).unwrap_err();
    assert_eq!(second, "another `saturn web` tells this receiver");
    drop(telling);
}

#[test]
fn what_is_refused_for_good_does_not_stand_in_the_way() {
    let (dir, home) = (runs(), TempDir::new().unwrap());
    let (port, heard) = listen(0, vec![Answer::Status(422, String::new()); 5]);
    let (telling, notes) = tell(home.path(), dir.path(), port, &all()).unwrap();
    let _run = Recorded::new(dir.path(), "failing-task", usize::MAX);
    let came = until_done(&heard);
    assert!(came[..5].iter().all(|one| id(one) == id(&came[0])));
    assert!(came[5..].iter().all(|one| id(one) != id(&came[0])));
    let failed: Vec<&Came> = came.iter().filter(|one| one.body["what"] == "failed").collect();
    assert!(!failed.is_empty());
    assert!(notes.lock().unwrap().iter().any(|note| note.contains("is left out")));
    drop(telling);
}

#[test]
fn a_task_that_will_miss_its_deadline_is_told_once() {
    let (dir, home) = (runs(), TempDir::new().unwrap());
    let (port, heard) = listen(0, Vec::new());
    let (telling, _) = tell(home.path(), dir.path(), port, &all()).unwrap();
    let mut run = Recorded::new(dir.path(), "demo", 0);
    for (_, row) in &mut run.rows {
        *row = row.replace("\"deadline_s\":null", "\"deadline_s\":120.0");
    }
    run.write(usize::MAX);
    let came = until_done(&heard);
    let (state, history) = saturn_runtime::read(&run.path).unwrap();
    let status = saturn_view::status(&state, &history, state.now_s);
    let missed = status.tasks.iter().filter(|task| task.is_late == Some(true));
    let missed: BTreeSet<&str> = missed.map(|task| task.name.as_str()).collect();
    let late: Vec<&str> = came
        .iter()
        .filter(|one| one.body["what"] == "late")
        .map(|one| one.body["task"].as_str().unwrap())
        .collect();
    let told: BTreeSet<&str> = late.iter().copied().collect();
    assert_eq!(late.len(), told.len(), "{late:?}");
    assert!(missed.is_subset(&told), "{missed:?} {told:?}");
    assert!(!missed.is_empty() && told.len() < status.tasks.len(), "{missed:?} {told:?}");
    drop(telling);
}
