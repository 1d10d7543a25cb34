//! Commands to a run, each carried out at most once by its key.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use saturn_engine::{Command, RefusalCode};
use serde_json::{Map, Value, json};

use crate::answers::failure::{Failure, FailureKind};
use crate::http::app::App;
use crate::http::done::Outcome;
use crate::http::reply::{self, answer};
use crate::http::routes::KEY_HEADER;

/// The commands that may come by HTTP. A submission names files that workers unpickle, and comes by
/// the run's own socket alone, as do the rulings and notes of tuners.
const BY_HTTP: [&str; 7] = ["cancel", "close", "pause", "stop", "take_back", "unpause", "wish"];
/// The longest key, bytes.
const MAX_KEY: usize = 128;

pub(crate) async fn command(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    body: Result<Json<Map<String, Value>>, JsonRejection>,
) -> Response {
    let command = match body.map_err(|error| error.body_text()).and_then(|Json(body)| read(body)) {
        Ok(command) => command,
        Err(reason) => {
            app.answered.count("", "bad_request");
            return reply::bad_request(&reason);
        }
    };
    let name = name_of(&command);
    let outcome = match headers.get(KEY_HEADER).map(|key| key.to_str().unwrap_or_default()) {
        None => carry_out(&app, run, command).await,
        Some(key) if key.is_empty() || key.len() > MAX_KEY => {
            app.answered.count(&name, "bad_request");
            return reply::bad_request(&format!(
                "`{KEY_HEADER}` is not between 1 and {MAX_KEY} letters long"
            ));
        }
        Some(key) => once(&app, run, key, command).await,
    };
    let code = outcome.as_ref().err().map(|failure| reply::status_of(failure.kind).1);
    app.answered.count(&name, code.as_deref().unwrap_or("ok"));
    match outcome {
        Ok(()) => answer(&json!({"version": 1, "ok": true})),
        Err(failure) => failure.into_response(),
    }
}

/// Reads a command. The error is for the client.
fn read(body: Map<String, Value>) -> Result<Command, String> {
    let name = body.get("command").and_then(Value::as_str).unwrap_or_default();
    if !BY_HTTP.contains(&name) {
        let known = BY_HTTP.join(", ");
        return Err(format!("`command` is `{name}`; those that come by HTTP are {known}"));
    }
    serde_json::from_value(Value::Object(body)).map_err(|error| error.to_string())
}

/// The name of a command, as clients say it.
fn name_of(command: &Command) -> String {
    let command = serde_json::to_value(command).unwrap_or_default();
    command.get("command").and_then(Value::as_str).unwrap_or_default().to_owned()
}

async fn carry_out(app: &App, run: String, command: Command) -> Outcome {
    app.write(move |source| source.command(&run, command)).await
}

/// Carries a command out unless that was done under its key already.
async fn once(app: &App, run: String, key: &str, command: Command) -> Outcome {
    let entry = app.done.entry(&run, key, &command);
    if entry.command != command {
        let reason = format!("another command had the key `{key}`");
        return Err(FailureKind::BadRequest.because(reason));
    }
    let mut outcome = entry.outcome.lock().await;
    if let Some(known) = &*outcome {
        return known.clone();
    }
    let found = carry_out(app, run, command).await;
    // A command that may not have reached the run may be sent again.
    let is_final = !matches!(
        &found,
        Err(Failure {
            kind: FailureKind::Busy
                | FailureKind::NotDriven
                | FailureKind::NoSuchRun
                | FailureKind::Internal
                | FailureKind::Refused(RefusalCode::Busy),
            ..
        })
    );
    if is_final {
        *outcome = Some(found.clone());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_engine_and_no_others() {
        let read = |body: Value| read(body.as_object().unwrap().clone());
        assert_eq!(
            read(json!({"command": "pause", "task": "a"})),
            Ok(Command::Pause { task: "a".to_owned() })
        );
        assert_eq!(read(json!({"command": "stop"})), Ok(Command::Stop { at_once: false }));
        for (body, words) in [
            (json!({"command": "submit", "tasks": []}), "those that come by HTTP are cancel"),
            (json!({"command": "note", "text": "x"}), "those that come by HTTP"),
            (json!({}), "`command` is ``"),
            (json!({"command": "pause"}), "missing field `task`"),
            (json!({"command": "pause", "task": "a", "soon": 1}), "soon"),
            (json!({"command": "wish", "task": "a", "priority": "high"}), "invalid type"),
        ] {
            let error = read(body.clone()).unwrap_err();
            assert!(error.contains(words), "{body}: {error}");
        }
    }
}
