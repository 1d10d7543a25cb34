//! Short makespans where nodes are independent: a list of gangs for each node.
//!
//! A [`list`] says in which order a node's gangs are placed, and so determines when each starts.
//! The [`search`] begins with lists built in one go ([`greedy`], [`warm`]), and goes on in rounds:
//! [`small`] anneals all nodes at once. [`large`] deals nodes to threads ([`shares`]), which fill them
//! ([`fill`], [`shelf`]), anneal them ([`anneal`], [`moves`], [`nearby`]) and mend late nodes
//! ([`mend`]). [`settle`] puts back running tasks that were moved for nothing; [`progress`] keeps
//! the best lists.
//! [`solve`] turns lists into a plan.
//!
//! Lists know nothing of releases, deadlines, precedence or gangs on several nodes: such problems go
//! by `general`.
//!
//! May use: `problem`, `course`, `bounds`.

pub(crate) mod anneal;
pub(crate) mod fill;
pub(crate) mod greedy;
pub(crate) mod large;
pub(crate) mod list;
pub(crate) mod mend;
pub(crate) mod moves;
pub(crate) mod nearby;
pub(crate) mod progress;
pub(crate) mod search;
pub(crate) mod settle;
pub(crate) mod shares;
pub(crate) mod shelf;
pub(crate) mod small;
pub(crate) mod solve;
pub(crate) mod warm;
