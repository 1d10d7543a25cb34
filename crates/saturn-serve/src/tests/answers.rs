//! The answers of the handlers about recorded runs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http::schemas::offences;
use crate::tests::world::World;

/// The shape of an answer: names and kinds, without values.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect())
        }
        // Items differ in what they leave out and in what is null: the first speaks for all.
        Value::Array(all) => Value::Array(all.iter().take(1).map(shape).collect()),
        Value::String(_) => json!("string"),
        Value::Number(_) => json!("number"),
        Value::Bool(_) => json!("boolean"),
        Value::Null => Value::Null,
    }
}

#[test]
fn answers_are_as_the_schemas_say() {
    let world = World::of(&[
        ("demo", usize::MAX),
        ("failing-task", usize::MAX),
        ("replanned", 60),
        ("evaluations", 90),
        ("lost-node", usize::MAX),
    ]);
    let runs = world.get("/api/v1/runs");
    assert_eq!(runs.status, StatusCode::OK, "{}", runs.text);
    assert_eq!(offences(&runs.json(), "Runs"), [""; 0]);
    let mut num_tasks = 0;
    for recorded in &world.recorded {
        let name = recorded.path.file_name().unwrap().to_string_lossy();
        let at = format!("/api/v1/runs/{name}");
        assert_eq!(offences(&world.get(&at).json(), "Run"), [""; 0], "{name}");
        assert_eq!(offences(&world.get(&format!("{at}/plan")).json(), "Plan"), [""; 0], "{name}");
        let tasks = world.get(&format!("{at}/tasks?limit=1000")).json();
        assert_eq!(offences(&tasks, "Tasks"), [""; 0], "{name}");
        for task in tasks["tasks"].as_array().unwrap() {
            num_tasks += 1;
            let task = task["name"].as_str().unwrap();
            let explained = world.get(&format!("{at}/tasks/{task}")).json();
            assert_eq!(offences(&explained, "Task"), [""; 0], "{name} {task}");
            let logs = world.get(&format!("{at}/tasks/{task}/logs")).json();
            assert_eq!(offences(&logs, "Logs"), [""; 0], "{name} {task}");
        }
    }
    assert!(num_tasks > 20, "{num_tasks}");
    assert_eq!(world.get("/api/v1/openapi.json").json()["openapi"], "3.1.0");
}

#[test]
fn the_shapes_of_answers_stay() {
    let world = World::of(&[("demo", 160)]);
    let at = "/api/v1/runs/demo";
    let tasks = world.get(&format!("{at}/tasks?limit=1")).json();
    let task = tasks["tasks"][0]["name"].as_str().unwrap().to_owned();
    let shapes: Vec<(String, Value)> = ["", "/tasks?limit=1", "/plan", &format!("/tasks/{task}")]
        .iter()
        .map(|path| ((*path).to_owned(), shape(&world.get(&format!("{at}{path}")).json())))
        .collect();
    let mut text = String::new();
    for (path, shape) in &shapes {
        writeln!(text, "{path}\n{}", serde_json::to_string_pretty(shape).unwrap()).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn pages_of_tasks_make_up_the_whole_list() {
    let world = World::of(&[("many", usize::MAX)]);
    let at = "/api/v1/runs/many/tasks";
    let names = |page: &Value| -> Vec<String> {
        let tasks = page["tasks"].as_array().unwrap();
        tasks.iter().map(|task| task["name"].as_str().unwrap().to_owned()).collect()
    };
    let whole = names(&world.get(&format!("{at}?limit=1000")).json());
    assert!(whole.len() > 10);
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("{at}?limit=7&fields=name,stage{cursor}")).json();
        let first = page["tasks"][0].as_object().unwrap();
        assert_eq!(first.keys().collect::<Vec<_>>(), ["name", "stage"]);
        found.extend(names(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, whole);
    let some = world.get(&format!("{at}?stage=done&name={}", &whole[3])).json();
    assert!(names(&some).contains(&whole[3]), "{some}");
    assert_eq!(some["matching"], names(&some).len());
    let none = world.get(&format!("{at}?stage=failed,paused")).json();
    assert_eq!((names(&none).len(), &none["next"]), (0, &Value::Null));
}

#[test]
fn wrong_questions_are_refused_in_words() {
    let world = World::of(&[("demo", usize::MAX)]);
    for (path, status, words) in [
        ("/api/v1/runs/nothing", 404, "there is no run `nothing`"),
        ("/api/v1/runs/demo/tasks/nobody", 404, "there is no task `nobody`; there are"),
        ("/api/v1/runs/demo/tasks/nobody/logs", 404, "there is no task `nobody`"),
        ("/api/v1/runs/demo/tasks?cursor=7", 400, "`7` is no cursor"),
        ("/api/v1/runs/demo/tasks?limit=0", 400, "between 1 and 1000"),
        ("/api/v1/runs/demo/tasks?limit=many", 400, "invalid digit"),
        ("/api/v1/runs/demo/tasks?stage=asleep", 400, "unknown variant `asleep`"),
        ("/api/v1/runs/demo/tasks?fields=name,colour", 400, "no field `colour`; there are"),
        ("/api/v1/runs/demo/tasks?sort=name", 400, "unknown field `sort`"),
        ("/api/v1/runs/..%2Fdemo", 404, "no run"),
        ("/api/v1/nonsense", 404, "nothing at this address"),
        ("/nonsense", 404, "nothing at this address"),
    ] {
        let answer = world.get(path);
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text);
        assert_eq!(offences(&answer.json(), "Refusal"), [""; 0], "{path}");
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(words), "{path}: {error}");
    }
    let posted = world.with_token(Method::POST, "/api/v1/runs").body(Body::empty()).unwrap();
    assert_eq!(world.send(posted).status, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn a_plan_has_a_tag_that_changes_with_it_alone() {
    let mut world = World::of(&[("demo", 60)]);
    let path = "/api/v1/runs/demo/plan";
    let first = world.get(path);
    let tag = first.headers["etag"].clone();
    let again = |world: &World| {
        let request = world.with_token(Method::GET, path).header("if-none-match", &tag);
        world.send(request.body(Body::empty()).unwrap())
    };
    let known = again(&world);
    assert_eq!((known.status, known.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    let mut tags = BTreeSet::from([tag.to_str().unwrap().to_owned()]);
    for _ in 0..world.recorded[0].num_records() / 40 {
        world.recorded[0].write(40);
        std::thread::park_timeout(std::time::Duration::from_millis(520));
        tags.insert(again(&world).headers["etag"].to_str().unwrap().to_owned());
        if tags.len() > 1 {
            break;
        }
    }
    assert!(tags.len() > 1, "the run adopted no other plan");
    assert_eq!(again(&world).status, StatusCode::OK);
}

#[test]
fn damage_is_told_and_does_not_spread() {
    let world = World::of(&[("demo", usize::MAX), ("wide", usize::MAX)]);
    std::fs::write(world.dir.path().join("wide/journal.db"), "no database").unwrap();
    let _ = std::fs::remove_file(world.dir.path().join("wide/journal.db-wal"));
    let runs = world.get("/api/v1/runs").json();
    let states: Vec<&str> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["complete", "damaged"]);
    let answer = world.get("/api/v1/runs/wide");
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.json()["error"].as_str().unwrap().contains("journal"), "{}", answer.text);
    assert_eq!(world.get("/api/v1/runs/demo").status, StatusCode::OK);
}
