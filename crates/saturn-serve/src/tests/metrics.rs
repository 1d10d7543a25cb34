//! What Prometheus reads.

#![expect(clippy::float_cmp, reason = "numbers are told as they are")]

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use saturn_runtime::RunReader;
use saturn_view::{DeviceUse, Report, Tally};

use crate::http::exposition::read::{Samples, read};
use crate::tests::world::{PORT, World};

fn scraped(world: &World) -> Samples {
    let answer = world.get("/metrics");
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    read(&answer.text).0
}

fn value(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(name, one)| ((*name).to_owned(), (*one).to_owned())).collect();
    samples[&(name.to_owned(), labels)]
}

#[test]
fn a_runs_numbers_are_those_of_its_status_and_report() {
    let world = World::of(&[("demo", usize::MAX), ("failing-task", usize::MAX)]);
    let samples = scraped(&world);
    let status = world.get("/api/v1/runs/demo").json();
    let mut num_tasks = 0.0;
    for (stage, number) in status["status"]["counts"].as_object().unwrap() {
        if stage != "all" {
            let found = value(&samples, "saturn_tasks", &[("run", "demo"), ("stage", stage)]);
            assert_eq!(found, number.as_f64().unwrap(), "{stage}");
            num_tasks += found;
        }
    }
    assert_eq!(num_tasks, status["status"]["counts"]["all"].as_f64().unwrap());
    let of_demo = |name: &str| -> f64 {
        let of = |((one, labels), value): (&(String, BTreeMap<String, String>), &f64)| {
            (one == name && labels["run"] == "demo").then_some(*value)
        };
        samples.iter().filter_map(of).sum()
    };
    assert_eq!(of_demo("saturn_devices"), status["status"]["pool"]["devices"].as_f64().unwrap());
    assert!(of_demo("saturn_device_time_seconds_total") > 100.0);
    let adopted = [("run", "demo"), ("outcome", "adopted")];
    assert!(value(&samples, "saturn_plans_total", &adopted) >= 1.0);
    assert_eq!(of_demo("saturn_failures_total"), 0.0);
    assert_eq!(value(&samples, "saturn_run_driven", &[("run", "demo")]), 0.0);
    let failed = samples.iter().filter(|((name, labels), value)| {
        name == "saturn_failures_total" && labels["run"] == "failing-task" && **value > 0.0
    });
    assert!(failed.count() > 0);
}

#[test]
fn counters_never_go_back_while_a_run_goes_on() {
    let mut world = World::of(&[("demo", 20), ("evaluations", 20), ("lost-node", 20)]);
    let mut before = Samples::new();
    let mut num_compared = 0;
    let mut num_grown = 0;
    while world.recorded.iter().any(|one| one.num_left() > 0) {
        for recorded in &mut world.recorded {
            recorded.write(60);
        }
        // Runs are looked at twice a second.
        std::thread::park_timeout(Duration::from_millis(510));
        let now = scraped(&world);
        for (key, value) in &before {
            if key.0.ends_with("_total") {
                assert!(now[key] >= *value, "{key:?}: {value}, then {}", now[key]);
                num_compared += 1;
                num_grown += usize::from(now[key] > *value);
            }
        }
        before = now;
    }
    assert!(num_compared > 200 && num_grown > 0, "{num_compared} {num_grown}");
}

#[test]
fn device_time_never_goes_back_from_one_record_to_the_next() {
    let world = World::of(&[
        ("demo", usize::MAX),
        ("evaluations", usize::MAX),
        ("lost-node", usize::MAX),
        ("replanned", usize::MAX),
    ]);
    let mut num_records = 0;
    for recorded in &world.recorded {
        let mut tally = Tally::default();
        let mut reader = RunReader::new(&recorded.path);
        let read = reader.advance(
            || {},
            |read| {
                let before: Vec<(DeviceUse, f64)> = tally.device_s().collect();
                tally.record(read.history, read.record);
                for ((one, before), (_, now)) in before.iter().zip(tally.device_s()) {
                    assert!(now >= *before, "{one:?} at record {}", read.number);
                }
                num_records += 1;
            },
        );
        read.unwrap();
        let counted: f64 = tally.device_s().map(|(_, seconds)| seconds).sum();
        let (state, history) = saturn_runtime::read(&recorded.path).unwrap();
        let report = Report::build(&state, &history, "run", Vec::new());
        let told = report.device_time.all_s;
        assert!(counted >= told && counted < 1.1 * told, "{counted} {told}");
    }
    assert!(num_records > 500, "{num_records}");
}

#[test]
fn a_run_of_an_odd_name_breaks_no_line() {
    let world = World::of(&[("demo", usize::MAX)]);
    let odd = "a\"b\\c\nd";
    std::fs::rename(world.dir.path().join("demo"), world.dir.path().join(odd)).unwrap();
    let samples = scraped(&world);
    assert_eq!(value(&samples, "saturn_run_driven", &[("run", odd)]), 0.0);
}

#[test]
fn commands_are_counted_by_their_answers() {
    let world = World::of(&[("demo", 100)]);
    let driver = world.drive("demo");
    let tell = |body: &'static str| {
        let request = world
            .with_token(Method::POST, "/api/v1/runs/demo/commands")
            .header("content-type", "application/json")
            .header("x-saturn", "1");
        world.send(request.body(Body::from(body)).unwrap()).status
    };
    assert_eq!(tell(r#"{"command": "pause", "task": "a"}"#), StatusCode::OK);
    assert_eq!(tell(r#"{"command": "pause", "task": "a"}"#), StatusCode::OK);
    assert_eq!(tell(r#"{"command": "pause", "task": "nobody"}"#), StatusCode::NOT_FOUND);
    assert_eq!(tell(r#"{"command": "dance"}"#), StatusCode::BAD_REQUEST);
    assert_eq!(driver.asked(), 2);
    let samples = scraped(&world);
    let number = |command, code| {
        let labels = [("command", command), ("code", code)];
        value(&samples, "saturn_web_commands_total", &labels)
    };
    assert_eq!(number("pause", "ok"), 2.0);
    assert_eq!(number("pause", "unknown_task"), 1.0);
    assert_eq!(number("", "bad_request"), 1.0);
    assert_eq!(value(&samples, "saturn_run_driven", &[("run", "demo")]), 1.0);
}

#[test]
fn who_has_no_token_is_refused_in_words_and_not_sent_to_a_page() {
    let world = World::of(&[("demo", usize::MAX)]);
    for token in [None, Some("0".repeat(64))] {
        let mut request =
            Request::builder().uri("/metrics").header("host", format!("localhost:{PORT}"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = world.send(request.body(Body::empty()).unwrap());
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{}", answer.text);
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        assert!(!answer.text.contains("saturn_"), "{}", answer.text);
    }
    let described = world.get("/api/v1/openapi.json").json();
    let answer = &described["paths"]["/metrics"]["get"]["responses"]["200"]["content"];
    assert!(answer["text/plain"].is_object(), "{described}");
}
