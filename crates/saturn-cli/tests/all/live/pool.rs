//! The pool of `saturn serve`, among runs: found by its name, and listed before them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Place, said, until};

#[test]
fn the_pool_is_found_by_its_name_and_takes_no_tasks_of_another_environment() {
    let place = Place::new();
    let (code, _, error) = place.saturn(&["submit", "sweep.toml"]);
    assert_eq!(
        (code, error.as_str()),
        (
            2,
            "error: there is no pool; to start one: saturn serve; to use another person's: saturn \
             join DOOR\n"
        )
    );

    let pools = place.home().join("pools");
    std::fs::create_dir_all(pools.join("20260102-000000")).unwrap(); // a start that was refused
    let run = place.start("it", &[("short", 20)]);
    place.make_pool("it");
    let (code, out, _) = place.saturn(&["status", "pool", "--json"]);
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, status["tasks"][0]["name"].as_str()), (0, Some("short")));
    let (code, _, error) = place.saturn(&["submit", "sweep.toml"]);
    assert_eq!(code, 2);
    assert!(error.contains("only be submitted from the environment that trains them"), "{error}");
    let (code, _, error) = place.saturn(&["close", "pool"]);
    assert_eq!(code, 0, "{error}");
    run.wait();
}

#[test]
fn the_pool_is_listed_before_the_runs_of_this_directory() {
    let place = Place::new();
    let mut shown = String::new();
    let mut show = |what: &str| {
        let (code, out, error) = place.saturn(&["runs"]);
        assert_eq!((code, error.as_str()), (0, ""));
        writeln!(shown, "{what}").unwrap();
        for line in out.lines() {
            let line = line.replace(&std::process::id().to_string(), "PID");
            // A run's line ends with how long ago it began.
            let line =
                if line.starts_with(' ') { &line } else { line.rsplit_once("  ").unwrap().0 };
            writeln!(shown, "    {line}").unwrap();
        }
    };
    std::fs::create_dir_all(place.home().join("pools")).unwrap();
    let run = place.start("it", &[("long", 6000)]);
    place.make_pool("it");
    show("in progress:");
    let listed = &place.json(&["runs", "--json"])["runs"];
    let facts = |i: usize| ["name", "pool", "tasks", "next"].map(|key| listed[i][key].clone());
    assert_eq!(facts(0), [json!("pool"), json!(true), json!(1), json!("saturn status pool")]);
    assert_eq!(facts(1), [json!("it"), json!(false), json!(1), json!("saturn status it")]);
    let there = place.json(&["runs", place.run_dir("").to_str().unwrap(), "--json"]);
    assert_eq!(there["runs"].as_array().unwrap().len(), 1, "the pool is in no directory: {there}");

    drop(run); // a stop at checkpoints
    show("stopped:");
    let child = place.spawn(&["resume", "it"]);
    until(|| place.stage("it", "long") == "running");
    assert_eq!(place.saturn(&["close", "pool"]).0, 0);
    let (code, out, _) = place.saturn(&["runs"]);
    assert!(code == 0 && out.contains("closed: it ends once its tasks have ended"), "{out}");
    assert_eq!(place.saturn(&["cancel", "pool", "long"]).0, 0);
    said(&child.wait_with_output().unwrap());
    show("closed, and its task cancelled:");
    insta::assert_snapshot!("runs_with_a_pool", shown);

    // A run of that name is what other verbs mean by `pool`.
    std::fs::rename(place.run_dir("it"), place.run_dir("pool")).unwrap();
    std::fs::remove_file(place.pool()).unwrap();
    place.make_pool("pool");
    let next = &place.json(&["runs", "--json"])["runs"][0]["next"];
    assert_eq!(next, &json!(format!("saturn report {}", place.pool().display())));
}

#[test]
fn what_needs_a_journal_is_refused_of_another_persons_pool() {
    let place = Place::new();
    let joined = place.home().join("joined");
    std::fs::create_dir_all(joined.join("srv_pool")).unwrap();
    std::os::unix::fs::symlink("srv_pool", joined.join("pool")).unwrap();
    // No process drives that pool.
    let socket = joined.join("srv_pool").join("control.sock");
    std::os::unix::fs::symlink("/srv/pool/control.sock", socket).unwrap();
    for verb in ["report", "trace", "web", "resume"] {
        let (code, _, error) = place.saturn(&[verb, "pool"]);
        assert_eq!(code, 2, "{verb}: {error}");
        let expected = "pool is another person's pool, and only that person has its journal; what \
                        you can see of it: saturn status pool, saturn explain pool TASK, saturn \
                        logs pool TASK\n";
        assert_eq!(error, format!("error: {expected}"), "{verb}");
    }
}
