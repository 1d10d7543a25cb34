//! The stream of events, and commands: of a run that grows while it is followed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http::routes::{HEADER, KEY_HEADER};
use crate::http::schemas::offences;
use crate::tests::patience::Server;
use crate::tests::world::World;

/// The events of a stream as they come: name, id and data.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(server: &Server, query: &str, last: Option<u64>) -> Self {
        let mut stream = server.connect();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let head = server.head(&format!("/api/v1/runs/demo/events{query}"));
        write!(stream, "{head}{last}\r\n").unwrap();
        let mut stream = Self(BufReader::new(stream));
        assert!(stream.line().starts_with("HTTP/1.1 200"));
        stream
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
        line.trim_end().to_owned()
    }

    /// The next event that is no sign of life.
    fn next(&mut self) -> (String, Option<u64>, Value) {
        let (mut name, mut id, mut data) = ("message".to_owned(), None, Value::Null);
        loop {
            let line = self.line();
            if let Some(value) = line.strip_prefix("event: ") {
                value.clone_into(&mut name);
            } else if let Some(value) = line.strip_prefix("id: ") {
                // After the number comes the run's id.
                id = value.split_once('.').and_then(|(number, _)| number.parse().ok());
            } else if let Some(value) = line.strip_prefix("data: ") {
                data = serde_json::from_str(value).unwrap();
            } else if line.is_empty() && !data.is_null() {
                return (name, id, data);
            }
        }
    }
}

#[test]
fn a_client_that_comes_back_misses_no_event() {
    let mut server = Server::of(40);
    let mut stream = Stream::open(&server, "?after=38", None);
    let mut seen = Vec::new();
    let mut last = 38;
    for part in 0..4 {
        server.recorded.write(30);
        for _ in 0..(if part == 0 { 32 } else { 30 }) {
            let (name, id, data) = stream.next();
            assert_eq!(name, "message");
            assert_eq!(offences(&data, "Event"), [""; 0]);
            assert_eq!((id, data["event"].as_u64()), (Some(last + 1), Some(last + 1)));
            last += 1;
            seen.push(data);
        }
        drop(stream);
        // Comes back with the address that it had first, as a browser does.
        stream = Stream::open(&server, "?after=38", Some(last));
    }
    assert_eq!(last, 160);
    let kinds: Vec<&str> = seen.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"planned") && kinds.contains(&"task_ended"), "{kinds:?}");
    let told = seen.iter().filter(|event| event["task"].is_string() && event["text"] != "");
    let texts: Vec<&str> = told.map(|event| event["text"].as_str().unwrap()).collect();
    assert!(texts.len() > 5);
    assert!(texts.iter().all(|text| !text.starts_with(|first: char| first.is_ascii_digit())));
}

#[test]
fn a_client_that_knows_too_much_or_too_little_is_told_to_begin_again() {
    let server = Server::of(usize::MAX);
    let newest = server.recorded.num_records() as u64;
    let mut stream = Stream::open(&server, "?after=100000", None);
    let (name, id, data) = stream.next();
    assert_eq!((name.as_str(), id, data["event"].as_u64()), ("resync", Some(newest), Some(newest)));
}

#[test]
fn a_kind_is_what_the_journal_calls_it() {
    let server = Server::of(usize::MAX);
    let mut stream = Stream::open(&server, "?after=0", None);
    for (_, row) in &server.recorded.rows {
        let row: Value = serde_json::from_str(row).unwrap();
        let kind = row["record"].as_str().unwrap();
        let kind = if kind == "replanned" { "planned" } else { kind };
        let (_, _, event) = stream.next();
        assert_eq!(event["kind"], kind);
    }
}

fn post(world: &World, key: Option<&str>, body: &Value) -> crate::tests::world::Answer {
    let request = world
        .with_token(Method::POST, "/api/v1/runs/demo/commands")
        .header(HEADER, "1")
        .header("content-type", "application/json");
    let request = match key {
        Some(key) => request.header(KEY_HEADER, key),
        None => request,
    };
    world.send(request.body(Body::from(body.to_string())).unwrap())
}

#[test]
fn a_command_is_carried_out_once_and_answered_as_the_run_answers() {
    let world = World::of(&[("demo", 100)]);
    let pause = json!({"command": "pause", "task": "a"});
    let answer = post(&world, None, &pause);
    assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text);
    assert_eq!(answer.json()["code"], "not_driven");
    let driver = world.drive("demo");
    assert_eq!(post(&world, Some("one"), &pause).status, StatusCode::OK);
    assert_eq!(post(&world, Some("one"), &pause).status, StatusCode::OK);
    assert_eq!(driver.asked(), 1, "the second has the key of the first");
    let other = post(&world, Some("one"), &json!({"command": "close"}));
    assert_eq!(other.status, StatusCode::BAD_REQUEST, "{}", other.text);
    assert_eq!(post(&world, Some("two"), &pause).status, StatusCode::OK);
    assert_eq!(post(&world, None, &pause).status, StatusCode::OK);
    assert_eq!(driver.asked(), 3);
    let refused = post(&world, None, &json!({"command": "cancel", "task": "nobody"}));
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (StatusCode::NOT_FOUND, &json!("unknown_task"))
    );
    let submit = post(&world, None, &json!({"command": "submit", "tasks": []}));
    assert_eq!(submit.status, StatusCode::BAD_REQUEST);
    let large = post(&world, None, &json!({"command": "pause", "task": "x".repeat(100_000)}));
    assert!(large.status.is_client_error(), "{}", large.status);
    assert_eq!(post(&world, Some(&"k".repeat(129)), &pause).status, StatusCode::BAD_REQUEST);
}
