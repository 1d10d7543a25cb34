//! The table of live gangs: which processes and sockets belong to which rank.
//!
//! The launcher hears of a rank's end twice, in any order: its parent reports the exit code, and
//! its socket hangs up. The end is passed on once both have come, so that the rank's last words
//! come before it. It is passed on some time after the exit code in any case, since a process that
//! the rank left behind may hold the socket open. The end of a gang's last rank waits a little
//! longer: until no process of the attempt is left that might hold its devices.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use saturn_engine::AttemptId;

use crate::launching::orders::Orders;
use crate::launching::protocol::{RankKey, ToRank};
use crate::system::clock::{deadline, is_past};

/// How long to wait for a rank's last words after its process has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long to wait for strays to end before the end of their gang is passed on anyway.
const STRAYS: Duration = Duration::from_secs(2);
/// How long a rank that must die may have no process before its parent counts as hung.
const UNSTARTED: Duration = Duration::from_secs(5);
/// How long a rank may leave its orders unread.
const ORDERS: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct LiveRank {
    /// The parent that starts it.
    parent: u64,
    /// Process id, and id of the process group that it leads.
    pid: Option<i32>,
    stream: Option<UnixStream>,
    has_hung_up: bool,
    /// The exit code, and until when to wait for last words.
    exited: Option<(i32, Instant)>,
    /// The rank's end was passed on.
    is_told: bool,
}

#[derive(Debug, Default)]
struct Gang {
    ranks: BTreeMap<u32, LiveRank>,
    orders: Orders,
    /// The gang must die. If a rank still has no process at this time, its parent hangs.
    kill_asked: Option<Instant>,
    /// Ranks whose parent died: nobody reaps them.
    unreaped: Vec<i32>,
    sweep: Sweep,
}

#[derive(Debug, Default)]
enum Sweep {
    #[default]
    NotYet,
    /// The sweep is under way; wait for it at most until this time.
    UntilAtMost(Instant),
    Done,
}

/// All gangs that have a live process or whose end has not been passed on.
#[derive(Debug, Default)]
pub(crate) struct Gangs(BTreeMap<AttemptId, Gang>);

/// Ends that a look at the gangs finds.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Ranks whose end can be passed on now, with their exit codes.
    pub(crate) ranks: Vec<(AttemptId, u32, i32)>,
    /// Attempts without live ranks, whose strays must be ended, with ranks that nobody reaps.
    pub(crate) to_sweep: Vec<(AttemptId, Vec<i32>)>,
    /// Parents that were told to start ranks and do not.
    pub(crate) hung_parents: Vec<u64>,
}

impl Gangs {
    /// Notes a gang whose ranks this parent is about to start, and the orders to it so far.
    pub(crate) fn expect(
        &mut self,
        attempt: AttemptId,
        ranks: impl Iterator<Item = u32>,
        parent: u64,
        orders: Orders,
    ) {
        let rank = || LiveRank {
            parent,
            pid: None,
            stream: None,
            has_hung_up: false,
            exited: None,
            is_told: false,
        };
        let ranks = ranks.map(|number| (number, rank())).collect();
        self.0.insert(attempt, Gang { ranks, orders, ..Gang::default() });
    }

    /// Forgets a gang that could not be launched.
    pub(crate) fn forget(&mut self, attempt: AttemptId) {
        self.kill(attempt);
        self.0.remove(&attempt);
    }

    pub(crate) fn started(&mut self, (attempt, rank): RankKey, pid: i32) {
        let Some(gang) = self.0.get_mut(&attempt) else {
            // The gang was forgotten, so this process must not live on.
            kill_rank(pid);
            return;
        };
        if gang.kill_asked.is_some() {
            kill_rank(pid);
        }
        if let Some(rank) = gang.ranks.get_mut(&rank) {
            rank.pid = Some(pid);
        }
    }

    pub(crate) fn connected(&mut self, attempt: AttemptId, rank: u32, stream: UnixStream) {
        let Some(gang) = self.0.get_mut(&attempt) else { return };
        let Orders { stop, until } = gang.orders;
        if let Some(rank) = gang.ranks.get_mut(&rank) {
            // Without a time limit on writes, a rank that reads nothing could delay the run.
            if stream.set_write_timeout(Some(ORDERS)).is_err() {
                return;
            }
            let stream = rank.stream.insert(stream);
            if let Some(step) = until {
                order(stream, ToRank::Until { step });
            }
            if stop {
                order(stream, ToRank::Stop);
            }
        }
    }

    pub(crate) fn hung_up(&mut self, attempt: AttemptId, rank: u32) {
        if let Some(rank) = self.rank((attempt, rank)) {
            rank.has_hung_up = true;
        }
    }

    pub(crate) fn exited(&mut self, key: RankKey, code: i32) {
        if let Some(rank) = self.rank(key) {
            // Processes that the rank left in its process group must end too.
            rank.pid.take().into_iter().for_each(kill_group);
            rank.exited.get_or_insert((code, deadline(LAST_WORDS)));
        }
    }

