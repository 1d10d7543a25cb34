//! The choice among good plans by drawn runtimes.
//!
//! Runtimes are estimates. Of plans that are about as good as planned, one may end much later than
//! another if runtimes turn out otherwise. Plans that were made with longer runtimes become plans of
//! the problem itself ([`decode`]). They and the best plan are followed under the same drawn runtimes
//! ([`follow`]), and the plan with the least quantile of outcomes is the answer ([`choice`]).
//!
//! May use: `problem`, `course`, `lists`, `general`.

pub(crate) mod choice;
mod decode;
mod follow;
