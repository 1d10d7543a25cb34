//! Logging a browser in and out.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::header::{HeaderMap, HeaderValue, SET_COOKIE};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use crate::answers::failure::FailureKind;
use crate::http::app::App;
use crate::http::gate::session;
use crate::http::reply::{self, Refused};

/// The body of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shown {
    pub(crate) token: String,
}

/// Begins a session for who shows the token.
pub(crate) async fn log_in(
    State(app): State<Arc<App>>,
    shown: Result<Json<Shown>, JsonRejection>,
) -> Response {
    let Ok(Json(Shown { token })) = shown else {
        return reply::bad_request("expected {\"token\": \"…\"}");
    };
    let done = reply::answer(&json!({"version": 1, "ok": true}));
    let response = with_session(&app, &token, done);
    response.unwrap_or_else(|| Refused::NotLoggedIn.into_response())
}

/// Begins a session with this response; `None` if the token is not right.
pub(crate) fn with_session(app: &App, token: &str, response: Response) -> Option<Response> {
    if !app.keys.is_token(token.trim()) {
        return None;
    }
    Some(match app.keys.begin_session() {
        Ok(key) => with_cookie(app, &key, response),
        Err(_) => FailureKind::Internal.because("there is no randomness here").into_response(),
    })
}

/// Ends the session of this browser.
pub(crate) async fn log_out(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if let Some(key) = session(&app, &headers) {
        app.keys.end_session(&key);
    }
    with_cookie(&app, "; Max-Age=0", reply::answer(&json!({"version": 1, "ok": true})))
}

fn with_cookie(app: &App, value: &str, mut response: Response) -> Response {
    let cookie = format!("{}={value}; HttpOnly; SameSite=Strict; Path=/", app.cookie);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}
