//! A run that is followed: its journal as far as it was read, and what its driver says.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use saturn_engine::{AttemptId, State};
use saturn_runtime::control::{self, ControlError, Query, Request};
use saturn_runtime::{RunReader, RuntimeError};
use saturn_view::{History, Status, Tally, without_driver};

use crate::answers::data::{Events, Seen};
use crate::local::events::Newest;

/// How often a run is looked at anew, at most.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A look takes at most one part in so many of the time, so that a large run is not asked all the
/// time.
const SHARE: u32 = 20;
/// How long the driver may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A run and what is known of it.
#[derive(Debug)]
pub(super) struct Followed {
    path: PathBuf,
    reader: RunReader,
    newest: Newest,
    tally: Tally,
    driver: Driver,
    /// The state and history of a run that nobody drives, where they differ from the journal's.
    left_alone: Option<(State, History)>,
    /// When the run was last looked at, and when it may be looked at again.
    looked: Option<(Instant, Instant)>,
    /// What was wrong with its journal then.
    damage: Option<String>,
}

/// What is known of the process that drives the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Driver {
    /// There is none.
    None,
    /// It said that this was the time on the run's clock, seconds, when it was asked.
    At(f64, Instant),
    /// It does not answer, or not in words of this version.
    Silent,
}

/// A moment of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    /// The state; live attempts are as far as they said last.
    pub(super) state: &'a State,
    /// The history.
    pub(super) history: &'a History,
    /// The time on the run's clock, seconds.
    pub(super) now_s: f64,
    /// The number of the last event.
    pub(super) event: u64,
    /// Whether a process drives the run.
    pub(super) is_driven: bool,
}

impl Moment<'_> {
    /// An answer about this moment.
    pub(super) fn seen<T>(&self, value: T) -> Seen<T> {
        Seen { event: self.event, value }
    }
}

impl Followed {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            reader: RunReader::new(path),
            newest: Newest::new(),
            tally: Tally::default(),
            driver: Driver::None,
            left_alone: None,
            looked: None,
            damage: None,
        }
    }

    /// The run's directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the run, unless that was done a moment ago.
    #[expect(clippy::disallowed_methods, reason = "how often a run is asked is a matter of time")]
    pub(super) fn look(&mut self) -> Result<(), RuntimeError> {
        let began = Instant::now();
        if self.looked.is_some_and(|(_, again)| began < again) {
            if let Some(reason) = &self.damage {
                let (path, reason) = (self.path.clone(), reason.clone());
                return Err(RuntimeError::Damaged { path, reason });
            }
            if self.reader.run().is_some() {
                return Ok(());
            }
        }
        let looked = self.look_now(began);
        self.damage = match &looked {
            Err(RuntimeError::Damaged { reason, .. }) => Some(reason.clone()),
            _ => None,
        };
        let took = began.elapsed();
        self.looked = Some((began, began + LOOK_EVERY.max(took * SHARE)));
        looked
    }

    fn look_now(&mut self, began: Instant) -> Result<(), RuntimeError> {
        let (driver, live) = self.ask(began);
        let Self { reader, newest, tally, .. } = self;
        let before = reader.run().map(|(_, _, event)| event);
        let is_new = std::cell::Cell::new(false);
        reader.advance(
            || is_new.set(true),
            |read| {
                if read.number == 1 {
                    *newest = Newest::new();
                    *tally = Tally::default();
                }
                tally.record(read.history, read.record);
                newest.push(&read);
            },
        )?;
        if let Some(live) = live {
            for task in live.tasks {
                if let Some(attempt) = task.attempt {
                    self.reader.observe(AttemptId(attempt), task.step, task.loss, live.now_s);
                }
            }
        }
        let event = self.reader.run().map(|(_, _, event)| event);
        if driver != Driver::None || event != before || is_new.get() {
            self.left_alone = None;
        }
        self.driver = driver;
        if driver == Driver::None
            && self.left_alone.is_none()
            && let Some((state, history, _)) = self.reader.run()
            && state.ended.is_none()
        {
            self.left_alone = Some(without_driver(state.clone(), history.clone()));
        }
        Ok(())
    }

    /// Something was changed: the next question looks at the run anew.
    pub(super) fn look_again(&mut self) {
        self.looked = self.looked.map(|(at, _)| (at, at));
    }

    /// The run as it was when it was last looked at, its clock going on since.
    pub(super) fn moment(&self) -> Option<Moment<'_>> {
        let (state, history, event) = self.reader.run()?;
        let is_driven = self.driver != Driver::None;
        let now_s = match self.driver {
            Driver::At(said_s, at) => (said_s + at.elapsed().as_secs_f64()).max(state.now_s),
            Driver::None | Driver::Silent => state.now_s,
        };
        let alone = self.left_alone.as_ref().map(|(state, history)| (state, history));
        let (state, history) = alone.unwrap_or((state, history));
        Some(Moment { state, history, now_s, event, is_driven })
    }

    /// At most `most` events after number `after`.
    pub(super) fn events(&self, after: u64, most: usize) -> Option<Events> {
        let Moment { event, now_s, is_driven, .. } = self.moment()?;
        let (events, has_gap) = self.newest.after(after, event, most);
        let run_id = self.reader.run_id()?.to_owned();
        Some(Events { run_id, events, newest: event, has_gap, is_driven, now_s })
    }

    /// The newest events that people are told of, the newest first.
    pub(super) fn told(&self, most: usize) -> Vec<crate::answers::data::EventLine> {
        self.newest.told(most)
    }

    /// What has only grown since the run began.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Asks the driver how far the live attempts are.
    fn ask(&self, now: Instant) -> (Driver, Option<Status>) {
        let request = Request::Query(Query::Status);
        match control::ask_within(&self.path, &request, PATIENCE) {
            Err(ControlError::NotDriven { .. }) => (Driver::None, None),
            Err(ControlError::NoAnswer { .. }) => (Driver::Silent, None),
            Ok(reply) => {
                let status: Option<Status> =
                    reply.status.and_then(|status| serde_json::from_value(status).ok());
                match status {
                    Some(status) => (Driver::At(status.now_s, now), Some(status)),
                    None => (Driver::Silent, None),
                }
            }
        }
    }
}
