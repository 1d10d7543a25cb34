//! One user's runs on this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use saturn_engine::{Command, TaskId};
use saturn_runtime::control::{self, ControlError, Request};
use saturn_runtime::{RuntimeError, cancel_sweep, stop_outlived};
use saturn_view::{Explanation, Gauges, PlanInForce, RunPage, Status, TaskPage};

use crate::answers::data::{Events, LogPart, LogQuery, RunMetrics, RunSummary, Seen};
use crate::answers::failure::{Failure, FailureKind};
use crate::answers::source::Source;
use crate::local::followed::{Followed, Moment};
use crate::local::kept::Kept;
use crate::local::logs;
use crate::local::pages::{self, MetricsRead};
use crate::local::summary::{Signature, changed_within, signature, summary};

/// How long a found list of runs is good for.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// How long a question waits for others about the same run.
const TURN: Duration = Duration::from_secs(1);
/// A run is summarised anew in at most one part in so many of the time.
const SHARE: u32 = 20;

/// Runs that nobody drives any more have numbers for so long after their last record, so that a
/// program that asks now and then learns how they ended.
const METERED_FOR: Duration = Duration::from_mins(15);
/// The most runs that have numbers.
const MAX_METERED: usize = 100;

/// A run, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRun {
    /// Its name in addresses.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Whether it is the pool.
    pub is_pool: bool,
}

/// A run's line in the list.
#[derive(Debug, Clone)]
struct Summarised {
    /// What the run's journal was then.
    signature: Signature,
    summary: RunSummary,
    /// When it may be made anew, although the run goes on.
    again: Instant,
}

