//! Whoever watches a run or asks about it: threads that fold its records for themselves.
//!
//! The driver hands records to followers and never waits for them. There are two, so that a terminal
//! that has stalled keeps no one from asking: the *screen*, which shows the run to those who watch,
//! and the *desk*, which answers questions and at the end knows what a report is made of.
//!
//! Records queue while a follower is busy; of the progress between them, only the newest of each
//! live attempt is kept.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use saturn_engine::{AttemptId, Observer, Record, State};
use saturn_view::{Console, History, Results};

use crate::clock::{self, RunClock};
use crate::control::{Query, Reply};
use crate::reports;
use crate::store::{Keeper, Kept, Shelf};

/// How often those who watch are told that time passes.
const TICK: Duration = Duration::from_millis(200);
/// How long a screen may take to show the end of a run before it is left alone.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a rank of each live attempt said last.
type Live = Arc<Mutex<BTreeMap<AttemptId, Progress>>>;

/// What a live attempt said last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) step: u64,
    pub(crate) loss: Option<f64>,
    pub(crate) step_s: Option<f64>,
    pub(crate) at_s: f64,
}

enum Told {
    Records(Arc<[Record]>, f64),
    /// A word, and when it was said; `None`: when it is heard.
    Note(Arc<str>, Option<f64>),
    Clock(RunClock),
    Ask(Query, Sender<Reply>),
    Finish(Results),
    Close,
}

/// The screen and the desk of a run that this process drives.
#[derive(Debug)]
pub(crate) struct Followers {
    screen: Sender<Told>,
    /// Hears nothing more once the screen has shown the end.
    screen_shown: Receiver<()>,
    desk: Desk,
    desk_thread: Option<JoinHandle<(State, History)>>,
    /// Hears when the run's trials are in the store, where they go there.
    kept: Option<Kept>,
    live: Live,
}

/// Where words about the machine go.
#[derive(Debug, Clone)]
pub(crate) struct Notes(Sender<Told>);

impl Notes {
    /// A word about the machine.
    pub(crate) fn note(&self, text: &str) {
        // A screen that is gone has panicked, or has shown the end.
        let _ = self.0.send(Told::Note(text.into(), None));
    }
}

/// Where questions about the run are answered.
#[derive(Debug, Clone)]
pub(crate) struct Desk(Sender<Told>);

impl Desk {
    /// Answers a question, by what has been recorded.
    pub(crate) fn ask(&self, query: Query) -> Reply {
        let (sender, answer) = channel();
        let asked = self.0.send(Told::Ask(query, sender));
        let answer = asked.ok().and_then(|()| answer.recv().ok());
        answer.unwrap_or_else(|| Reply::refused("the run has ended"))
    }
}

impl Followers {
    /// Followers of a run that stands so.
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

    /// Where questions are answered.
    pub(crate) fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// Where words about the machine go.
    pub(crate) fn notes(&self) -> Notes {
        Notes(self.screen.clone())
    }

    /// Records were journaled.
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
        self.tell(|| Told::Records(Arc::clone(&records), now_s));
    }

    /// A rank of an attempt that lives made progress.
    pub(crate) fn progress(&self, attempt: AttemptId, progress: Progress) {
        lock(&self.live).insert(attempt, progress);
    }

    /// A word about the machine.
    pub(crate) fn note(&self, text: &str, now_s: f64) {
        let text: Arc<str> = text.into();
        self.tell(|| Told::Note(Arc::clone(&text), Some(now_s)));
    }

    /// The run's clock is another from now on.
    pub(crate) fn clock(&self, clock: RunClock) {
        self.tell(|| Told::Clock(clock));
    }

    /// The run as it stands, and what is over of it. The desk answers no more.
    pub(crate) fn close_desk(&mut self) -> Option<(State, History)> {
        let _ = self.desk.0.send(Told::Close);
        let found = self.desk_thread.take()?.join().ok();
        if let Some(slow) = self.kept.take().and_then(|kept| kept.wait()) {
            self.note(slow, found.as_ref().map_or(0.0, |(state, _)| state.now_s));
        }
        found
    }

    /// Has the screen show the end, and waits for that: but not for a screen that has stalled.
    pub(crate) fn finish(self, results: Results) {
        let _ = self.screen.send(Told::Finish(results));
        // Nothing is ever sent: the thread's end ends the wait.
        let _ = self.screen_shown.recv_timeout(PATIENCE);
    }

    fn tell(&self, told: impl Fn() -> Told) {
        // One that is gone has panicked: those who watch are no reason to end a run.
        let _ = self.screen.send(told());
        let _ = self.desk.0.send(told());
    }
}

/// A follower's own picture of the run.
#[derive(Clone)]
struct Fold {
    state: State,
    live: Live,
    clock: RunClock,
}

impl Fold {
    /// Takes in what live attempts said last.
    fn catch_up(&mut self) -> f64 {
        let live = lock(&self.live).clone();
        for (attempt, Progress { step, loss, step_s, at_s }) in live {
            self.state.observe(attempt, step, loss, step_s, at_s);
        }
        self.clock.now_s()
    }
}

/// Shows a run to those who watch it, until it has ended.
fn show(
    mut fold: Fold,
    mut console: Console,
    mut observers: Vec<Box<dyn Observer>>,
    told: &Receiver<Told>,
) {
    let mut ticked = clock::now();
    loop {
        match told.recv_timeout(until_tick(ticked)) {
            Ok(Told::Records(records, now_s)) => {
                for record in &*records {
                    fold.state.apply(record, now_s);
                    console.record(&fold.state, record, now_s);
                    for observer in &mut observers {
                        observer.record(&fold.state, record, now_s);
                    }
                }
            }
            Ok(Told::Note(text, said_s)) => {
                let now_s = said_s.unwrap_or_else(|| fold.clock.now_s());
                console.note(&text, now_s);
                for observer in &mut observers {
                    observer.note(&text, now_s);
                }
            }
            Ok(Told::Clock(clock)) => fold.clock = clock,
            Ok(Told::Finish(results)) => {
                console.finish(&fold.state, fold.state.now_s, &results);
                return;
            }
            Ok(Told::Ask(..)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Told::Close) | Err(RecvTimeoutError::Disconnected) => return,
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

/// Answers questions about a run, until it has ended, and hands its records to the keeper.
fn answer(
    mut fold: Fold,
    mut history: History,
    keeper: Option<Keeper>,
    told: &Receiver<Told>,
) -> (State, History) {
    for told in told {
        match told {
            Told::Records(records, now_s) => {
                for record in &*records {
                    fold.state.apply(record, now_s);
                    history.record(&fold.state, record, now_s);
                    if let Some(keeper) = &keeper {
                        keeper.record(&fold.state, record);
                    }
                }
            }
            Told::Clock(clock) => fold.clock = clock,
            Told::Ask(query, reply) => {
                let now_s = fold.catch_up();
                // Whoever asked may have gone.
                let _ = reply.send(reports::answer(&fold.state, &history, &query, now_s));
            }
            Told::Note(..) | Told::Finish(_) => {}
            Told::Close => break,
        }
    }
    // No more will come: the keeper's thread ends when it has kept all.
    drop(keeper);
    (fold.state, history)
}

fn lock(live: &Live) -> std::sync::MutexGuard<'_, BTreeMap<AttemptId, Progress>> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}
