//! Routes, logins, and connections.
//!
//! - `routes` is the list of all routes, and who may use each.
//! - `keys` knows the token and the sessions of browsers. `gate` lets a request through to its
//!   handler, or refuses it.
//! - `reading`, `commands`, `pages` and `login` are handlers; `done` remembers commands by their keys; `events` is the stream of a run's events.
//! - `metrics` answers Prometheus, in the format of `exposition`.
//! - `reply` makes answers and refusals. `openapi` describes the API, and `schemas` its answers.
//! - `app` is what handlers share, `router` puts these together; `server` and `connection` serve it to the clients of a socket.
//!
//! May use: `answers`.

pub(crate) mod app;
pub(crate) mod commands;
pub(crate) mod connection;
pub(crate) mod done;
pub(crate) mod events;
pub(crate) mod exposition;
pub(crate) mod gate;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod pages;
pub(crate) mod reading;
pub(crate) mod reply;
pub(crate) mod router;
pub mod routes;
pub(crate) mod schemas;
pub(crate) mod server;