    /// Notes that no process of an attempt is left.
    pub(crate) fn swept(&mut self, attempt: AttemptId) {
        if let Some(gang) = self.0.get_mut(&attempt) {
            gang.sweep = Sweep::Done;
        }
    }

    /// A parent has ended, so its ranks count as ended too. Returns these ranks.
    pub(crate) fn parent_gone(&mut self, parent: u64) -> Vec<RankKey> {
        let mut lost = Vec::new();
        for (attempt, gang) in &mut self.0 {
            for (number, rank) in &mut gang.ranks {
                if rank.parent == parent && rank.exited.is_none() {
                    gang.unreaped.extend(rank.pid);
                    rank.exited = Some((1, deadline(LAST_WORDS)));
                    lost.push((*attempt, *number));
                }
            }
        }
        lost
    }

    /// Takes what has ended since the last look.
    pub(crate) fn take_ended(&mut self) -> Ended {
        let mut ended = Ended::default();
        for (attempt, gang) in &mut self.0 {
            if gang.kill_asked.is_some_and(is_past) {
                let unstarted = |rank: &&LiveRank| rank.pid.is_none() && rank.exited.is_none();
                ended
                    .hung_parents
                    .extend(gang.ranks.values().find(unstarted).map(|one| one.parent));
            }
            let all_exited = gang.ranks.values().all(|rank| rank.exited.is_some());
            if all_exited && matches!(gang.sweep, Sweep::NotYet) {
                gang.sweep = Sweep::UntilAtMost(deadline(STRAYS));
                ended.to_sweep.push((*attempt, std::mem::take(&mut gang.unreaped)));
            }
            let is_swept = match gang.sweep {
                Sweep::NotYet => false,
                Sweep::UntilAtMost(until) => is_past(until),
                Sweep::Done => true,
            };
            let mut untold = gang.ranks.values().filter(|rank| !rank.is_told).count();
            for (number, rank) in gang.ranks.iter_mut().filter(|(_, rank)| !rank.is_told) {
                let Some((code, until)) = rank.exited else { continue };
                if (rank.has_hung_up || is_past(until)) && (untold > 1 || is_swept) {
                    rank.is_told = true;
                    untold -= 1;
                    ended.ranks.push((*attempt, *number, code));
                }
            }
        }
        self.0.retain(|_, gang| gang.ranks.values().any(|rank| !rank.is_told));
        ended
    }

    /// Asks all ranks of a gang to stop together at a checkpoint.
    pub(crate) fn stop(&mut self, attempt: AttemptId) {
        let Some(gang) = self.0.get_mut(&attempt) else { return };
        gang.orders.stop = true;
        gang.order(ToRank::Stop);
    }

    /// Tells all ranks of a gang at which step to stop.
    pub(crate) fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        let Some(gang) = self.0.get_mut(&attempt) else { return };
        gang.orders.until = Some(step);
        gang.order(ToRank::Until { step });
    }

    /// Tells all ranks of a trial to continue as training. The ranks wait for this order.
    pub(crate) fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        if let Some(gang) = self.0.get_mut(&attempt) {
            gang.order(ToRank::GoOn { steps });
        }
    }

    /// Kills all processes of a gang, including those that start later.
    pub(crate) fn kill(&mut self, attempt: AttemptId) {
        let Some(gang) = self.0.get_mut(&attempt) else { return };
        gang.kill_asked.get_or_insert_with(|| deadline(UNSTARTED));
        gang.ranks.values().filter_map(|rank| rank.pid).for_each(kill_rank);
    }

    /// Kills all gangs. Returns the processes that were alive.
    pub(crate) fn kill_all(&mut self) -> Vec<i32> {
        let attempts: Vec<AttemptId> = self.0.keys().copied().collect();
        for attempt in attempts {
            self.kill(attempt);
        }
        let ranks = self.0.values().flat_map(|gang| gang.ranks.values());
        ranks.filter_map(|rank| rank.pid).collect()
    }

    fn rank(&mut self, (attempt, rank): RankKey) -> Option<&mut LiveRank> {
        self.0.get_mut(&attempt)?.ranks.get_mut(&rank)
    }
}

impl Gang {
    fn order(&mut self, what: ToRank) {
        for stream in self.ranks.values_mut().filter_map(|rank| rank.stream.as_mut()) {
            order(stream, what);
        }
    }
}

fn order(stream: &mut UnixStream, what: ToRank) {
    // A rank that can't be written to is dying; its end will be noticed.
    if let Ok(mut line) = serde_json::to_vec(&what) {
        line.push(b'\n');
        let _ = stream.write_all(&line);
    }
}

/// Kills a rank that has not been reaped, and all of its process group.
fn kill_rank(pid: i32) {
    if killpg(Pid::from_raw(pid), Signal::SIGKILL).is_err() {
        // The process was forked a moment ago and does not lead a group yet.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Kills the processes that an ended rank left in its group.
fn kill_group(pid: i32) {
    // Usually there are none.
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
}
