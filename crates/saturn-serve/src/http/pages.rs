//! Handlers of pages.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Redirect, Response};
use saturn_view::{LIVE_POLICY, RunRow, failure_page, login_page, runs_page};

use crate::answers::data::RunSummary;
use crate::answers::failure::Failure;
use crate::answers::source::Source;
use crate::http::app::App;
use crate::http::login::{Shown, with_session};
use crate::http::reply::status_of;

pub(crate) async fn runs(State(app): State<Arc<App>>) -> Response {
    match app.read(Source::runs).await {
        Ok(runs) => {
            let now_unix_s = now_unix_s();
            let rows: Vec<RunRow> = runs.into_iter().map(|run| row(run, now_unix_s)).collect();
            page(StatusCode::OK, runs_page(&rows))
        }
        Err(failure) => failed(&failure),
    }
}

fn row(run: RunSummary, now_unix_s: u64) -> RunRow {
    let others = [
        (run.diverged, "diverged"),
        (run.failed, "failed"),
        (run.cancelled, "cancelled"),
        (run.stopped, "stopped"),
    ];
    RunRow {
        name: run.name,
        is_pool: run.pool,
        state: run.state,
        error: run.error,
        age_s: now_unix_s.saturating_sub(run.begun_unix_s) as f64,
        tasks: run.tasks,
        running: run.running,
        done: run.done,
        others: others.into_iter().filter(|(number, _)| *number > 0).collect(),
    }
}

pub(crate) async fn run(State(app): State<Arc<App>>, Path(run): Path<String>) -> Response {
    // Drawing a large run takes a while too.
    let rendered = app.read(move |source| Ok(source.run_page(&run)?.render())).await;
    rendered.map_or_else(|failure| failed(&failure), |text| page(StatusCode::OK, text))
}

pub(crate) async fn task(
    State(app): State<Arc<App>>,
    Path((run, task)): Path<(String, String)>,
) -> Response {
    let rendered = app.read(move |source| Ok(source.task_page(&run, &task)?.render())).await;
    rendered.map_or_else(|failure| failed(&failure), |text| page(StatusCode::OK, text))
}

pub(crate) async fn login() -> Response {
    page(StatusCode::OK, login_page(false))
}

/// Logs a browser in that runs no script.
pub(crate) async fn log_in(
    State(app): State<Arc<App>>,
    shown: Result<Form<Shown>, FormRejection>,
) -> Response {
    let token = shown.map(|Form(Shown { token })| token).unwrap_or_default();
    match with_session(&app, &token, Redirect::to("/").into_response()) {
        Some(response) => response,
        None => page(StatusCode::UNAUTHORIZED, login_page(true)),
    }
}

fn failed(failure: &Failure) -> Response {
    let (status, _) = status_of(failure.kind);
    let title = if status == StatusCode::NOT_FOUND { "Not here" } else { "No answer" };
    page(status, failure_page(title, &failure.reason))
}

fn page(status: StatusCode, text: String) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(LIVE_POLICY)),
    ];
    (status, headers, text).into_response()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long ago a run began is a matter of the present"
)]
fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
