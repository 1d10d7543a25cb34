//! Ranks that outlive the driver of their run, on one machine.
//!
//! If a run asks for it, its ranks belong to an *agent*, a process of its own that the driver
//! starts. The driver and the agent speak over a Unix socket in the run's directory. If the driver
//! dies, the ranks train on, and the agent keeps what they say. The next driver of the run finds
//! the agent by its socket, says which attempts it takes on (`saturn_engine::Engine::adoptable`),
//! and hears what was said meanwhile. If no driver comes for some minutes, the agent has all ranks
//! stop at checkpoints, and ends.
//!
//! - `messages`: what driver and agent say to each other.
//! - `telling`: what the agent has to tell, until it has had its effect.
//! - `agent`: the agent's process.
//! - `starting`: starting an agent, and finding one that lives.
//! - `connection`: an agent's connections to drivers.
//! - `launcher`: the launcher of a driver whose ranks belong to an agent.
//! - `people`: the launcher of a pool that several people share, with an agent for each of them.
//! - `guest`: the agent of a person in a pool that another person drives. `guard`: what it obeys.
//!
//! Invariants:
//! - The agent holds the locks of the run's devices for as long as it lives. So does each driver: the
//!   agent hands it the open files. So the devices are the run's until both have ended.
//! - Processes that can't be killed keep their devices from the next driver too.
//! - Each word of the agent has its effect on the run once. The number of the last word that had
//!   is stored with the records that it led to (`run_files::journal`).
//! - A person's ranks are started by a process of this very person.
//! - One driver at a time speaks with the agent: the run's lock sees to that.
//!
//! It does not serve clusters, whose agents end with their driver (`cluster`).
//!
//! May use: `cluster` (its letters), `run_files`, `asking` (its sockets), `launching`, `devices` and
//! `system`.

pub(crate) mod agent;
mod connection;
mod guard;
pub(crate) mod guest;
pub(crate) mod launcher;
pub(crate) mod messages;
pub(crate) mod people;
pub(crate) mod starting;
pub(crate) mod telling;
