//! The pages of recorded runs: what a reader without scripts finds on them.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};

use crate::tests::world::{PORT, World};

/// The values of an attribute on a page.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    page.split(start.as_str()).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn every_page_is_reached_by_links_and_has_landmarks_and_names() {
    let world = World::of(&[("demo", 150), ("failing-task", usize::MAX)]);
    let mut waiting = vec!["/".to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(address) = waiting.pop() {
        if !seen.insert(address.clone()) {
            continue;
        }
        let answer = world.get(&address);
        assert_eq!(answer.status, StatusCode::OK, "{address}: {}", answer.text);
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self';") && policy.contains("'sha256-"));
        let page = &answer.text;
        for part in [
            "<html lang=\"en\">",
            "<main id=\"main\"",
            "<nav aria-label=",
            "<h1>",
            "class=\"skip\"",
        ] {
            assert!(page.contains(part), "{address} has no {part}");
        }
        assert_eq!(page.matches("<h1>").count(), 1, "{address}");
        let ids = values(page, "id");
        let unique: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), unique.len(), "{address}: {ids:?}");
        for label in values(page, "aria-labelledby") {
            assert!(unique.contains(label), "{address}: {label}");
        }
        assert!(!page.contains("https://") && !page.contains("http://"), "{address}");
        let links = values(page, "href").into_iter().filter(|link| link.starts_with('/'));
        waiting.extend(links.map(|link| link.replace("&amp;", "&")));
    }
    assert!(seen.len() > 12, "{seen:?}");
    assert!(seen.iter().any(|address| address.contains("/tasks/")));
}

#[test]
fn a_page_tells_without_scripts_what_the_run_does() {
    let world = World::of(&[("demo", 150), ("failing-task", usize::MAX)]);
    let page = world.get("/runs/demo").text;
    // Nobody drives the recorded run, so that it has died and nothing is expected.
    for words in ["died", "Queue", "Ended", "Devices", "News", "waits"] {
        assert!(page.contains(words), "no {words}");
    }
    let failing = world.get("/api/v1/runs/failing-task/tasks?stage=failed&fields=name").json();
    let name = failing["tasks"][0]["name"].as_str().unwrap();
    let page = world.get(&format!("/runs/failing-task/tasks/{name}")).text;
    assert!(page.contains("failed_own_code") && page.contains("What else it could be"), "{page}");
    let nowhere = world.get("/runs/nowhere");
    assert_eq!(nowhere.status, StatusCode::NOT_FOUND);
    assert!(nowhere.text.contains("there is no run `nowhere`"), "{}", nowhere.text);
}

#[test]
fn a_browser_without_scripts_logs_in_by_a_form() {
    let world = World::of(&[("demo", usize::MAX)]);
    let head = |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path);
        request.header("host", format!("127.0.0.1:{PORT}"))
    };
    let first = world.send(head(Method::GET, "/runs/demo").body(Body::empty()).unwrap());
    assert_eq!(
        (first.status, &first.headers["location"]),
        (StatusCode::SEE_OTHER, &"/login".parse().unwrap())
    );
    assert!(
        world
            .send(head(Method::GET, "/login").body(Body::empty()).unwrap())
            .text
            .contains("<form method=\"post\"")
    );
    let show = |token: &str| {
        let request = head(Method::POST, "/login")
            .header("origin", format!("http://127.0.0.1:{PORT}"))
            .header("content-type", "application/x-www-form-urlencoded");
        world.send(request.body(Body::from(format!("token={token}"))).unwrap())
    };
    let wrong = show(&"1".repeat(64));
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(wrong.text.contains("not the token") && !wrong.headers.contains_key("set-cookie"));
    let right = show(&world.token);
    assert_eq!(right.status, StatusCode::SEE_OTHER);
    let cookie =
        right.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let page =
        world.send(head(Method::GET, "/").header("cookie", cookie).body(Body::empty()).unwrap());
    assert_eq!(page.status, StatusCode::OK);
    assert!(!page.text.contains(&world.token), "no page shows the token");
}
