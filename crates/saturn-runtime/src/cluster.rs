//! Several machines: the driver's launcher sends orders to an *agent* on each node, which does there
//! what the local machine's launcher does, and tells what became of them.
//!
//! - What is said travels as *letters* (`letters`): text, with a version, the number of the driver's
//!   epoch and a number of its own. One that is missing, or of another driver, ends the agent that it
//!   concerns.
//! - Who carries letters, finds nodes and tells of their deaths is not said here: Python does, with
//!   Ray's calls, through an [`Exchange`].
//! - An agent that the driver no longer knows has no say. Its attempts are marked as given up before
//!   they are launched anew, so that ranks which live on publish no checkpoint (`launcher`); and an agent
//!   that hears nothing of its driver ends its ranks (`agent`).

mod agent;
mod exchange;
mod launcher;
mod letters;

pub use agent::{Agent, AgentSetup, StoreOpener};
pub use exchange::Exchange;
pub(crate) use launcher::ClusterLauncher;
