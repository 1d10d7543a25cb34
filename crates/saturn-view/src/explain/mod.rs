//! Explanations: where a task stands and what it waits for, why it has its strategy, and why it was
//! moved. The run as a whole is explained too.
//!
//! `stands`, `waiting` and `failures` explain where a task is, `candidates` its strategies, `moves`
//! its moves, `wrong` the errors of its plan, `devices` where the devices' time went, and `run` the run. `code` lists the codes, and `reason`
//! pairs a code with its sentence. `explanation` gathers all of this as data, and `text` prints it.
//!
//! Invariants: every reason has a stable code for scripts and a sentence for people. Everything
//! comes from the journal, so explanations work for live runs and for ended runs.
//!
//! May use: `layout`, `facts` and `phrases`.

pub(crate) mod candidates;
pub(crate) mod code;
pub(crate) mod devices;
pub(crate) mod explanation;
pub(crate) mod failures;
pub(crate) mod moves;
pub(crate) mod reason;
pub(crate) mod run;
pub(crate) mod stands;
pub(crate) mod text;
pub(crate) mod waiting;
pub(crate) mod wrong;
