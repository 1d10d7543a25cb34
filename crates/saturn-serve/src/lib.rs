//! The web face and the HTTP API of runs.
//!
//! - [`Source`] is where answers come from: the runs, their tasks, plans, events and logs, and the
//!   commands to them. Handlers know only this interface, so that a server for many people can
//!   bring a source of its own.
//! - [`Local`] is the source of one person on one machine. It is a client of each run's control
//!   socket, and reads journals as they grow.
//! - [`routes`] lists every route, with who may use it. The router, the description of the API and
//!   the tests are made from this list.
//! - [`Telling`] tells a [`Receiver`] by HTTP what happens to runs.
//! - [`serve`] listens on loopback, and [`Keys`] decides who may ask.
//!
//! Invariants:
//! - Nobody but the holder of the token learns or changes anything. Host and Origin are checked on
//!   every request, so that a page of another site can't use the browser's login.
//! - No client delays a run: a run is asked at most twice a second, however many clients watch, and
//!   a client that is slow, silent or greedy is cut off.
//! - Nothing here reads a pickle, starts a process or writes into a run.
//!
//! The source is in *rooms*, folders in one direction: `answers` (what can be asked, and what is
//! answered) → `local` (the answers of one user's runs) → `hooks` (webhooks) → `http` (routes, logins,
//! connections).

mod answers;
mod hooks;
mod http;
mod local;
#[cfg(test)]
mod tests;

pub use answers::data::{
    EventLine, Events, LogAttempt, LogPart, LogQuery, RunMetrics, RunSummary, Seen,
};
pub use answers::failure::{Failure, FailureKind};
pub use answers::source::Source;
pub use hooks::happenings::What;
pub use hooks::receiver::Receiver;
pub use hooks::telling::{Telling, Webhook};
pub use http::app::App;
pub use http::keys::Keys;
pub use http::openapi::openapi;
pub use http::router::router;
pub use http::routes;
pub use http::server::{Listening, listen, serve};
pub use local::runs::{Local, NamedRun};
