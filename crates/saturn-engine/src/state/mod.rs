//! What the records amount to, and the questions that the state answers about itself.
//!
//! [`State`](run::State) holds tasks, groups of tasks that perform alike, nodes and devices, live
//! attempts, and the plan in force. `task`, `group`, `attempt`, `device`, `order` and `breadth` are
//! its parts. The other files ask questions. `places` asks about the plan in force, `pool` about
//! nodes and gangs, `people` about those who share the run, `quotas` about what each of them may
//! hold, `stakes` about the weight and the deadline of each end, `trials` about open trials and
//! inspections, and `blame` whether a task's own functions made one of these fail. `host_memory` asks
//! what a strategy takes of a machine's own memory, `space` which disks are full, and `vacancies`
//! where a trial has room. `occupancy` is what each node has free, kept up, and `soon_free` how many
//! nodes have how much.
//!
//! Invariants: nothing here changes durably; the room `changes` does that, record by record. A
//! question reads the state and nothing else. What is over (ended attempts, earlier plans) is not
//! kept.
//!
//! May use: `facts`.

pub(crate) mod attempt;
pub(crate) mod blame;
pub(crate) mod breadth;
pub(crate) mod by_device;
pub(crate) mod device;
pub(crate) mod group;
pub(crate) mod host_memory;
pub(crate) mod lesson;
pub(crate) mod occupancy;
pub(crate) mod order;
pub(crate) mod people;
pub(crate) mod places;
pub(crate) mod pool;
pub(crate) mod quotas;
pub(crate) mod run;
pub(crate) mod soon_free;
pub(crate) mod space;
pub(crate) mod stage;
pub(crate) mod stakes;
pub(crate) mod task;
pub(crate) mod trial;
pub(crate) mod trials;
pub(crate) mod vacancies;
