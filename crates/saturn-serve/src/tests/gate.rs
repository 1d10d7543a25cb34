//! Who may do what: every route, by identity, Host and Origin. The cases are made from the list of
//! routes.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};

use crate::http::routes::{Access, HEADER, ROUTES, Verb};
use crate::tests::world::{PORT, World};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Nobody,
    WrongToken,
    TokenOfAnEarlierServer,
    WrongCookie,
    EndedSession,
    CookieOfAnotherPort,
    Token,
    Cookie,
}

const ALL: [Who; 8] = [
    Who::Nobody,
    Who::WrongToken,
    Who::TokenOfAnEarlierServer,
    Who::WrongCookie,
    Who::EndedSession,
    Who::CookieOfAnotherPort,
    Who::Token,
    Who::Cookie,
];

/// Hosts and whether they are this server's.
const HOSTS: [(Option<&str>, bool); 9] = [
    (Some("127.0.0.1:7340"), true),
    (Some("localhost:7340"), true),
    (Some("LocalHost:7340"), true),
    (Some("[::1]:7340"), true),
    (Some("localhost"), false),
    (Some("localhost:7341"), false),
    (Some("evil.example:7340"), false),
    (Some("localhost:7340.evil.example"), false),
    (None, false),
];

/// Origins, `HOST` standing for the Host, and whether they are this server's.
const ORIGINS: [(Option<&str>, bool); 7] = [
    (None, true),
    (Some("http://HOST"), true),
    (Some("https://HOST"), false),
    (Some("http://evil.example"), false),
    (Some("http://localhost:9999"), false),
    (Some("null"), false),
    (Some(""), false),
];

fn path(route: &str) -> String {
    route.replace("{run}", "demo").replace("{task}", "no-such-task")
}

/// Logs in by the token; the cookie that the browser then has.
fn cookie(world: &World) -> String {
    let login = Request::builder()
        .method(Method::POST)
        .uri("/api/v1/session")
        .header("host", format!("localhost:{PORT}"))
        .header("origin", format!("http://localhost:{PORT}"))
        .header("content-type", "application/json")
        .header(HEADER, "1")
        .body(Body::from(format!("{{\"token\": \"{}\"}}", world.token)))
        .unwrap();
    let answer = world.send(login);
    let set = answer.headers["set-cookie"].to_str().unwrap();
    assert!(set.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{set}");
    set.split(';').next().unwrap().to_owned()
}

/// The request of this browser to log out.
fn log_out(cookie: &str) -> Request<Body> {
    Request::builder()
        .method(Method::DELETE)
        .uri("/api/v1/session")
        .header("host", format!("localhost:{PORT}"))
        .header("origin", format!("http://localhost:{PORT}"))
        .header("content-type", "application/json")
        .header(HEADER, "1")
        .header("cookie", cookie)
        .body(Body::empty())
        .unwrap()
}

#[test]
fn every_route_is_closed_to_everybody_else() {
    let world = World::of(&[("demo", usize::MAX)]);
    let short = World::lasting(&[], Duration::ZERO);
    let lasting = cookie(&world);
    let (name, value) = lasting.split_once('=').unwrap();
    let ended = cookie(&world);
    assert_eq!(world.send(log_out(&ended)).status, 200);
    let (mut num_cases, mut num_admitted) = (0, 0);
    for route in ROUTES {
        // Each request to log out begins a session of its own, and the oldest makes room.
        let lasting = cookie(&world);
        let method = match route.verb {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Delete => Method::DELETE,
        };
        for who in ALL {
            for (host, is_our_host) in HOSTS {
                for (origin, is_our_origin) in ORIGINS {
                    for has_header in [false, true] {
                        for kind in ["application/json", "text/plain"] {
                            let mut request =
                                Request::builder().method(method.clone()).uri(path(route.path));
                            if let Some(host) = host {
                                request = request.header("host", host);
                            }
                            if let Some(origin) = origin {
                                let origin = origin.replace("HOST", host.unwrap_or("localhost"));
                                request = request.header("origin", origin);
                            }
                            if has_header {
                                request = request.header(HEADER, "1");
                            }
                            request = request.header("content-type", kind);
                            let bearer = |token: &str| format!("Bearer {token}");
                            request = match who {
                                Who::Nobody => request,
                                Who::WrongToken => {
                                    request.header("authorization", bearer(&"0".repeat(64)))
                                }
                                Who::TokenOfAnEarlierServer => {
                                    request.header("authorization", bearer(&short.token))
                                }
                                Who::Token => request.header("authorization", bearer(&world.token)),
                                Who::WrongCookie => {
                                    request.header("cookie", format!("{name}={}", "0".repeat(64)))
                                }
                                Who::EndedSession => request.header("cookie", &ended),
                                Who::CookieOfAnotherPort => {
                                    request.header("cookie", format!("saturn-1={value}"))
                                }
                                // A request to log out ends its session.
                                Who::Cookie if route.verb == Verb::Delete => {
                                    request.header("cookie", cookie(&world))
                                }
                                Who::Cookie => request.header("cookie", &lasting),
                            };
                            // A body that no handler takes: what is let through changes nothing.
                            let answer = world.send(request.body(Body::from("{")).unwrap());
                            let is_known = matches!(who, Who::Token | Who::Cookie);
                            let changes = matches!(route.access, Access::Write | Access::Login);
                            let has_origin = origin.is_some() || who == Who::Token;
                            let is_admitted = is_our_host
                                && is_our_origin
                                && (is_known
                                    || !matches!(route.access, Access::Read | Access::Write))
                                && (route.access != Access::Form || origin.is_some())
                                && (!changes
                                    || (has_header && kind == "application/json" && has_origin));
                            // The form answers a wrong token by its page.
                            let is_form_page = route.access == Access::Form
                                && answer.status == 401
                                && answer.text.starts_with("<!DOCTYPE html>");
                            let was_admitted = is_form_page
                                || !matches!(
                                    answer.status.as_u16(),
                                    401 | 403 | 415 | 421 | 302 | 303
                                );
                            num_cases += 1;
                            num_admitted += usize::from(was_admitted);
                            assert_eq!(
                                was_admitted, is_admitted,
                                "{method} {} by {who:?}, {host:?}, {origin:?}, {has_header}, \
                                 {kind}: {} {}",
                                route.path, answer.status, answer.text
                            );
                            let nosniff = &answer.headers["x-content-type-options"];
                            assert_eq!(nosniff, "nosniff", "{}", route.path);
                            assert!(answer.headers.contains_key("content-security-policy"));
                        }
                    }
                }
            }
        }
    }
    assert!(num_admitted > 100 && num_cases > 20 * num_admitted, "{num_admitted} {num_cases}");
}
