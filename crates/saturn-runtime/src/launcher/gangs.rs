//! The table of live gangs: which processes and sockets belong to which rank.
//!
//! A rank's end reaches the driver twice, through its parent (exit code) and its socket (hang-up), in
//! any order. It is passed on once both are in, so that the rank's last words come first; or some
//! time after the exit code, since a process that the rank left behind may hold the socket open.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use saturn_engine::AttemptId;

use crate::clock::{deadline, is_past};
use crate::protocol::STOP_LINE;

/// How long a rank's last words are waited for after its process has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct LiveRank {
    /// Process id, and id of the process group that it leads.
    pid: Option<i32>,
    stream: Option<UnixStream>,
    has_hung_up: bool,
    /// Exit code, and until when last words are waited for.
    exited: Option<(i32, Instant)>,
}

#[derive(Debug, Default)]
struct Gang {
    ranks: BTreeMap<u32, LiveRank>,
    stop_asked: bool,
    kill_asked: bool,
}

/// All gangs some process of which lives, or whose end has not been passed on.
#[derive(Debug, Default)]
pub(crate) struct Gangs(BTreeMap<AttemptId, Gang>);

impl Gangs {
    /// Notes a gang that is about to be launched.
    pub(crate) fn expect(&mut self, attempt: AttemptId, num_ranks: u32) {
        let ranks = (0..num_ranks).map(|rank| (rank, LiveRank::default())).collect();
        self.0.insert(attempt, Gang { ranks, ..Gang::default() });
    }

    /// Forgets a gang that could not be launched.
    pub(crate) fn forget(&mut self, attempt: AttemptId) {
        self.kill(attempt);
        self.0.remove(&attempt);
    }

    pub(crate) fn forked(&mut self, attempt: AttemptId, rank: u32, pid: i32) {
        let Some(gang) = self.0.get_mut(&attempt) else {
            // Its gang was forgotten: it must not live on.
            kill_rank(pid);
            return;
        };
        if gang.kill_asked {
            kill_rank(pid);
        }
        if let Some(rank) = gang.ranks.get_mut(&rank) {
            rank.pid = Some(pid);
        }
    }

    pub(crate) fn connected(&mut self, attempt: AttemptId, rank: u32, stream: UnixStream) {
        let Some(gang) = self.0.get_mut(&attempt) else { return };
        let stop_asked = gang.stop_asked;
        if let Some(rank) = gang.ranks.get_mut(&rank) {
            let stream = rank.stream.insert(stream);
            if stop_asked {
                ask_to_stop(stream);
            }
        }
    }

    pub(crate) fn hung_up(&mut self, attempt: AttemptId, rank: u32) {
        if let Some(rank) = self.rank(attempt, rank) {
            rank.has_hung_up = true;
        }
    }

    pub(crate) fn exited(&mut self, attempt: AttemptId, rank: u32, code: i32) {
        if let Some(rank) = self.rank(attempt, rank) {
            // Whatever it left behind in its process group goes with it.
            rank.pid.take().into_iter().for_each(kill_group);
            rank.exited = Some((code, deadline(LAST_WORDS)));
        }
    }

    /// Ranks whose end is to be passed on now, with their exit codes.
    pub(crate) fn take_ended(&mut self) -> Vec<(AttemptId, u32, i32)> {
        let mut ended = Vec::new();
        for (attempt, gang) in &mut self.0 {
            gang.ranks.retain(|index, rank| match rank.exited {
                Some((code, until)) if rank.has_hung_up || is_past(until) => {
                    ended.push((*attempt, *index, code));
                    false
                }
                _ => true,
            });
        }
        self.0.retain(|_, gang| !gang.ranks.is_empty());
        ended
    }

    /// Ranks that have not ended.
    pub(crate) fn live_ranks(&self) -> Vec<(AttemptId, u32)> {
        self.0
            .iter()
            .flat_map(|(attempt, gang)| {
                let live = gang.ranks.iter().filter(|(_, rank)| rank.exited.is_none());
                live.map(|(rank, _)| (*attempt, *rank))
            })
            .collect()
    }

    /// Asks all ranks of a gang to stop together at a checkpoint.
    pub(crate) fn stop(&mut self, attempt: AttemptId) {
        let Some(gang) = self.0.get_mut(&attempt) else { return };
        gang.stop_asked = true;
        gang.ranks.values_mut().filter_map(|rank| rank.stream.as_mut()).for_each(ask_to_stop);
    }

    /// Kills all processes of a gang, those too that are yet to be forked.
    pub(crate) fn kill(&mut self, attempt: AttemptId) {
        let Some(gang) = self.0.get_mut(&attempt) else { return };
        gang.kill_asked = true;
        gang.ranks.values().filter_map(|rank| rank.pid).for_each(kill_rank);
    }

    /// Kills everything.
    pub(crate) fn kill_all(&mut self) {
        let attempts: Vec<AttemptId> = self.0.keys().copied().collect();
        for attempt in attempts {
            self.kill(attempt);
        }
    }

    fn rank(&mut self, attempt: AttemptId, rank: u32) -> Option<&mut LiveRank> {
        self.0.get_mut(&attempt)?.ranks.get_mut(&rank)
    }
}

fn ask_to_stop(stream: &mut UnixStream) {
    // A rank that can't be written to is dying; its end will be noticed.
    let _ = stream.write_all(STOP_LINE);
}

/// Kills a rank that has not been reaped, and all of its process group.
fn kill_rank(pid: i32) {
    if killpg(Pid::from_raw(pid), Signal::SIGKILL).is_err() {
        // It was forked just now and does not lead a group yet.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Kills what a rank that is gone left behind.
fn kill_group(pid: i32) {
    // Mostly there is nothing.
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
}
