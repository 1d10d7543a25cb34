//! Commands to a run that another process drives, and questions about it.
//!
//! - `control` has the requests, the replies, and the client.
//! - `door` is where other people of the machine reach a pool that is shared with them.
//! - `server` is the socket on which the driver listens. `sockets` opens sockets in run directories.
//!
//! Invariants: a client never delays the run. Only the run's user can open the socket in its
//! directory. Who asks through a door is told by the kernel, never by the request.
//!
//! May use: `system`.

pub mod control;
pub(crate) mod door;
pub(crate) mod server;
pub(crate) mod sockets;
