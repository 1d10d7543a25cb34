//! Lets a request through to its handler, or refuses it: by its Host, its Origin, and who sends it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use crate::http::app::{App, Deadline};
use crate::http::connection::Guest;
use crate::http::reply::{self, Refused};
use crate::http::routes::{Access, HEADER, Route};

/// Who sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identity {
    /// Nobody who is known.
    Nobody,
    /// A browser with the cookie of a session.
    Browser,
    /// A program with the token.
    Program,
}

/// Checks the Host and the Origin of every request, also of one to an address that is not there, and
/// adds the headers of every answer.
pub(crate) async fn outer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match checked(&app, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    reply::harden(response.headers_mut());
    response
}

fn checked(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).ok_or(Refused::WrongHost)?;
    let is_ours = |name: &str| app.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name));
    let is_named_otherwise = uri.authority().is_some_and(|named| !is_ours(named.as_str()));
    if hosts.next().is_some() || !is_ours(host) || is_named_otherwise {
        return Err(Refused::WrongHost);
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(()),
        (Some(origin), None) if is_same_site(origin.to_str().ok(), host) => Ok(()),
        _ => Err(Refused::WrongOrigin),
    }
}

/// Whether an Origin is the page that this Host serves.
fn is_same_site(origin: Option<&str>, host: &str) -> bool {
    let named = origin.and_then(|origin| origin.strip_prefix("http://"));
    named.is_some_and(|named| named.eq_ignore_ascii_case(host))
}

/// Checks who sends a request to a route, and ends a request that takes too long.
pub(crate) async fn inner(
    State((app, route)): State<(Arc<App>, &'static Route)>,
    request: Request,
    next: Next,
) -> Response {
    let who = identity(&app, request.headers());
    if let Err(refused) = admitted(route, who, request.headers()) {
        let is_page = !route.is_for_programs();
        if refused == Refused::NotLoggedIn && is_page {
            return Redirect::to("/login").into_response();
        }
        return refused.into_response();
    }
    if who != Identity::Nobody
        && let Some(guest) = request.extensions().get::<Guest>()
    {
        guest.is_known();
    }
    let Deadline(limit) = Deadline::of(route);
    tokio::time::timeout(limit, next.run(request)).await.unwrap_or_else(|_| reply::too_slow())
}

fn admitted(route: &Route, who: Identity, headers: &HeaderMap) -> Result<(), Refused> {
    let is_json = || {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
    };
    let has_header = || headers.get(HEADER).is_some_and(|value| value == "1");
    let changes = || {
        // A program sends no Origin. A browser always sends it with what changes something.
        if who != Identity::Program && !headers.contains_key(ORIGIN) {
            Err(Refused::WrongOrigin)
        } else if !has_header() {
            Err(Refused::NoHeader)
        } else if !is_json() {
            Err(Refused::NotJson)
        } else {
            Ok(())
        }
    };
    match route.access {
        Access::Read | Access::Write if who == Identity::Nobody => Err(Refused::NotLoggedIn),
        Access::Form if !headers.contains_key(ORIGIN) => Err(Refused::WrongOrigin),
        Access::Open | Access::Read | Access::Form => Ok(()),
        Access::Login | Access::Write => changes(),
    }
}

fn identity(app: &App, headers: &HeaderMap) -> Identity {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    if bearer.is_some_and(|token| app.keys.is_token(token.trim())) {
        return Identity::Program;
    }
    if session(app, headers).is_some() { Identity::Browser } else { Identity::Nobody }
}

/// The key of the session that a request belongs to. Another program on a port of this host can
/// set cookies of the same name, of which none is right.
pub(crate) fn session(app: &App, headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == app.cookie && app.keys.is_session(value)).then(|| value.to_owned())
    })
}
