//! Which parent starts ranks now, and which gangs wait for a parent.
//!
//! If a parent ends or can't be started, another follows: at once after the first failure, then
//! after waits that double. Launches wait meanwhile. After [`MAX_FAILED`] failures in a row they
//! fail, and the engine decides how long to try again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use saturn_engine::{AttemptId, FailureKind, LaunchError};
use saturn_store::with_causes;

use crate::launching::input::Sending;
use crate::launching::orders::Orders;
use crate::launching::parent::{Kind, Parent};
use crate::launching::protocol::RankLaunch;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::system::clock::{deadline, is_past};
use crate::system::error::RuntimeError;

/// The most warm parents in a row that may die before they have served.
const MAX_STILLBORN: u32 = 2;
/// After this many failures in a row, waiting launches fail.
const MAX_FAILED: u32 = 5;
/// A parent that ends within this time after it was ready counts as failed.
const SERVED: Duration = Duration::from_secs(10);
/// The wait for another parent after the second failure in a row. It doubles with each further
/// failure.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest wait for another parent.
const AGAIN_AT_MOST: Duration = Duration::from_mins(1);

/// The present parent of ranks, and how to start another.
#[derive(Debug)]
pub(crate) struct Parents {
    site: Site,
    settings: LaunchSettings,
    sending: Sending,
    next_id: u64,
    kind: Kind,
    state: State,
    /// How many parents of this kind in a row could not be started or ended before they had served.
    num_failed: u32,
    /// Parents have failed so often that launches must not wait for the next.
    is_in_vain: bool,
    /// The newest parent that was killed because it hung.
    hung: Option<u64>,
    /// Gangs to start as soon as a parent is ready.
    waiting: BTreeMap<AttemptId, Waiting>,
}

/// A gang that waits for a parent.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) launches: Vec<RankLaunch>,
    /// The orders to it since it waits.
    pub(crate) orders: Orders,
}

