//! Strays: processes of an attempt that have escaped, so that they are below none of its ranks.
//!
//! Every process of an attempt inherits a mark in its environment, `SATURN_ATTEMPT_ID=run/attempt`,
//! whatever session, process group or parent it takes. When an attempt has ended, every process
//! that carries its mark is killed, until none is left. A live parent of ranks ends most strays
//! before that, since it adopts orphans. The mark finds the strays of a parent that died.
//!
//! The kernel shows a process's environment as it was at the last exec. So a process that was only
//! forked carries the mark of the program it was forked from. This is true of ranks of the warm
//! parent, but not of programs that they start.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use saturn_engine::AttemptId;

use crate::launching::input::{Input, Sending};
use crate::system::clock::{deadline, is_past, pause};
use crate::system::processes::{stat_of, variable_of};

/// The time between two looks at killed processes, which grows from the first to the second. The
/// kernel may never end a process that waits for a device or a file server, and each look reads all
/// of `/proc`.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_AT_MOST: Duration = Duration::from_secs(10);

/// The variable that holds the mark.
pub(crate) const VARIABLE: &str = "SATURN_ATTEMPT_ID";

/// The mark of an attempt.
pub(crate) fn mark(run_id: &str, attempt: AttemptId) -> String {
    format!("{run_id}/{attempt}")
}

enum Chore {
    /// End the strays of an attempt, and these ranks, which nobody reaps.
    Sweep { attempt: AttemptId, ranks: Vec<i32> },
    /// Remove a directory.
    Remove(PathBuf),
}

/// The thread that ends strays and removes directories. Both may take long, and the driver must not
/// wait.
#[derive(Debug)]
pub(crate) struct Sweeper {
    chores: Sender<Chore>,
}

impl Sweeper {
    /// Starts the thread, for attempts of this run.
    pub(crate) fn start(run_id: String, inputs: Sending) -> Self {
        let (chores, received) = channel();
        let next = move |wait: Option<Duration>| match wait {
            None => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => received.recv_timeout(wait),
        };
        std::thread::spawn(move || work(&run_id, &inputs, next, kill_marked));
        Self { chores }
    }

    /// Ends the strays of an attempt. [`Input::Swept`] says when none is left.
    pub(crate) fn sweep(&self, attempt: AttemptId, ranks: Vec<i32>) {
        let _ = self.chores.send(Chore::Sweep { attempt, ranks });
    }

    /// Removes a directory of this run with its content.
    pub(crate) fn remove(&self, directory: PathBuf) {
        let _ = self.chores.send(Chore::Remove(directory));
    }
}

/// Ends strays and removes directories until there are no more chores. `next` waits for the next
/// chore, for as long as it is told to (`None`: for ever). `kill_marked` kills the processes with a
/// wanted mark, and returns them by mark. Both are arguments so that tests can count looks without
/// a clock.
fn work(
    run_id: &str,
    inputs: &Sending,
    mut next: impl FnMut(Option<Duration>) -> Result<Chore, RecvTimeoutError>,
    mut kill_marked: impl FnMut(&dyn Fn(&str) -> bool) -> BTreeMap<String, Vec<i32>>,
) {
    // Attempts that may have strays, by mark.
    let mut open: BTreeMap<String, (AttemptId, Vec<i32>)> = BTreeMap::new();
    let mut again = AGAIN;
    loop {
        match next((!open.is_empty()).then_some(again)) {
            Ok(Chore::Sweep { attempt, ranks }) => {
                again = AGAIN;
                open.insert(mark(run_id, attempt), (attempt, ranks));
            }
            Ok(Chore::Remove(directory)) => {
                // A directory that can't be removed only costs space.
                let _ = std::fs::remove_dir_all(directory);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => again = longer(again),
        }
        let found = kill_marked(&|mark| open.contains_key(mark));
        let swept: Vec<String> = open
            .iter_mut()
            .filter_map(|(mark, (_, ranks))| {
                ranks.retain(|rank| kill_leader(*rank));
                (ranks.is_empty() && !found.contains_key(mark)).then(|| mark.clone())
            })
            .collect();
        for mark in swept {
            if let Some((attempt, _)) = open.remove(&mark)
                && inputs.send(Input::Swept { attempt }).is_err()
            {
                return;
            }
        }
    }
}

/// The next wait, after a look that followed a wait of `waited` and still found a live process.
fn longer(waited: Duration) -> Duration {
    (2 * waited).min(AGAIN_AT_MOST)
}

/// Ends all processes of a run's attempts. Returns those that still live after `patience`.
pub(crate) fn end_all(run_id: &str, patience: Duration) -> Vec<i32> {
    let until = deadline(patience);
    loop {
        let of_run = |mark: &str| mark.split_once('/').is_some_and(|(run, _)| run == run_id);
        let left: BTreeSet<i32> = kill_marked(&of_run).into_values().flatten().collect();
        if left.is_empty() || is_past(until) {
            return left.into_iter().collect();
        }
        pause(AGAIN);
    }
}

/// Kills the processes with a wanted mark. Returns them by mark.
fn kill_marked(is_wanted: &dyn Fn(&str) -> bool) -> BTreeMap<String, Vec<i32>> {
    let mut found: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    let (me, my_user) = (std::process::id(), geteuid().as_raw());
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let is_ours = process.metadata().is_ok_and(|metadata| metadata.uid() == my_user);
        if !is_ours || pid.cast_unsigned() == me {
            continue;
        }
        let mark = variable_of(&process.path(), VARIABLE);
        let Some(mark) = mark.filter(|mark| is_wanted(mark)) else { continue };
        // The process may have ended a moment ago.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        found.entry(mark).or_default().push(pid);
    }
    found
}

