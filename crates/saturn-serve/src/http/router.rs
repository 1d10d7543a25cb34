//! The router: every route with its handler, behind the gate.

use crate::answers::failure::FailureKind;
use crate::http::app::App;
use crate::http::commands;
use crate::http::events;
use crate::http::gate;
use crate::http::login;
use crate::http::metrics;
use crate::http::pages;
use crate::http::reading;
use crate::http::reply;
use crate::http::routes::{Handler, ROUTES, Route};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, delete, get, post};
use std::sync::Arc;

/// The largest body of a request, bytes.
const MAX_BODY: usize = 64 << 10;
/// The router of an application.
pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let gate = from_fn_with_state((Arc::clone(&app), route), gate::inner);
        router = router.route(route.path, handled(route).layer(gate));
    }
    router
        .fallback(|| async { reply::no_route() })
        .method_not_allowed_fallback(|| async { reply::no_method() })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(caught))
        .layer(from_fn_with_state(Arc::clone(&app), gate::outer))
        .with_state(app)
}

/// Runs a handler as a task of its own, so that its panic is an answer.
async fn caught(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    let handled = tokio::spawn(next.run(request));
    handled.await.unwrap_or_else(|_| {
        FailureKind::Internal.because("the answer could not be computed").into_response()
    })
}

fn handled(route: &Route) -> MethodRouter<Arc<App>> {
    match route.handler {
        Handler::RunsPage => get(pages::runs),
        Handler::RunPage => get(pages::run),
        Handler::TaskPage => get(pages::task),
        Handler::LoginPage => get(pages::login),
        Handler::LoginForm => post(pages::log_in),
        Handler::OpenApi => get(reading::openapi),
        Handler::LogIn => post(login::log_in),
        Handler::LogOut => delete(login::log_out),
        Handler::Metrics => get(metrics::metrics),
        Handler::Runs => get(reading::runs),
        Handler::Run => get(reading::run),
        Handler::Tasks => get(reading::tasks),
        Handler::Task => get(reading::task),
        Handler::Logs => get(reading::logs),
        Handler::Plan => get(reading::plan),
        Handler::Events => get(events::events),
        Handler::Command => post(commands::command),
    }
}
