//! Commands to a run that another process drives, and questions about it.
//!
//! - `control` has the requests, the replies, and the client.
//! - `server` is the socket on which the driver listens. `sockets` opens sockets in run directories.
//!
//! Invariants: a client never delays the run. Only the run's user can open its socket.
//!
//! May use: `system`.

pub mod control;
pub(crate) mod server;
pub(crate) mod sockets;
