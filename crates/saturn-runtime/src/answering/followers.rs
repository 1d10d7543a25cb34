//! Followers: threads that watch a run or answer questions about it. Each folds the run's records
//! into a state of its own.
//!
//! The driver hands records to followers and never waits for them. There are two followers, so that
//! a stalled terminal does not delay answers. The *screen* shows the run to those who watch. The
//! *desk* answers questions, and at the end provides the state that the report is made from.
//!
//! Records queue while a follower is busy. Progress reports do not: only the newest of each live
//! attempt is kept.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use saturn_engine::{AttemptId, Observer, Owner, Record, State};
use saturn_view::{Console, History, Results};

use crate::answering::guests;
use crate::answering::reports;
use crate::asking::control::{Query, Reply};
use crate::keeping::keeper::{Keeper, Kept};
use crate::keeping::shelf::Shelf;
use crate::system::clock::{self, RunClock};

/// How often the screen tells observers that time has passed.
const TICK: Duration = Duration::from_millis(200);
/// How long the screen may take to show the end of a run before the run ends without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The newest progress of each live attempt.
type Live = Arc<Mutex<BTreeMap<AttemptId, Progress>>>;

/// The newest progress of a live attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) step: u64,
    pub(crate) loss: Option<f64>,
    pub(crate) step_s: Option<f64>,
    pub(crate) at_s: f64,
}

enum Message {
    Records(Arc<[Record]>, f64),
    /// A message, and when it was sent; `None`: the time at which the follower reads it.
    Note(Arc<str>, Option<f64>),
    Clock(RunClock),
    /// A question, of a guest or of the run's own person.
    Ask(Query, Option<Owner>, Sender<Reply>),
    /// The state and history as they stand, and the run's time.
    Look(Sender<(State, History, f64)>),
    Finish(Results),
    Close,
}

/// The screen and the desk of a run that this process drives.
#[derive(Debug)]
pub(crate) struct Followers {
    screen: Sender<Message>,
    /// Disconnects once the screen has shown the end.
    screen_shown: Receiver<()>,
    desk: Desk,
    desk_thread: Option<JoinHandle<(State, History)>>,
    /// Tells when the run's trials are in the store; `None` if they do not go there.
    kept: Option<Kept>,
    live: Live,
}

/// A sender of messages about the machine.
#[derive(Debug, Clone)]
pub(crate) struct Notes(Sender<Message>);

impl Notes {
    /// Sends a message about the machine.
    pub(crate) fn note(&self, text: &str) {
        // If the screen is gone, it has shown the end or panicked.
        let _ = self.0.send(Message::Note(text.into(), None));
    }
}

/// A handle for asking the desk about the run.
#[derive(Debug, Clone)]
pub(crate) struct Desk(Sender<Message>);

impl Desk {
    /// Answers a question from the records so far.
    pub(crate) fn ask(&self, query: Query, guest: Option<&Owner>) -> Reply {
        let (sender, answer) = channel();
        let asked = self.0.send(Message::Ask(query, guest.cloned(), sender));
        let answer = asked.ok().and_then(|()| answer.recv().ok());
        answer.unwrap_or_else(Reply::run_ended)
    }

    /// Answers a question that takes long, in this thread. The desk only hands out a copy.
    pub(crate) fn ask_aside(&self, query: &Query) -> Reply {
        let (sender, found) = channel();
        let asked = self.0.send(Message::Look(sender));
        match asked.ok().and_then(|()| found.recv().ok()) {
            Some((state, history, now_s)) => reports::answer(&state, &history, query, now_s),
            None => Reply::run_ended(),
        }
    }
}

impl Followers {
    /// Starts the followers of a run in this state.
    pub(crate) fn of(
        state: &State,
        history: History,
        console: Console,
        observers: Vec<Box<dyn Observer>>,
        shelf: Option<Shelf>,
    ) -> Self {
        let live = Live::default();
        let clock = RunClock::standing_at(state.now_s);
        let fold = Fold { state: state.clone(), live: Arc::clone(&live), clock };
        let (screen, told) = channel();
        let (shown, screen_shown) = channel();
        let screen_fold = fold.clone();
        let console = console.with_history(history.clone());
        std::thread::spawn(move || {
            let _shown: Sender<()> = shown;
            show(screen_fold, console, observers, &told);
        });
        let (desk, told) = channel();
        let (keeper, kept) = shelf
            .map(|shelf| {
                let notes = Notes(screen.clone());
                Keeper::start(shelf, move |text| notes.note(text))
            })
            .unzip();
        let desk_thread = std::thread::spawn(move || answer(fold, history, keeper, &told));
        let (desk, desk_thread) = (Desk(desk), Some(desk_thread));
        Self { screen, screen_shown, desk, desk_thread, kept, live }
    }

    /// A handle for asking the desk.
    pub(crate) fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// A sender of messages about the machine.
    pub(crate) fn notes(&self) -> Notes {
        Notes(self.screen.clone())
    }

    /// Hands journaled records to the followers.
    pub(crate) fn records(&self, records: Vec<Record>, now_s: f64) {
        if records.is_empty() {
            return;
        }
        for record in &records {
            if let Record::Ended { attempt, .. } = record {
                lock(&self.live).remove(attempt);
            }
        }
        let records: Arc<[Record]> = records.into();
        self.tell(|| Message::Records(Arc::clone(&records), now_s));
    }

