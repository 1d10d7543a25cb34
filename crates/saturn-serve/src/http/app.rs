//! What handlers share: where answers come from, who may ask, and how many questions are worked on
//! at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::answers::failure::{Failure, FailureKind};
use crate::answers::source::Source;
use crate::http::done::Done;
use crate::http::keys::Keys;
use crate::http::metrics::Answered;
use crate::http::routes::{Handler, Route};

/// Questions and commands that are worked on at once; others wait.
const MAX_READS: usize = 4;
const MAX_WRITES: usize = 4;
/// Streams of events at once.
const MAX_STREAMS: usize = 100;
/// How long they wait for their turn.
const TURN: Duration = Duration::from_secs(5);

/// What handlers share.
pub struct App {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) keys: Keys,
    /// The names of this server that a request may have as Host, with the port.
    pub(crate) hosts: Vec<String>,
    /// The name of the cookie. Cookies know no ports, so the name has the port.
    pub(crate) cookie: String,
    /// What came of commands that had a key.
    pub(crate) done: Done,
    /// How commands were answered.
    pub(crate) answered: Answered,
    /// Places for streams of events.
    pub(crate) streams: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// How long a request may take, from its first byte to its answer.
pub(crate) struct Deadline(pub(crate) Duration);

impl Deadline {
    pub(crate) fn of(route: &Route) -> Self {
        // A run answers a command within a minute, or says that it does not answer.
        Self(Duration::from_secs(if route.handler == Handler::Command { 75 } else { 15 }))
    }
}

impl App {
    /// An application whose answers come from `source`, served on this port of loopback.
    pub fn new(source: Arc<dyn Source>, keys: Keys, port: u16) -> Self {
        Self {
            source,
            keys,
            hosts: ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}")).into(),
            cookie: format!("saturn-{port}"),
            done: Done::default(),
            answered: Answered::default(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            reads: Arc::new(Semaphore::new(MAX_READS)),
            writes: Arc::new(Semaphore::new(MAX_WRITES)),
        }
    }

    /// Asks the source, on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Source) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.ask(&self.reads, question).await
    }

    /// Hands the source a command, on a thread that may block.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        command: impl FnOnce(&dyn Source) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.ask(&self.writes, command).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        turns: &Arc<Semaphore>,
        question: impl FnOnce(&dyn Source) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let busy = || FailureKind::Busy.because("too many questions at once; try again");
        let turn = tokio::time::timeout(TURN, Arc::clone(turns).acquire_owned()).await;
        let turn = turn.map_err(|_| busy())?.map_err(|_| busy())?;
        let source = Arc::clone(&self.source);
        // A panic in there is an answer too, and the server goes on. The turn ends with the thread's
        // work, although nobody may wait for it any more.
        let answered = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            question(&*source)
        });
        let answered = answered.await;
        answered.unwrap_or_else(|_| {
            Err(FailureKind::Internal.because("the answer could not be computed"))
        })
    }
}
