//! A source that always panics: every request gets an answer, and the server goes on.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use saturn_engine::Command;
use saturn_view::{Explanation, PlanInForce, RunPage, Status, TaskPage};
use tower_service::Service;

use crate::answers::data::{Events, LogPart, LogQuery, RunMetrics, RunSummary, Seen};
use crate::answers::failure::Failure;
use crate::answers::source::Source;
use crate::http::app::App;
use crate::http::keys::Keys;
use crate::http::router::router;
use crate::http::routes::{Access, HEADER, ROUTES, Verb};

struct Panics;

impl Source for Panics {
    fn runs(&self) -> Result<Vec<RunSummary>, Failure> {
        panic!("of the test")
    }

    fn status(&self, _: &str) -> Result<Seen<Arc<Status>>, Failure> {
        panic!("of the test")
    }

    fn explain(&self, _: &str, _: Option<&str>) -> Result<Seen<Explanation>, Failure> {
        panic!("of the test")
    }

    fn plan(&self, _: &str) -> Result<Seen<Option<PlanInForce>>, Failure> {
        panic!("of the test")
    }

    fn log(&self, _: &str, _: &str, _: &LogQuery) -> Result<LogPart, Failure> {
        panic!("of the test")
    }

    fn events(&self, _: &str, _: u64, _: usize) -> Result<Events, Failure> {
        panic!("of the test")
    }

    fn run_page(&self, _: &str) -> Result<RunPage, Failure> {
        panic!("of the test")
    }

    fn task_page(&self, _: &str, _: &str) -> Result<TaskPage, Failure> {
        panic!("of the test")
    }

    fn metrics(&self) -> Result<Vec<RunMetrics>, Failure> {
        panic!("of the test")
    }

    fn command(&self, _: &str, _: Command) -> Result<(), Failure> {
        panic!("of the test")
    }
}

#[test]
fn a_panic_is_an_answer() {
    let (keys, token) = Keys::new().unwrap();
    let router = router(Arc::new(App::new(Arc::new(Panics), keys, 7340)));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let asks_source = |access: Access, path: &str| {
        matches!(access, Access::Read | Access::Write) && path != "/api/v1/openapi.json"
    };
    let asked = ROUTES.iter().filter(|route| asks_source(route.access, route.path));
    for route in asked.filter(|route| route.verb != Verb::Delete).cycle().take(40) {
        let method = if route.verb == Verb::Get { Method::GET } else { Method::POST };
        let request = Request::builder()
            .method(method)
            .uri(route.path.replace(['{', '}'], ""))
            .header("host", "localhost:7340")
            .header("authorization", format!("Bearer {token}"))
            .header(HEADER, "1")
            .header("content-type", "application/json")
            .body(Body::from(r#"{"command":"close"}"#))
            .unwrap();
        let mut router = router.clone();
        let response = runtime.block_on(router.call(request)).unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{}", route.path);
    }
}
