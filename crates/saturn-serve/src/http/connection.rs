//! The connections: how many there may be, and what ends one.
//!
//! Who only connects, or sends a request without the token, is a *stranger*. If there are too many
//! connections, the oldest stranger's is closed. So a crowd of silent clients never keeps out who
//! is logged in.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

/// The most connections at once.
const MAX_CONNECTIONS: usize = 256;
/// How long a client may leave an answer unread.
const UNREAD: Duration = Duration::from_secs(30);

/// All connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guests(Arc<Mutex<Vec<Guest>>>);

/// A client's connection.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    number: u64,
    known: Arc<AtomicBool>,
    shown_out: Arc<Notify>,
}

/// A connection's place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) guest: Guest,
    guests: Guests,
}

impl Guests {
    /// Makes room for a connection; `None` if all places are held by clients who are logged in.
    pub(crate) fn admit(&self) -> Option<Place> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut guests = self.lock();
        if guests.len() >= MAX_CONNECTIONS {
            let stranger = guests.iter().position(|guest| !guest.known.load(Ordering::Relaxed))?;
            guests.remove(stranger).shown_out.notify_one();
        }
        let guest = Guest {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            known: Arc::default(),
            shown_out: Arc::default(),
        };
        guests.push(guest.clone());
        Some(Place { guest, guests: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Guest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// Notes that the client is logged in.
    pub(crate) fn is_known(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// Waits until this connection has to make room.
    pub(crate) async fn shown_out(&self) {
        self.shown_out.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.guests.lock().retain(|guest| guest.number != self.guest.number);
    }
}

/// A stream to a client that ends if the client reads nothing for a while.
#[derive(Debug)]
pub(crate) struct Patient {
    stream: TcpStream,
    /// Runs while the client reads nothing.
    unread: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, unread: None }
    }

    fn timed<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.unread = None;
            return polled;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        unread.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.timed(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.timed(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.timed(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_make_room_and_friends_do_not() {
        let guests = Guests::default();
        let friends: Vec<Place> = (1..MAX_CONNECTIONS).map(|_| guests.admit().unwrap()).collect();
        for place in &friends {
            place.guest.is_known();
        }
        let stranger = guests.admit().unwrap();
        let next = guests.admit().unwrap();
        assert_eq!(guests.lock().len(), MAX_CONNECTIONS);
        assert!(guests.lock().iter().all(|guest| guest.number != stranger.guest.number));
        next.guest.is_known();
        assert!(guests.admit().is_none(), "everybody is a friend");
        drop(friends);
        drop(stranger);
        assert_eq!(guests.lock().len(), 1);
    }
}
