//! A thread that looks at something that may hang, such as a shared disk, so that the driver's
//! thread need not.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// A thread that looks each time that it is asked.
#[derive(Debug)]
pub(crate) struct Looker<A> {
    asks: Sender<()>,
    answers: Receiver<A>,
}

impl<A: Send + 'static> Looker<A> {
    /// Starts the thread. It ends with the looker; if a look hangs, nobody waits for it.
    pub(crate) fn start(mut look: impl FnMut() -> A + Send + 'static) -> Self {
        let (asks, asked) = channel::<()>();
        let (answer, answers) = channel();
        thread::spawn(move || while asked.recv().is_ok() && answer.send(look()).is_ok() {});
        Self { asks, answers }
    }

    /// Asks for a look.
    pub(crate) fn ask(&self) {
        // If the thread is gone, no answer comes, as from a share that hangs.
        let _ = self.asks.send(());
    }

    /// The oldest answer that nobody has taken, if there is one.
    pub(crate) fn answer(&self) -> Option<A> {
        self.answers.try_recv().ok()
    }

    /// The same, but waits so long for an answer to come.
    pub(crate) fn answer_within(&self, within: Duration) -> Option<A> {
        self.answers.recv_timeout(within).ok()
    }
}
