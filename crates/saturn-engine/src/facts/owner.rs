//! Whose a task is, in a run that several people of a machine submit to.

use serde::{Deserialize, Serialize};

/// A person of the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// The person's number on the machine, which says who it is.
    pub uid: u32,
    /// The person's login name, for people.
    pub name: String,
}
