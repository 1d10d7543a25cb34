//! The thread that reads runs, and tells a receiver what happens to them.
//!
//! It reads the journals itself, beside all pages: what is told depends on records alone, and not on
//! what somebody has asked. If the receiver does not answer, it waits, longer each time, and reads a
//! run no further than it can tell.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver as Ends, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use saturn_runtime::{RunReader, control, journal_head, written_at};
use saturn_store::with_causes;
use serde::Serialize;

use crate::hooks::cursors::{Cursor, Cursors, NotOpened};
use crate::hooks::happenings::{self, Happening, Late, What};
use crate::hooks::receiver::{NotTaken, Receiver};
use crate::local::runs::{NamedRun, apart};
use crate::local::summary::{Signature, changed_within, signature};

/// How often runs are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 1000 });
/// The wait after a first failure, which doubles with each, up to the second.
const FIRST_WAIT: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// How often something is told to a receiver that refuses it.
const MAX_REFUSALS: u32 = 5;
/// File systems tell times in steps: a file that was written to so recently may have been written to
/// again since it was read, and say the same time.
const SETTLED: Duration = Duration::from_secs(2);
/// The longest reason, bytes.
const MAX_WHY: usize = 1000;

/// What a receiver is to be told.
pub struct Webhook {
    /// The receiver.
    pub receiver: Receiver,
    /// The kinds of happenings.
    pub wanted: BTreeSet<What>,
    /// The directory for what outlives runs, where the receiver's cursor is.
    pub home: PathBuf,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("receiver", &self.receiver.shown()).finish_non_exhaustive()
    }
}

/// A receiver is told for as long as this lives.
#[derive(Debug)]
pub struct Telling {
    _end: Sender<()>,
}

/// The body of what is told.
#[derive(Serialize)]
struct Body<'a> {
    version: u32,
    /// The same whenever this is told.
    id: &'a str,
    run: &'a str,
    run_id: &'a str,
    event: u64,
    task: Option<&'a str>,
    what: What,
    /// When its record was written, by the clock on the wall.
    when: Option<String>,
    at_s: f64,
    why: &'a str,
}

/// What a record tells.
#[derive(Debug)]
struct Group {
    event: u64,
    happenings: VecDeque<(String, Happening)>,
    /// The deadlines of which is told up to here.
    late: Late,
}

/// A run that a receiver is told of.
#[derive(Debug, Default)]
struct Told {
    name: String,
    /// What the journal was when it was last read to its end.
    signature: Option<Signature>,
    reader: Option<RunReader>,
    cursor: Cursor,
    /// The last record that was read for the queue, and the deadlines told up to there.
    read_to: u64,
    late: Late,
    queue: VecDeque<Group>,
}

struct Teller {
    webhook: Webhook,
    cursors: Cursors,
    find: Box<dyn Fn() -> Vec<NamedRun> + Send>,
    note: Box<dyn Fn(&str) + Send>,
    runs: BTreeMap<PathBuf, Told>,
    /// Failures in a row, and when the receiver is tried again.
    failures: u32,
    again: Option<Instant>,
    /// How often the next happening was refused.
    refusals: u32,
    is_disk_told: bool,
    ended: Ends<()>,
}

impl Telling {
    /// Tells a receiver what happens to the runs that `find` finds. `note` is for people.
    ///
    /// # Errors
    ///
    /// Why that is not possible.
    #[expect(clippy::disallowed_methods, reason = "a receiver is told what happens from now on")]
    pub fn start(
        webhook: Webhook,
        find: impl Fn() -> Vec<NamedRun> + Send + 'static,
        note: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, String> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let cursors = Cursors::open(&webhook.home, webhook.receiver.address(), now_s);
        let cursors = cursors.map_err(|error| match error {
            NotOpened::Taken => "another `saturn web` tells this receiver".to_owned(),
            NotOpened::Failed(error) => with_causes(&error),
        })?;
        let (end, ended) = channel();
        let mut teller = Teller {
            webhook,
            cursors,
            find: Box::new(find),
            note: Box::new(note),
            runs: BTreeMap::new(),
            failures: 0,
            again: None,
            refusals: 0,
            is_disk_told: false,
            ended,
        };
        let spawned = thread::Builder::new().name("saturn-webhook".to_owned());
        spawned
            .spawn(move || {
                while teller.ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    teller.look();
                    teller.tell();
                }
            })
            .map_err(|error| saturn_store::io_words(&error))?;
        Ok(Self { _end: end })
    }
}

impl Teller {
    /// Reads what is new in all runs.
    fn look(&mut self) {
        let mut found = apart((self.find)());
        // Cursors outlive this process, and the next may be started in another directory.
        for run in &mut found {
            run.path = run.path.canonicalize().unwrap_or_else(|_| run.path.clone());
        }
        self.runs.retain(|path, _| found.iter().any(|run| run.path == *path));
        for run in found {
            let told = self.runs.entry(run.path.clone()).or_default();
            told.name = run.name;
            // A run that can't be read now may be readable later.
            let _ = told.look(&run.path, &mut self.cursors, &self.webhook.wanted);
        }
        self.flush();
    }

