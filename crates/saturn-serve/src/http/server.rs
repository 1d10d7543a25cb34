//! Listens on loopback, and serves each connection.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::http::connection::{Guests, Patient, Place};

/// How long a client may take for the head of a request, or be silent between two requests.
const HEAD: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// The longest head of a request, bytes.
const MAX_HEAD: usize = 32 << 10;
/// How often the server looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The wait after a failed accept, which happens if no file descriptor is left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// How long questions that are worked on may delay the end.
const AT_END: Duration = Duration::from_millis(500);
const THREADS: usize = 2;
const BLOCKING_THREADS: usize = 16;

/// A socket on loopback that waits for clients.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    /// Its port.
    pub port: u16,
}

/// Listens on a port of loopback; port 0 is any free port.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] for an address that other machines reach, else why the port can't
/// be had.
pub fn listen(host: IpAddr, port: u16) -> io::Result<Listening> {
    if !host.is_loopback() {
        let reason = format!(
            "`{host}` can be reached from other machines, and what is sent there is not encrypted; \
             the face is served on {} alone. From another machine: ssh -L {port}:127.0.0.1:{port} \
             THIS-MACHINE",
            Ipv4Addr::LOCALHOST
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let listener = TcpListener::bind(SocketAddr::new(host, port))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok(Listening { listener, port })
}

/// Serves until `is_over` says so. It is asked ten times a second.
pub fn serve(listening: Listening, router: &Router, is_over: impl Fn() -> bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("saturn-web")
        .enable_io()
        .enable_time()
        .build()?;
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listening.listener)?;
        let guests = Guests::default();
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        // Without a place, dropping the stream closes the connection.
                        if let Some(place) = guests.admit() {
                            tokio::spawn(attend(stream, place, router.clone()));
                        }
                    }
                    Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
                },
                _ = look.tick() => if is_over() { return Ok(()) },
            }
        }
    });
    runtime.shutdown_timeout(AT_END);
    served
}

/// Serves a connection until it ends or has to make room.
async fn attend(stream: TcpStream, place: Place, router: Router) {
    let guest = place.guest.clone();
    let of_request = guest.clone();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(of_request.clone());
        let mut router = router.clone();
        async move {
            Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {}))
        }
    });
    // An answer is small, and waits for nothing more.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Patient::new(stream)), service);
    tokio::select! {
        // Errors of one client concern nobody else: it went away, or sent no HTTP.
        _ = connection => {}
        () = guest.shown_out() => {}
    }
    drop(place);
}
