//! A plan for a terminal: `table` of its tasks with what is proven of the plan, and `chart` of the
//! devices over time.
//!
//! May use: `layout`, `facts` and `phrases`.

pub(crate) mod chart;
pub mod table;
