//! Answers and refusals as HTTP has them.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use saturn_engine::RefusalCode;
use serde_json::{Value, json};

use crate::answers::failure::{Failure, FailureKind};

/// The policy of what is no page: nothing may be loaded.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Why a request is refused before any run is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its Host is not this server's.
    WrongHost,
    /// It comes from a page of another site.
    WrongOrigin,
    /// Nobody is logged in.
    NotLoggedIn,
    /// It changes something, and has no header of ours.
    NoHeader,
    /// It changes something, and its body is no JSON.
    NotJson,
}

/// An answer as JSON.
pub(crate) fn answer(value: &Value) -> Response {
    json_body(StatusCode::OK, value)
}

fn json_body(status: StatusCode, value: &Value) -> Response {
    let body = value.to_string() + "\n";
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

fn refusal(status: StatusCode, code: &str, reason: &str) -> Response {
    json_body(status, &json!({"version": 1, "ok": false, "code": code, "error": reason}))
}

/// A refusal of a request that is wrong in itself.
pub(crate) fn bad_request(reason: &str) -> Response {
    refusal(StatusCode::BAD_REQUEST, "bad_request", reason)
}

/// The answer where there is no such route.
pub(crate) fn no_route() -> Response {
    refusal(StatusCode::NOT_FOUND, "no_such_address", "there is nothing at this address")
}

/// The answer where a route does not take this method.
pub(crate) fn no_method() -> Response {
    let reason = "this address takes another method";
    refusal(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", reason)
}

/// The answer where a request took too long.
pub(crate) fn too_slow() -> Response {
    let reason = "the answer, or the request itself, took too long";
    refusal(StatusCode::GATEWAY_TIMEOUT, "no_answer", reason)
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, code, reason) = match self {
            Self::WrongHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "wrong_host",
                "this server answers to 127.0.0.1, localhost and [::1] with its port alone, so \
                 that no other site can reach it by a name of its own",
            ),
            Self::WrongOrigin => (
                StatusCode::FORBIDDEN,
                "wrong_origin",
                "this request comes from a page of another site, or does not say where it comes \
                 from",
            ),
            Self::NotLoggedIn => (
                StatusCode::UNAUTHORIZED,
                "not_logged_in",
                "open the address that `saturn web` printed, or send its token: Authorization: \
                 Bearer TOKEN",
            ),
            Self::NoHeader => (
                StatusCode::FORBIDDEN,
                "no_header",
                "a request that changes something needs the header X-Saturn: 1",
            ),
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                "a request that changes something needs Content-Type: application/json",
            ),
        };
        let mut response = refusal(status, code, reason);
        if self == Self::NotLoggedIn {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, code) = status_of(self.kind);
        let mut response = refusal(status, &code, &self.reason);
        if self.kind == FailureKind::Busy {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The status and the code of a failure.
pub(crate) fn status_of(kind: FailureKind) -> (StatusCode, String) {
    let (status, code) = match kind {
        FailureKind::NoSuchRun => (StatusCode::NOT_FOUND, "no_such_run"),
        FailureKind::NotThere => (StatusCode::NOT_FOUND, "not_there"),
        FailureKind::BadRequest => (StatusCode::BAD_REQUEST, "bad_request"),
        FailureKind::Refused(code) => {
            let text = serde_json::to_value(code).ok();
            let text = text.and_then(|text| text.as_str().map(str::to_owned));
            let status = match code {
                RefusalCode::Busy => StatusCode::SERVICE_UNAVAILABLE,
                RefusalCode::UnknownTask | RefusalCode::NoSuchDevice => StatusCode::NOT_FOUND,
                RefusalCode::BadValue => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::CONFLICT,
            };
            return (status, text.unwrap_or_else(|| "refused".to_owned()));
        }
        FailureKind::NotDriven => (StatusCode::CONFLICT, "not_driven"),
        FailureKind::NoAnswer => (StatusCode::GATEWAY_TIMEOUT, "no_answer"),
        FailureKind::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        FailureKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    };
    (status, code.to_owned())
}

/// Adds the headers that every answer has, unless the handler has set them.
pub(crate) fn harden(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, NOTHING),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Not `no-referrer`: browsers would then send no Origin with the form of the login.
        (REFERRER_POLICY, "same-origin"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
