//! Handlers that read.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use axum::response::{IntoResponse, Response};
use saturn_engine::Stage;
use saturn_view::{Status, TaskStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::answers::data::LogQuery;
use crate::answers::failure::{Failure, FailureKind};
use crate::answers::source::Source;
use crate::http::app::App;
use crate::http::reply::{self, answer};

/// Tasks of a page, by default and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;
/// Fields of a task that are left out where they say nothing. A query may ask for them all the same.
const LEFT_OUT: [&str; 4] = ["is_rest", "start_step", "is_held", "owner"];
/// Bytes of a part of a log by default.
const LOG_BYTES: u64 = 64 << 10;

pub(crate) async fn runs(State(app): State<Arc<App>>) -> Response {
    let found = app.read(Source::runs).await;
    responded(found, |runs| json!({"version": 1, "runs": runs}))
}

pub(crate) async fn run(State(app): State<Arc<App>>, Path(run): Path<String>) -> Response {
    let name = run.clone();
    // Thousands of tasks are not turned into JSON on a thread that others wait for.
    let found = app.read(move |source| {
        let seen = source.status(&name)?;
        let mut status = to_value(&*seen.value);
        if let Value::Object(fields) = &mut status {
            fields.remove("tasks");
        }
        Ok((seen.event, status))
    });
    responded(
        found.await,
        |(event, status)| json!({"version": 1, "run": run, "event": event, "status": status}),
    )
}

/// The query of a list of tasks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    cursor: Option<String>,
    limit: Option<usize>,
    stage: Option<String>,
    name: Option<String>,
    fields: Option<String>,
}

pub(crate) async fn tasks(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Response {
    let Query(wanted) = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return reply::bad_request(&error.body_text()),
    };
    let name = run.clone();
    let page = app.read(move |source| {
        let seen = source.status(&name)?;
        let Page { tasks, num_matching, next } = page(&seen.value, &wanted)?;
        Ok(json!({
            "version": 1, "run": run, "event": seen.event, "now_s": seen.value.now_s,
            "matching": num_matching, "tasks": tasks, "next": next,
        }))
    });
    responded(page.await, |page| page)
}

struct Page {
    tasks: Vec<Value>,
    num_matching: usize,
    next: Option<String>,
}

/// The tasks that a query wants. The cursor is the number of the first task of the page: tasks are
/// never removed or put into another order.
fn page(status: &Status, wanted: &Wanted) -> Result<Page, Failure> {
    let wrong = |reason: String| FailureKind::BadRequest.because(reason);
    let first: usize = match wanted.cursor.as_deref() {
        None => 0,
        Some(cursor) => cursor
            .strip_prefix('t')
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| wrong(format!("`{cursor}` is no cursor of this list")))?,
    };
    let limit = wanted.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(wrong(format!("`limit` is {limit}, not between 1 and {MAX_PAGE}")));
    }
    let stages: Option<Vec<Stage>> = wanted.stage.as_deref().map(stages).transpose()?;
    let fields: Option<Vec<&str>> = wanted.fields.as_deref().map(|all| all.split(',').collect());
    if let (Some(fields), Some(task)) = (&fields, status.tasks.first()) {
        let task = to_value(task);
        for field in fields {
            if task.get(field).is_none() && !LEFT_OUT.contains(field) {
                let known = task.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
                let known = known.unwrap_or_default().join(", ");
                return Err(wrong(format!("there is no field `{field}`; there are {known}")));
            }
        }
    }
    let is_wanted = |task: &TaskStatus| {
        stages.as_ref().is_none_or(|stages| stages.contains(&task.stage))
            && wanted.name.as_ref().is_none_or(|name| task.name.contains(name.as_str()))
    };
    let num_matching = status.tasks.iter().filter(|task| is_wanted(task)).count();
    let rest = status.tasks.iter().enumerate().skip(first).filter(|(_, task)| is_wanted(task));
    let mut rest = rest.peekable();
    let mut tasks = Vec::new();
    while tasks.len() < limit
        && let Some((_, task)) = rest.next()
    {
        tasks.push(with_fields(task, fields.as_deref()));
    }
    let next = rest.peek().map(|(number, _)| format!("t{number}"));
    Ok(Page { tasks, num_matching, next })
}

fn stages(text: &str) -> Result<Vec<Stage>, Failure> {
    let read = |one: &str| {
        serde_json::from_value(Value::String(one.to_owned()))
            .map_err(|error| FailureKind::BadRequest.because(format!("`stage`: {error}")))
    };
    text.split(',').map(read).collect()
}

/// A task with these fields alone.
fn with_fields(task: &TaskStatus, fields: Option<&[&str]>) -> Value {
    match (to_value(task), fields) {
        (Value::Object(all), Some(fields)) => {
            let kept = all.into_iter().filter(|(name, _)| fields.contains(&name.as_str()));
            Value::Object(kept.collect::<Map<String, Value>>())
        }
        (task, _) => task,
    }
}

pub(crate) async fn task(
    State(app): State<Arc<App>>,
    Path((run, task)): Path<(String, String)>,
) -> Response {
    let (run_name, task_name) = (run.clone(), task.clone());
    let found = app.read(move |source| {
        let explained = source.explain(&run_name, Some(&task_name))?;
        Ok((explained, source.status(&run_name)?))
    });
    responded(found.await, |(explained, status)| {
        let of_task = status.value.tasks.iter().find(|one| one.name == task);
        json!({
            "version": 1, "run": run, "event": explained.event,
            "task": of_task, "explanation": explained.value,
        })
    })
}

/// The query of a log.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedLog {
    attempt: Option<u64>,
    rank: Option<u32>,
    from: Option<u64>,
    bytes: Option<u64>,
}

pub(crate) async fn logs(
    State(app): State<Arc<App>>,
    Path((run, task)): Path<(String, String)>,
    wanted: Result<Query<WantedLog>, QueryRejection>,
) -> Response {
    let Query(WantedLog { attempt, rank, from, bytes }) = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return reply::bad_request(&error.body_text()),
    };
    let query = LogQuery { attempt, rank, from, bytes: bytes.unwrap_or(LOG_BYTES) };
    let (run_name, task_name) = (run.clone(), task.clone());
    let found = app.read(move |source| source.log(&run_name, &task_name, &query)).await;
    responded(found, |part| json!({"version": 1, "run": run, "task": task, "log": part}))
}

pub(crate) async fn plan(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
) -> Response {
    let name = run.clone();
    let found = match app.read(move |source| source.plan(&name)).await {
        Ok(found) => found.value,
        Err(failure) => return failure.into_response(),
    };
    let body = json!({"version": 1, "run": run, "plan": found});
    let digest: [u8; 32] = Sha256::digest(body.to_string().as_bytes()).into();
    let short = digest[..8].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let tag = format!("\"{short:016x}\"");
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|value| value.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.trim_start_matches("W/") == tag
    });
    let mut response =
        if is_known { StatusCode::NOT_MODIFIED.into_response() } else { answer(&body) };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

pub(crate) async fn openapi() -> Response {
    answer(&crate::http::openapi::openapi())
}

fn responded<T>(found: Result<T, Failure>, body: impl FnOnce(T) -> Value) -> Response {
    match found {
        Ok(found) => answer(&body(found)),
        Err(failure) => failure.into_response(),
    }
}

/// Plain data with string keys always serialises.
fn to_value(data: &impl Serialize) -> Value {
    serde_json::to_value(data).unwrap_or_default()
}