/// The runs of one user.
pub struct Local {
    find: Box<dyn Fn() -> Vec<NamedRun> + Send + Sync>,
    found: Mutex<Option<(Instant, Vec<NamedRun>)>>,
    followed: Mutex<Kept>,
    summaries: Mutex<BTreeMap<PathBuf, Summarised>>,
    metrics: MetricsRead,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

impl Local {
    /// The runs that `find` finds, in its order. It is called again and again, since runs begin
    /// while the server serves.
    pub fn new(find: impl Fn() -> Vec<NamedRun> + Send + Sync + 'static) -> Self {
        Self {
            find: Box::new(find),
            found: Mutex::default(),
            followed: Mutex::default(),
            summaries: Mutex::default(),
            metrics: MetricsRead::default(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "runs begin while the server serves")]
    fn list(&self) -> Vec<NamedRun> {
        let mut found = lock(&self.found);
        if let Some((at, runs)) = &*found
            && at.elapsed() < LIST_EVERY
        {
            return runs.clone();
        }
        let runs = apart((self.find)());
        *found = Some((Instant::now(), runs.clone()));
        runs
    }

    fn find(&self, name: &str) -> Result<NamedRun, Failure> {
        let found = self.list().into_iter().find(|run| run.name == name);
        found.ok_or_else(|| FailureKind::NoSuchRun.because(format!("there is no run `{name}`")))
    }

    /// The followed run of this name.
    #[expect(clippy::disallowed_methods, reason = "runs are followed while somebody asks")]
    fn followed(&self, name: &str) -> Result<Arc<Mutex<Followed>>, Failure> {
        let path = self.find(name)?.path;
        Ok(lock(&self.followed).ask(&path, Instant::now()))
    }

    /// Looks at a run, and answers from what is known then.
    fn with<T>(
        &self,
        name: &str,
        answer: impl FnOnce(&Followed, Moment<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let followed = self.followed(name)?;
        let mut run = turn(&followed, name)?;
        run.look().map_err(|error| unreadable(&error))?;
        match run.moment() {
            Some(moment) => answer(&run, moment),
            None => Err(FailureKind::Internal.because(format!("the run `{name}` can't be read"))),
        }
    }
}

impl Source for Local {
    #[expect(clippy::disallowed_methods, reason = "how often runs are read is a matter of time")]
    fn runs(&self) -> Result<Vec<RunSummary>, Failure> {
        let runs = self.list();
        // Not locked while journals are read: they may be large, or on a disk that hangs.
        let known = lock(&self.summaries).clone();
        let summarised = runs.iter().map(|run| {
            let now = signature(&run.path);
            let is_driven = control::driver_of(&run.path);
            let began = Instant::now();
            if let Some(then) = known.get(&run.path)
                && (then.signature == now || began < then.again)
                && (then.summary.pid == is_driven || then.summary.state == "complete")
                && then.summary.name == run.name
            {
                return then.clone();
            }
            let summary = summary(run);
            let again = began + began.elapsed() * SHARE;
            Summarised { signature: now, summary, again }
        });
        let summarised: Vec<Summarised> = summarised.collect();
        let paths = runs.iter().map(|run| run.path.clone());
        *lock(&self.summaries) = paths.zip(summarised.iter().cloned()).collect();
        Ok(summarised.into_iter().map(|one| one.summary).collect())
    }

    fn status(&self, run: &str) -> Result<Seen<Arc<Status>>, Failure> {
        self.with(run, |_, at| {
            Ok(at.seen(Arc::new(saturn_view::status(at.state, at.history, at.now_s))))
        })
    }

    fn explain(&self, run: &str, task: Option<&str>) -> Result<Seen<Explanation>, Failure> {
        self.with(run, |_, at| {
            let task = task.map(|task| named(&at, task)).transpose()?;
            Ok(at.seen(saturn_view::explain(at.state, at.history, task, at.now_s)))
        })
    }

    fn plan(&self, run: &str) -> Result<Seen<Option<PlanInForce>>, Failure> {
        self.with(run, |_, at| Ok(at.seen(PlanInForce::of(at.state))))
    }

    fn log(&self, run: &str, task: &str, query: &LogQuery) -> Result<LogPart, Failure> {
        let directory = self.with(run, |run, at| {
            let id = named(&at, task)?;
            Ok(run.path().join(&at.state.task(id).spec.dir))
        })?;
        logs::part(&directory, query)
    }

    fn events(&self, run: &str, after: u64, most: usize) -> Result<Events, Failure> {
        self.with(run, |followed, _| {
            let events = followed.events(after, most);
            events.ok_or_else(|| FailureKind::Internal.because("the run can't be read"))
        })
    }

    fn run_page(&self, run: &str) -> Result<RunPage, Failure> {
        self.with(run, |followed, at| Ok(pages::of_run(run, followed, &at, &self.metrics)))
    }

    fn task_page(&self, run: &str, task: &str) -> Result<TaskPage, Failure> {
        self.with(run, |followed, at| {
            let page = pages::of_task(run, followed, &at, named(&at, task)?, &self.metrics);
            page.ok_or_else(|| FailureKind::Internal.because("the task can't be read"))
        })
    }

    fn metrics(&self) -> Result<Vec<RunMetrics>, Failure> {
        let metered = self.list().into_iter().filter(|run| {
            control::driver_of(&run.path).is_some() || changed_within(&run.path, METERED_FOR)
        });
        let read = |run: NamedRun| {
            let found = self.with(&run.name, |followed, at| {
                Ok(RunMetrics {
                    name: run.name.clone(),
                    is_driven: at.is_driven,
                    now_s: at.now_s,
                    gauges: Gauges::of(at.state, at.history, at.now_s),
                    tally: followed.tally().clone(),
                })
            });
            // A run that is damaged, or just being read, must not hide the others.
            found.ok()
        };
        Ok(metered.take(MAX_METERED).filter_map(read).collect())
    }

    fn command(&self, run: &str, command: Command) -> Result<(), Failure> {
        let path = self.find(run)?.path;
        if let Command::Cancel { task, .. } = &command
            && cancel_sweep(&path, task)
                .map_err(|error| FailureKind::Internal.because(error.to_string()))?
        {
            return Ok(());
        }
        let stops = if let Command::Stop { at_once } = command { Some(at_once) } else { None };
        match control::ask(&path, &Request::Command(command)) {
            // Its tasks train on, and are stopped without the process that drove it.
            Err(ControlError::NotDriven { .. })
                if stops.is_some_and(|at_once| stop_outlived(&path, at_once)) =>
            {
                Ok(())
            }
            Ok(reply) if reply.ok => {
                let known = lock(&self.followed).get(&path);
                if let Some(followed) = known
                    && let Ok(mut run) = followed.lock()
                {
                    run.look_again();
                }
                Ok(())
            }
            Ok(reply) => {
                let code = reply.code.unwrap_or(saturn_engine::RefusalCode::Other);
                let reason = reply.error.unwrap_or_else(|| "refused".to_owned());
                Err(FailureKind::Refused(code).because(reason))
            }
            Err(error @ ControlError::NotDriven { .. }) => {
                Err(FailureKind::NotDriven.because(error.to_string()))
            }
            Err(error @ ControlError::NoAnswer { .. }) => {
                Err(FailureKind::NoAnswer.because(saturn_store::with_causes(&error)))
            }
        }
    }
}

/// A run that nobody else reads now. A run that is large takes long to read for the first time: who
/// waits for it must not keep others from other runs.
#[expect(clippy::disallowed_methods, reason = "a question waits for a limited time")]
fn turn<'a>(
    followed: &'a Mutex<Followed>,
    name: &str,
) -> Result<MutexGuard<'a, Followed>, Failure> {
    let until = Instant::now() + TURN;
    loop {
        match followed.try_lock() {
            Ok(run) => return Ok(run),
            // Reading it panicked, so that what was read may be half of it.
            Err(TryLockError::Poisoned(poisoned)) => {
                followed.clear_poison();
                let mut run = poisoned.into_inner();
                let path = run.path().to_owned();
                *run = Followed::new(&path);
                return Ok(run);
            }
            Err(TryLockError::WouldBlock) if Instant::now() > until => {
                let reason = format!("the run `{name}` is being read; try again");
                return Err(FailureKind::Busy.because(reason));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Gives runs of the same name names of their own.
pub(crate) fn apart(runs: Vec<NamedRun>) -> Vec<NamedRun> {
    let mut named: Vec<NamedRun> = Vec::new();
    for run in runs {
        let is_taken = |name: &str, named: &[NamedRun]| named.iter().any(|one| one.name == name);
        let mut name = run.name.clone();
        let mut number = 2;
        while is_taken(&name, &named) {
            name = format!("{}~{number}", run.name);
            number += 1;
        }
        named.push(NamedRun { name, ..run });
    }
    named
}

fn named(at: &Moment<'_>, task: &str) -> Result<TaskId, Failure> {
    let found = at.state.task_named(task);
    found.ok_or_else(|| FailureKind::NotThere.because(at.state.unknown_task(task)))
}

fn unreadable(error: &RuntimeError) -> Failure {
    let kind = match error {
        RuntimeError::NoRun { .. } => FailureKind::NoSuchRun,
        _ => FailureKind::Internal,
    };
    kind.because(saturn_store::with_causes(error))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_name_are_told_apart() {
        let run = |name: &str| NamedRun {
            name: name.to_owned(),
            path: PathBuf::from(name),
            is_pool: false,
        };
        let names = apart(vec![run("a"), run("b"), run("a"), run("a")]);
        let names: Vec<String> = names.into_iter().map(|run| run.name).collect();
        assert_eq!(names, ["a", "b", "a~2", "a~3"]);
    }
}
