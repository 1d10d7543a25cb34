//! Which parent starts ranks at present, and what waits for one.

use std::collections::BTreeMap;

use saturn_engine::{AttemptId, FailureKind, LaunchError};

use super::Site;
use super::input::Sending;
use super::parent::{Kind, Parent};
use super::protocol::RankLaunch;
use crate::error::{RuntimeError, with_causes};
use crate::request::LaunchSettings;

/// Warm parents in a row that may die before they are ready.
const MAX_STILLBORN: u32 = 2;

/// The parent that serves, and how to start another.
#[derive(Debug)]
pub(crate) struct Parents {
    site: Site,
    settings: LaunchSettings,
    sending: Sending,
    next_id: u64,
    kind: Kind,
    state: State,
    /// Warm parents that died before they were ready, since one was.
    num_stillborn: u32,
    /// Gangs to start as soon as a parent is ready.
    waiting: BTreeMap<AttemptId, Vec<RankLaunch>>,
}

#[derive(Debug)]
enum State {
    /// It imports.
    Starting(Parent),
    /// It starts ranks.
    Ready(Parent),
    /// There is none: the next launch starts one.
    None,
}

impl Parents {
    /// Starts a warm parent.
    pub(crate) fn start(
        site: Site,
        settings: LaunchSettings,
        sending: Sending,
    ) -> Result<Self, RuntimeError> {
        let mut parents = Self {
            site,
            settings,
            sending,
            next_id: 0,
            kind: Kind::Warm,
            state: State::None,
            num_stillborn: 0,
            waiting: BTreeMap::new(),
        };
        parents.start_one()?;
        Ok(parents)
    }

    /// Whether launches have to wait.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting(_))
    }

    /// The parent that starts ranks now.
    pub(crate) fn serving(&self) -> Option<u64> {
        match &self.state {
            State::Ready(parent) => Some(parent.id),
            State::Starting(_) | State::None => None,
        }
    }

    /// A parent is ready. What to tell people comes back.
    pub(crate) fn ready(&mut self, id: u64, cannot_fork: Option<String>) -> Vec<String> {
        match std::mem::replace(&mut self.state, State::None) {
            State::Starting(parent) if parent.id == id => {
                if let Some(why) = cannot_fork {
                    // Ended by being dropped.
                    drop(parent);
                    return self.go_cold(format!(
                        "the process that ranks are forked from (the warm parent) {why}, so it \
                         can't fork safely; each rank starts by itself, which takes seconds"
                    ));
                }
                self.num_stillborn = 0;
                self.state = State::Ready(parent);
            }
            other => self.state = other,
        }
        Vec::new()
    }

    /// A parent has ended. What to tell people comes back.
    pub(crate) fn gone(&mut self, id: u64) -> Vec<String> {
        let was_starting = match &self.state {
            State::Starting(parent) if parent.id == id => true,
            State::Ready(parent) if parent.id == id => false,
            // Another serves by now.
            _ => return Vec::new(),
        };
        self.state = State::None;
        let log = self.site.parent_logs.join(match self.kind {
            Kind::Warm => "warm-parent.log",
            Kind::Cold => "cold-parent.log",
        });
        let what = format!(
            "the process that starts ranks (the {} parent) ended unexpectedly (its log: {})",
            match self.kind {
                Kind::Warm => "warm",
                Kind::Cold => "cold",
            },
            log.display()
        );
        self.num_stillborn += u32::from(was_starting);
        if self.kind == Kind::Warm && self.num_stillborn >= MAX_STILLBORN {
            return self.go_cold(format!("{what}; each rank starts by itself from here on"));
        }
        match self.start_one() {
            Ok(()) => vec![format!("{what}; another is started")],
            Err(error) => vec![format!("{what}; {}", with_causes(&error))],
        }
    }

    /// Ranks start cold from here on.
    fn go_cold(&mut self, why: String) -> Vec<String> {
        self.kind = Kind::Cold;
        let mut notes = vec![why];
        if let Err(error) = self.start_one() {
            notes.push(with_causes(&error));
        }
        notes
    }

    fn start_one(&mut self) -> Result<(), RuntimeError> {
        let id = self.next_id;
        self.next_id += 1;
        let sending = self.sending.clone();
        let parent = Parent::start(self.kind, id, &self.site, &self.settings, sending)?;
        self.state = State::Starting(parent);
        Ok(())
    }

    /// Kills a parent that hangs; that it has gone is heard later.
    pub(crate) fn kill(&mut self, id: u64) {
        if let State::Starting(parent) | State::Ready(parent) = &mut self.state
            && parent.id == id
        {
            parent.kill();
        }
    }

    /// Has a gang wait for a parent.
    pub(crate) fn wait(&mut self, attempt: AttemptId, launches: Vec<RankLaunch>) {
        self.waiting.insert(attempt, launches);
    }

    /// The gangs that wait.
    pub(crate) fn take_waiting(&mut self) -> BTreeMap<AttemptId, Vec<RankLaunch>> {
        std::mem::take(&mut self.waiting)
    }

    /// Forgets a gang that waits, if it does.
    pub(crate) fn forget(&mut self, attempt: AttemptId) -> Option<Vec<RankLaunch>> {
        self.waiting.remove(&attempt)
    }

    /// Has the parent that serves start the ranks of a gang.
    pub(crate) fn launch(&mut self, launches: &[RankLaunch]) -> Result<(), LaunchError> {
        let State::Ready(parent) = &mut self.state else {
            return Err(failed("no parent of ranks is ready"));
        };
        for launch in launches {
            parent.launch(launch).map_err(|error| failed(&error.to_string()))?;
        }
        Ok(())
    }
}

fn failed(error: &str) -> LaunchError {
    LaunchError {
        kind: FailureKind::Machine,
        error: format!("its processes could not be started: {error}"),
    }
}
