//! What the records amount to, and the questions that the state answers about itself.
//!
//! Invariants: nothing here changes durably; the room `changes` does that, record by record. A question
//! reads the state and nothing else. What is over (ended attempts, earlier plans) is not kept.
//!
//! May use: `facts`.

pub(crate) mod attempt;
pub(crate) mod breadth;
pub(crate) mod by_device;
pub(crate) mod device;
pub(crate) mod group;
pub(crate) mod host_memory;
pub(crate) mod lesson;
pub(crate) mod order;
pub(crate) mod places;
pub(crate) mod pool;
pub(crate) mod run;
pub(crate) mod space;
pub(crate) mod stage;
pub(crate) mod task;
pub(crate) mod trial;
pub(crate) mod trials;
pub(crate) mod vacancies;
