//! A run on several machines. The driver's launcher sends orders to an *agent* on each node. The
//! agent launches processes as the launcher of a single machine does, and reports what became of
//! them.
//!
//! - Driver and agents exchange *letters* (`letters`): text with a version, the driver's epoch and
//!   a number. A missing letter, or one of another driver, ends the agent that it concerns.
//! - An [`Exchange`] hands letters to Python, which carries them, finds nodes and reports their
//!   deaths by calls to Ray.
//! - The driver ignores an agent that it has given up. It marks that agent's attempts as given up
//!   before it launches their tasks again, so that surviving ranks publish no checkpoint
//!   (`launcher`).
//! - An agent that hears nothing from its driver for too long ends its ranks (`agent`). `outgoing`
//!   holds its letters to the driver.
//!
//! Invariants: an attempt that the driver has given up publishes no checkpoint.
//!
//! May use: `run_files`, `launching`, `devices` and `system`.

pub(crate) mod agent;
pub(crate) mod exchange;
pub(crate) mod launcher;
pub(crate) mod letters;
pub(crate) mod outgoing;
