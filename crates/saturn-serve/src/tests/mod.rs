//! Tests of the handlers against recorded runs, of logins, and of the server's patience.
//!
//! May use: `answers`, `local`, `hooks` and `http`.

mod answers;
mod gate;
mod hooks;
mod metrics;
mod pages;
mod panics;
mod patience;
mod recorded;
mod streams;
mod world;