#[derive(Debug)]
enum State {
    /// A parent is importing.
    Starting(Parent),
    /// A parent starts ranks. Once the given time has come, it has served.
    Ready(Parent, Instant),
    /// No parent is there; another is started at the given time.
    Resting(Instant),
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
            state: State::Resting(deadline(Duration::ZERO)),
            num_failed: 0,
            is_in_vain: false,
            hung: None,
            waiting: BTreeMap::new(),
        };
        parents.start_one()?;
        Ok(parents)
    }

    /// Whether a parent is starting, so that launches wait.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting(_))
    }

    /// The parent that starts ranks now.
    pub(crate) fn serving(&self) -> Option<u64> {
        match &self.state {
            State::Ready(parent, _) => Some(parent.id),
            State::Starting(_) | State::Resting(_) => None,
        }
    }

    /// Handles a parent that is ready. Returns notes for people.
    pub(crate) fn ready(&mut self, id: u64, cannot_fork: Option<String>) -> Vec<String> {
        let resting = State::Resting(deadline(Duration::ZERO));
        match std::mem::replace(&mut self.state, resting) {
            State::Starting(parent) if parent.id == id => {
                if let Some(why) = cannot_fork {
                    // Dropping a parent ends it.
                    drop(parent);
                    return self.go_cold(format!(
                        "the process that ranks are forked from (the warm parent) {why}, so it \
                         can't fork safely; each rank gets its own interpreter, which takes seconds"
                    ));
                }
                self.state = State::Ready(parent, deadline(SERVED));
            }
            other => self.state = other,
        }
        Vec::new()
    }

    /// Handles the end of a parent. Returns notes for people.
    pub(crate) fn gone(&mut self, id: u64) -> Vec<String> {
        let has_served = match &self.state {
            State::Starting(parent) if parent.id == id => false,
            State::Ready(parent, served) if parent.id == id => is_past(*served),
            // Another parent serves already.
            _ => return Vec::new(),
        };
        if has_served {
            self.num_failed = 0;
        }
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
        if self.kind == Kind::Warm && self.num_failed + 1 >= MAX_STILLBORN {
            return self.go_cold(format!("{what}; each rank gets its own interpreter from now on"));
        }
        vec![format!("{what}; {}", self.failed())]
    }

    /// Starts cold parents from now on.
    fn go_cold(&mut self, why: String) -> Vec<String> {
        self.kind = Kind::Cold;
        self.num_failed = 0;
        let mut notes = vec![why];
        notes.extend(self.start_or_rest());
        notes
    }

    /// Counts a failed parent and starts another, at once or later. Returns a note for people.
    fn failed(&mut self) -> String {
        self.num_failed += 1;
        self.is_in_vain = self.num_failed >= MAX_FAILED;
        let wait = wait_after(self.num_failed);
        if wait.is_zero() {
            return self.start_or_rest().unwrap_or_else(|| "another is started".to_owned());
        }
        self.state = State::Resting(deadline(wait));
        format!("another is started in {} s", wait.as_secs())
    }

    /// Starts a parent. If this fails, returns why, and when it will be tried again.
    fn start_or_rest(&mut self) -> Option<String> {
        let error = self.start_one().err()?;
        // A machine that has no room for a process now may have room later, but hardly at once.
        self.num_failed = self.num_failed.max(1) + 1;
        self.is_in_vain = self.num_failed >= MAX_FAILED;
        let wait = wait_after(self.num_failed);
        self.state = State::Resting(deadline(wait));
        let error = with_causes(&error);
        Some(format!("no process that starts ranks: {error}; tried again in {} s", wait.as_secs()))
    }

    /// Starts another parent if its wait is over. Returns a note for people.
    pub(crate) fn look(&mut self) -> Option<String> {
        match &self.state {
            State::Resting(until) if is_past(*until) => self.start_or_rest(),
            _ => None,
        }
    }

    /// Takes the gangs that wait for a parent, with an error for each, if parents failed too often
    /// in a row.
    pub(crate) fn take_hopeless(&mut self) -> Vec<(AttemptId, LaunchError)> {
        if !std::mem::take(&mut self.is_in_vain) {
            return Vec::new();
        }
        let times = self.num_failed;
        let error = format!("the process that starts ranks failed {times} times in a row");
        let waiting = self.take_waiting().into_keys();
        waiting.map(|attempt| (attempt, failed(&error))).collect()
    }

    fn start_one(&mut self) -> Result<(), RuntimeError> {
        let id = self.next_id;
        self.next_id += 1;
        let sending = self.sending.clone();
        let parent = Parent::start(self.kind, id, &self.site, &self.settings, sending)?;
        self.state = State::Starting(parent);
        Ok(())
    }

    /// Kills a parent that hangs. Its end is heard later. Returns a note for people, once.
    pub(crate) fn kill(&mut self, id: u64) -> Option<String> {
        if let State::Starting(parent) | State::Ready(parent, _) = &mut self.state
            && parent.id == id
        {
            parent.kill();
            if self.hung.replace(id) != Some(id) {
                return Some("the process that starts ranks hangs, so it is ended".to_owned());
            }
        }
        None
    }

    /// Lets a gang wait for a parent.
    pub(crate) fn wait(&mut self, attempt: AttemptId, launches: Vec<RankLaunch>) {
        self.waiting.insert(attempt, Waiting { launches, orders: Orders::default() });
    }

    /// Whether a gang waits for a parent.
    pub(crate) fn has_waiting(&self, attempt: AttemptId) -> bool {
        self.waiting.contains_key(&attempt)
    }

    /// Takes the gangs that wait.
    pub(crate) fn take_waiting(&mut self) -> BTreeMap<AttemptId, Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// The orders to a gang that waits for a parent; `None` if it does not wait.
    pub(crate) fn orders_to(&mut self, attempt: AttemptId) -> Option<&mut Orders> {
        self.waiting.get_mut(&attempt).map(|waiting| &mut waiting.orders)
    }

    /// Takes back a gang that waits for a parent, if it does.
    pub(crate) fn forget(&mut self, attempt: AttemptId) -> Option<Vec<RankLaunch>> {
        self.waiting.remove(&attempt).map(|waiting| waiting.launches)
    }

    /// Tells the present parent to start the ranks of a gang.
    pub(crate) fn launch(&mut self, launches: &[RankLaunch]) -> Result<(), LaunchError> {
        let State::Ready(parent, _) = &mut self.state else {
            return Err(failed("no parent of ranks is ready"));
        };
        for launch in launches {
            parent.launch(launch).map_err(|error| failed(&error.to_string()))?;
        }
        Ok(())
    }
}

