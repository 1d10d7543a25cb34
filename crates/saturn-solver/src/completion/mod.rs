//! The search for plans of small weighted completion: lists of a node, priced, then annealed.
//!
//! A problem is given as a [`queue`]. Beside devices and runtimes it holds weights, releases, the
//! times by which tasks must have ended, and departures of nodes. As in the search for makespans, a
//! list determines its node's timeline. Each gang starts when its task is released and enough
//! devices are free behind the gangs before it. Some best lists lose nothing: take the gangs of a
//! best plan by start; played, none starts later, by induction.
//!
//! 1. [`build`] makes lists in one go, by the prices of devices over time that the dual of the
//!    bound found ([`Guide`](build::Guide)).
//! 2. [`search`] anneals the lists in rounds. A [`region`] makes the moves on some lines. A
//!    [`line`] is a list that keeps its value up to every position, so a change plays only the
//!    entries after the change anew.
//!
//! Ending too late is priced, and of two plans the less late plan wins, whatever its value. The
//! lists don't know what couples nodes: precedence, and gangs on several nodes. Problems with these
//! take the lists as starts of the general search.
//!
//! May use: `problem`, `course`, `bounds`, `lists`.

pub(crate) mod build;
pub(crate) mod line;
pub(crate) mod moves;
pub(crate) mod queue;
pub(crate) mod region;
pub(crate) mod search;
