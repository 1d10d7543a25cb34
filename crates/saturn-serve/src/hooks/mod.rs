//! Webhooks: a receiver is told by HTTP what people want to know of runs when nobody looks.
//!
//! - `happenings` finds in a run's records what a receiver is told.
//! - `receiver` sends one happening, signed, and says what became of it.
//! - `cursors` remembers on disk up to which record of each run everything was told.
//! - `telling` is the thread that reads runs and tells what happened.
//!
//! A happening is told at least once: the cursor moves on once the receiver has taken it. So neither
//! a crash of the server, nor of a run, nor of the receiver loses one. Its id is made of the run's id and
//! the number of its record, so that a receiver knows what it has been told already.
//!
//! Invariants: no run waits for a receiver, since runs are only read. Happenings of a run are told in
//! their order. A receiver's answer is not read, and a redirection is not followed.
//!
//! May use: `local`.

pub(crate) mod cursors;
pub(crate) mod happenings;
pub(crate) mod receiver;
pub(crate) mod telling;