    /// Notes the newest progress of a live attempt.
    pub(crate) fn progress(&self, attempt: AttemptId, progress: Progress) {
        lock(&self.live).insert(attempt, progress);
    }

    /// Tells the followers a message about the machine.
    pub(crate) fn note(&self, text: &str, now_s: f64) {
        let text: Arc<str> = text.into();
        self.tell(|| Message::Note(Arc::clone(&text), Some(now_s)));
    }

    /// Gives the followers a new clock of the run.
    pub(crate) fn clock(&self, clock: RunClock) {
        self.tell(|| Message::Clock(clock));
    }

    /// Ends the desk. Returns the run's state and history, unless the desk has panicked.
    pub(crate) fn close_desk(&mut self) -> Option<(State, History)> {
        let _ = self.desk.0.send(Message::Close);
        let found = self.desk_thread.take()?.join().ok();
        if let Some(slow) = self.kept.take().and_then(|kept| kept.wait()) {
            self.note(slow, found.as_ref().map_or(0.0, |(state, _)| state.now_s));
        }
        found
    }

    /// Tells the screen to show the end, and waits until it has. Does not wait long for a stalled
    /// screen.
    pub(crate) fn finish(self, results: Results) {
        let _ = self.screen.send(Message::Finish(results));
        // The screen never sends anything. The wait ends when its thread drops the sender.
        let _ = self.screen_shown.recv_timeout(PATIENCE);
    }

    fn tell(&self, told: impl Fn() -> Message) {
        // A follower that is gone has panicked. That is no reason to end a run.
        let _ = self.screen.send(told());
        let _ = self.desk.0.send(told());
    }
}

/// A follower's own state of the run.
#[derive(Clone)]
struct Fold {
    state: State,
    live: Live,
    clock: RunClock,
}

impl Fold {
    /// Applies the newest progress of live attempts to the state. Returns the run's time.
    fn catch_up(&mut self) -> f64 {
        let live = lock(&self.live).clone();
        for (attempt, Progress { step, loss, step_s, at_s }) in live {
            self.state.observe(attempt, step, loss, step_s, at_s);
        }
        self.clock.now_s()
    }
}

/// Shows a run to those who watch it, until the run has ended.
fn show(
    mut fold: Fold,
    mut console: Console,
    mut observers: Vec<Box<dyn Observer>>,
    told: &Receiver<Message>,
) {
    let mut ticked = clock::now();
    loop {
        match told.recv_timeout(until_tick(ticked)) {
            Ok(Message::Records(records, now_s)) => {
                for record in &*records {
                    fold.state.apply(record, now_s);
                    console.record(&fold.state, record, now_s);
                    for observer in &mut observers {
                        observer.record(&fold.state, record, now_s);
                    }
                }
            }
            Ok(Message::Note(text, said_s)) => {
                let now_s = said_s.unwrap_or_else(|| fold.clock.now_s());
                console.note(&text, now_s);
                for observer in &mut observers {
                    observer.note(&text, now_s);
                }
            }
            Ok(Message::Clock(clock)) => fold.clock = clock,
            Ok(Message::Finish(results)) => {
                console.finish(&fold.state, fold.state.now_s, &results);
                return;
            }
            Ok(Message::Ask(..) | Message::Look(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => return,
        }
        if ticked.elapsed() >= TICK {
            ticked = clock::now();
            let now_s = fold.catch_up();
            console.tick(&fold.state, now_s);
            for observer in &mut observers {
                observer.tick(&fold.state, now_s);
            }
        }
    }
}

fn until_tick(ticked: Instant) -> Duration {
    TICK.saturating_sub(ticked.elapsed())
}

/// Answers questions about a run until the run has ended, and hands its records to the keeper.
fn answer(
    mut fold: Fold,
    mut history: History,
    keeper: Option<Keeper>,
    told: &Receiver<Message>,
) -> (State, History) {
    for told in told {
        match told {
            Message::Records(records, now_s) => {
                for record in &*records {
                    fold.state.apply(record, now_s);
                    history.record(&fold.state, record, now_s);
                    if let Some(keeper) = &keeper {
                        keeper.record(&fold.state, record);
                    }
                }
            }
            Message::Clock(clock) => fold.clock = clock,
            Message::Ask(query, guest, reply) => {
                let now_s = fold.catch_up();
                let state = &fold.state;
                let answered = match guest {
                    Some(guest) => guests::answer(state, &history, &query, &guest, now_s),
                    None => reports::answer(state, &history, &query, now_s),
                };
                // The thread that asked may have gone.
                let _ = reply.send(answered);
            }
            Message::Look(found) => {
                let now_s = fold.catch_up();
                let _ = found.send((fold.state.clone(), history.clone(), now_s));
            }
            Message::Note(..) | Message::Finish(_) => {}
            Message::Close => break,
        }
    }
    // No more records come. The keeper's thread ends once it has kept everything.
    if let Some(keeper) = keeper {
        keeper.end(&history.errors_by_hardware());
    }
    (fold.state, history)
}

fn lock(live: &Live) -> std::sync::MutexGuard<'_, BTreeMap<AttemptId, Progress>> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}