    /// Tells what there is to tell, until the receiver does not take something.
    #[expect(clippy::disallowed_methods, reason = "a receiver that fails is tried again later")]
    fn tell(&mut self) {
        if self.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let paths: Vec<PathBuf> = self.runs.keys().cloned().collect();
        for path in paths {
            while let Some(taken) = self.tell_next(&path) {
                if !taken {
                    let wait = FIRST_WAIT * 2_u32.saturating_pow(self.failures.min(16));
                    self.again = Some(Instant::now() + wait.min(LONGEST_WAIT));
                    self.failures = self.failures.saturating_add(1);
                    return;
                }
                if self.ended.try_recv() == Err(TryRecvError::Disconnected) {
                    return;
                }
            }
        }
    }

    /// Tells the next happening of a run. Returns whether the receiver has taken it, or never will;
    /// `None` if there is nothing to tell.
    fn tell_next(&mut self, path: &Path) -> Option<bool> {
        let told = self.runs.get_mut(path)?;
        let group = told.queue.front_mut()?;
        let (id, happening) = group.happenings.front()?;
        let body = Body {
            version: 1,
            id,
            run: &told.name,
            run_id: &told.cursor.run_id,
            event: happening.event,
            task: happening.task.as_deref(),
            what: happening.what,
            when: written_at(path, happening.event),
            at_s: happening.at_s,
            why: &happening.why[..happening.why.floor_char_boundary(MAX_WHY)],
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let shown = self.webhook.receiver.shown();
        match self.webhook.receiver.tell(id, &body) {
            Ok(()) => {
                if self.failures > 0 {
                    (self.note)(&format!("webhook {shown}: it answers again"));
                }
            }
            Err(NotTaken::Refused(why)) if self.refusals + 1 >= MAX_REFUSALS => {
                (self.note)(&format!("webhook {shown}: {why}; {id} is left out"));
            }
            Err(NotTaken::Refused(why)) => {
                if self.failures == 0 {
                    (self.note)(&format!("webhook {shown}: {why}; it is tried again"));
                }
                self.refusals += 1;
                return Some(false);
            }
            Err(NotTaken::Failed(why)) => {
                if self.failures == 0 {
                    (self.note)(&format!("webhook {shown}: {why}; it is tried again and again"));
                }
                return Some(false);
            }
        }
        (self.failures, self.again, self.refusals) = (0, None, 0);
        group.happenings.pop_front();
        if group.happenings.is_empty() {
            told.cursor.told = group.event;
            told.cursor.late.clone_from(&group.late);
            told.queue.pop_front();
            self.cursors.set(path, &told.cursor);
            self.flush();
        }
        Some(true)
    }

    fn flush(&mut self) {
        match self.cursors.flush() {
            Ok(()) => self.is_disk_told = false,
            Err(error) if !self.is_disk_told => {
                self.is_disk_told = true;
                (self.note)(&format!(
                    "{}; if `saturn web` ends before, some is told twice",
                    with_causes(&error)
                ));
            }
            Err(_) => {}
        }
    }
}

impl Told {
    /// Reads what is new in a run, if all that was read is told.
    fn look(
        &mut self,
        path: &Path,
        cursors: &mut Cursors,
        wanted: &BTreeSet<What>,
    ) -> Result<(), saturn_runtime::RuntimeError> {
        if !self.queue.is_empty() {
            return Ok(());
        }
        let now = signature(path);
        if self.signature == Some(now) {
            if self.reader.is_some() && control::driver_of(path).is_none() {
                self.reader = None;
                self.cursor.told = self.read_to;
                self.cursor.late.clone_from(&self.late);
                cursors.set(path, &self.cursor);
            }
            return Ok(());
        }
        let head = journal_head(path)?;
        if self.cursor.run_id != head.run_id {
            self.cursor = cursors.of(path, &head);
            self.read_to = self.cursor.told;
            self.late.clone_from(&self.cursor.late);
            self.reader = None;
            cursors.set(path, &self.cursor);
        }
        if head.newest > self.read_to {
            self.read(path, wanted)?;
        }
        self.signature = (!changed_within(path, SETTLED)).then_some(now);
        Ok(())
    }

    fn read(
        &mut self,
        path: &Path,
        wanted: &BTreeSet<What>,
    ) -> Result<(), saturn_runtime::RuntimeError> {
        let mut reader = self.reader.take().unwrap_or_else(|| RunReader::new(path));
        let (read_to, run_id) = (self.read_to, &self.cursor.run_id);
        let (mut late, mut groups) = (self.late.clone(), VecDeque::new());
        reader.advance(
            || {},
            |read| {
                if read.number <= read_to {
                    return;
                }
                let found = happenings::of(&read, &mut late).into_iter().enumerate();
                let found = found.map(|(place, one)| (one.id(run_id, place), one));
                let found: VecDeque<_> =
                    found.filter(|(_, one)| wanted.contains(&one.what)).collect();
                if !found.is_empty() {
                    let (event, late) = (read.number, late.clone());
                    groups.push_back(Group { event, happenings: found, late });
                }
            },
        )?;
        // The directory may have got another run meanwhile: then the next look begins with that.
        if reader.run_id() == Some(run_id.as_str())
            && let Some((_, _, newest)) = reader.run()
        {
            (self.read_to, self.late, self.queue) = (newest, late, groups);
            self.reader = Some(reader);
        }
        Ok(())
    }
}