/// Kills the process group of a rank that nobody reaps. Returns whether the rank was alive.
fn kill_leader(pid: i32) -> bool {
    leads_a_group(pid) && killpg(Pid::from_raw(pid), Signal::SIGKILL).is_ok()
}

/// Whether a process lives and leads a process group, as ranks do.
pub(crate) fn leads_a_group(pid: i32) -> bool {
    let stat = stat_of(Path::new(&format!("/proc/{pid}")));
    stat.is_some_and(|stat| !stat.is_zombie && stat.group == pid)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::system::bell::Bell;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_process_that_cannot_be_ended_is_looked_for_ever_more_rarely() {
        let (inputs, told) = sync_channel(4);
        let inputs = Sending { inputs, bell: Bell::default() };
        let attempts = [AttemptId(0), AttemptId(1)];
        let sweep = |attempt| Ok(Chore::Sweep { attempt, ranks: Vec::new() });
        // The time that the sweeper has waited, and the time of each of its looks.
        let (now, looks) = (Cell::new(Duration::ZERO), RefCell::new(Vec::new()));
        let mut chores = attempts.into_iter();
        // The second chore comes after an hour, and the driver ends after two.
        let next = |wait: Option<Duration>| {
            let Some(wait) = wait else { return sweep(chores.next().unwrap()) };
            let before = now.replace(now.get() + wait);
            match () {
                () if before < HOUR && now.get() >= HOUR => sweep(chores.next().unwrap()),
                () if now.get() >= 2 * HOUR => Err(RecvTimeoutError::Disconnected),
                () => Err(RecvTimeoutError::Timeout),
            }
        };
        // The kernel ends the process of the first attempt when the second hour begins, and never
        // that of the second.
        let kill_marked = |is_wanted: &dyn Fn(&str) -> bool| {
            looks.borrow_mut().push(now.get());
            let living = if now.get() < HOUR { &attempts[..] } else { &attempts[1..] };
            let marks = living.iter().map(|attempt| mark("run", *attempt));
            marks.filter(|mark| is_wanted(mark)).map(|mark| (mark, vec![7])).collect()
        };
        work("run", &inputs, next, kill_marked);
        let looks = looks.into_inner();
        let (first, second): (Vec<Duration>, Vec<Duration>) =
            looks.iter().partition(|look| **look < HOUR);
        for hour in [&first, &second] {
            assert!((360..400).contains(&hour.len()), "{} looks in an hour", hour.len());
            assert_eq!(hour[1], hour[0] + AGAIN, "the first look again comes soon");
        }
        let waits = looks.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        assert_eq!(waits.max(), Some(AGAIN_AT_MOST));
        let swept: Vec<AttemptId> = told
            .try_iter()
            .filter_map(|input| match input {
                Input::Swept { attempt } => Some(attempt),
                _ => None,
            })
            .collect();
        assert_eq!(swept, attempts[..1]);
    }
}
