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
use crate::system::clock::{deadline, is_past, now};

/// How long to wait for a rank's last words after its process has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long to wait for strays to end before the end of their gang is passed on anyway.
const STRAYS: Duration = Duration::from_secs(2);
/// How long a rank that must die may have no process before its parent counts as hung.
const UNSTARTED: Duration = Duration::from_secs(5);
/// How long any other rank may have no process before its parent counts as hung. A fork takes
/// a hundredth of a second; a machine that swaps may need many.
const NEVER_STARTED: Duration = Duration::from_mins(1);
/// The most that the time between two looks counts: the driver may have stood still, and then it
/// has not heard yet what its parents did.
const LOOK: Duration = Duration::from_secs(2);
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
    /// How long a rank has been without a process.
    unstarted: Duration,
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
pub(crate) struct Gangs {
    live: BTreeMap<AttemptId, Gang>,
    /// When the gangs were last looked at.
    looked: Option<Instant>,
}

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
        self.live.insert(attempt, Gang { ranks, orders, ..Gang::default() });
    }

    /// Whether a gang has a live process, or an end that was not passed on.
    pub(crate) fn has(&self, attempt: AttemptId) -> bool {
        self.live.contains_key(&attempt)
    }

    /// All gangs, with the number of their ranks whose end was not passed on.
    pub(crate) fn living(&self) -> Vec<(AttemptId, u32)> {
        let untold = |gang: &Gang| gang.ranks.values().filter(|rank| !rank.is_told).count();
        let number = |gang| u32::try_from(untold(gang)).unwrap_or(u32::MAX);
        self.live.iter().map(|(attempt, gang)| (*attempt, number(gang))).collect()
    }

    /// Forgets a gang that could not be launched.
    pub(crate) fn forget(&mut self, attempt: AttemptId) {
        self.kill(attempt);
        self.live.remove(&attempt);
    }

    pub(crate) fn started(&mut self, (attempt, rank): RankKey, pid: i32) {
        let Some(gang) = self.live.get_mut(&attempt) else {
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
        let Some(gang) = self.live.get_mut(&attempt) else { return };
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
        if let Some(gang) = self.live.get_mut(&attempt) {
            gang.sweep = Sweep::Done;
        }
    }

    /// A parent has ended, so its ranks count as ended too. Returns these ranks.
    pub(crate) fn parent_gone(&mut self, parent: u64) -> Vec<RankKey> {
        let mut lost = Vec::new();
        for (attempt, gang) in &mut self.live {
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
        let at = now();
        let passed = self.looked.replace(at).map_or(Duration::ZERO, |last| at - last);
        self.take_ended_after(passed.min(LOOK))
    }

    /// Takes what has ended; the last look was `passed` ago.
    fn take_ended_after(&mut self, passed: Duration) -> Ended {
        let mut ended = Ended::default();
        for (attempt, gang) in &mut self.live {
            let unstarted = |rank: &&LiveRank| rank.pid.is_none() && rank.exited.is_none();
            if let Some(rank) = gang.ranks.values().find(unstarted) {
                gang.unstarted += passed;
                if gang.unstarted >= NEVER_STARTED || gang.kill_asked.is_some_and(is_past) {
                    ended.hung_parents.push(rank.parent);
                }
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
        self.live.retain(|_, gang| gang.ranks.values().any(|rank| !rank.is_told));
        ended
    }

    /// Asks all ranks of a gang to stop together at a checkpoint.
    pub(crate) fn stop(&mut self, attempt: AttemptId) {
        let Some(gang) = self.live.get_mut(&attempt) else { return };
        gang.orders.stop = true;
        gang.order(ToRank::Stop);
    }

    /// Tells all ranks of a gang at which step to stop.
    pub(crate) fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        let Some(gang) = self.live.get_mut(&attempt) else { return };
        gang.orders.until = Some(step);
        gang.order(ToRank::Until { step });
    }

    /// Tells all ranks of a trial to continue as training. The ranks wait for this order.
    pub(crate) fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        if let Some(gang) = self.live.get_mut(&attempt) {
            gang.order(ToRank::GoOn { steps });
        }
    }

    /// Kills all processes of a gang, including those that start later.
    pub(crate) fn kill(&mut self, attempt: AttemptId) {
        let Some(gang) = self.live.get_mut(&attempt) else { return };
        gang.kill_asked.get_or_insert_with(|| deadline(UNSTARTED));
        gang.ranks.values().filter_map(|rank| rank.pid).for_each(kill_rank);
    }

    /// Kills all gangs. Returns the processes that were alive.
    pub(crate) fn kill_all(&mut self) -> Vec<i32> {
        let attempts: Vec<AttemptId> = self.live.keys().copied().collect();
        for attempt in attempts {
            self.kill(attempt);
        }
        let ranks = self.live.values().flat_map(|gang| gang.ranks.values());
        ranks.filter_map(|rank| rank.pid).collect()
    }

    fn rank(&mut self, (attempt, rank): RankKey) -> Option<&mut LiveRank> {
        self.live.get_mut(&attempt)?.ranks.get_mut(&rank)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_that_starts_nothing_for_a_minute_hangs() {
        let mut gangs = Gangs::default();
        gangs.expect(AttemptId(1), 0..2, 7, Orders::default());
        gangs.started((AttemptId(1), 0), i32::MAX);
        let half = NEVER_STARTED / 2;
        assert!(gangs.take_ended_after(half).hung_parents.is_empty());
        assert_eq!(gangs.take_ended_after(half).hung_parents, [7]);
        // A rank that has its process, or could not get one, says that the parent is alive.
        gangs.exited((AttemptId(1), 1), 1);
        assert!(gangs.take_ended_after(half).hung_parents.is_empty());
    }

    #[test]
    fn a_driver_that_stood_still_accuses_no_parent() {
        let mut gangs = Gangs::default();
        gangs.expect(AttemptId(1), 0..1, 7, Orders::default());
        gangs.looked = now().checked_sub(2 * NEVER_STARTED);
        assert!(gangs.take_ended().hung_parents.is_empty());
    }
}