/// How long to wait for the next parent after `num_failed` failures in a row.
fn wait_after(num_failed: u32) -> Duration {
    match num_failed {
        0 | 1 => Duration::ZERO,
        _ => (AGAIN * (1 << (num_failed - 2).min(10))).min(AGAIN_AT_MOST),
    }
}

fn failed(error: &str) -> LaunchError {
    LaunchError {
        kind: FailureKind::Saturn,
        error: format!("its processes could not be started: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;
    use crate::launching::input::Input;
    use crate::system::bell::Bell;

    /// Parents that run `program`.
    fn parents(directory: &std::path::Path, program: &str) -> (Parents, Receiver<Input>) {
        let settings = LaunchSettings {
            python: program.to_owned(),
            python_path: Vec::new(),
            cwd: directory.to_owned(),
            preload: Vec::new(),
            devices: None,
            locks_dir: None,
            run_id: "run".to_owned(),
            run_dir: None,
            store: None,
            host_memory_bytes: None,
            outlives_s: None,
            door: None,
            shared_gpus: std::collections::BTreeSet::new(),
            platform: None,
        };
        let site = Site {
            run_dir: directory.to_owned(),
            workers_lock: directory.join("lock"),
            parent_logs: directory.to_owned(),
        };
        let (inputs, received) = sync_channel(64);
        let sending = Sending { inputs, bell: Bell::default() };
        (Parents::start(site, settings, sending).unwrap(), received)
    }

    /// Handles parents' ends, and starts other parents, until `is_seen` of them and their notes.
    /// Returns the notes. A busy machine may take long to start a process, so the limit is large.
    fn watch(
        parents: &mut Parents,
        inputs: &Receiver<Input>,
        is_seen: impl Fn(&Parents, &[String]) -> bool,
    ) -> Vec<String> {
        let (until, mut notes) = (deadline(Duration::from_mins(1)), Vec::new());
        while !is_seen(parents, &notes) {
            assert!(!is_past(until), "{notes:#?}");
            if let Ok(Input::ParentGone { parent }) = inputs.recv_timeout(Duration::from_millis(20))
            {
                notes.extend(parents.gone(parent));
            }
            notes.extend(parents.look());
        }
        notes
    }

    #[test]
    fn parents_that_die_at_once_are_started_ever_more_rarely() {
        let directory = tempfile::tempdir().unwrap();
        let (mut parents, inputs) = parents(directory.path(), "/bin/false");
        // Two warm parents and two cold parents start at once, and one more after a second.
        let mut notes = watch(&mut parents, &inputs, |_, notes| notes.len() >= 3);
        let until = deadline(Duration::from_millis(1500));
        notes.extend(watch(&mut parents, &inputs, |_, _| is_past(until)));
        assert!(notes.len() <= 5, "{notes:#?}");
        assert!(notes.last().unwrap().contains(" s"), "{notes:#?}");
        // An attempt that waits for a parent fails once too many parents have failed.
        parents.wait(AttemptId(1), Vec::new());
        assert!(parents.take_hopeless().is_empty(), "another may do better");
        parents.num_failed = MAX_FAILED;
        parents.failed();
        let failed = parents.take_hopeless();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].1.kind, FailureKind::Saturn);
        parents.wait(AttemptId(2), Vec::new());
        assert!(parents.take_hopeless().is_empty(), "the next parent may do better");
    }

    #[test]
    fn a_parent_that_cannot_be_started_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let (mut parents, inputs) = parents(directory.path(), "/bin/false");
        parents.settings.python = PathBuf::from("/nowhere/python").display().to_string();
        watch(&mut parents, &inputs, |parents, notes| {
            !parents.is_starting() && notes.iter().any(|note| note.contains("tried again in 1 s"))
        });
        parents.settings.python = "/bin/sleep".to_owned();
        // A third parent is started.
        watch(&mut parents, &inputs, |parents, _| parents.next_id > 2);
    }
}
