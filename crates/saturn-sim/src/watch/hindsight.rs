//! Who was passed by on host memory, as it is seen once a run is over.
//!
//! In a run that nothing disturbs, attempts take as long as their trials say, so the engine could know
//! when each would end. Once the run is over, everybody knows it. So this rule expects nothing: it
//! takes the times that came, and has no slack.
//!
//! - Nobody was made to wait for host memory by a task that came later and started first.
//! - Nobody was left waiting who had devices and memory, and would have delayed nobody older.
//!
//! Times of trials are not known beforehand: what is decided while something is measured is not
//! judged.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{AttemptId, Purpose, Record, State, TaskId, TaskStatus, devices};

use crate::driving::seam::{Violation, broken};
use crate::watch::host_memory::{First, bytes_of, bytes_of_place, firsts, total_of};

/// Times that differ by less are the same, seconds.
const TOLERANCE_S: f64 = 1e-3;

/// What happened so far, and what is judged at the end.
#[derive(Debug, Default)]
pub(super) struct Hindsight {
    turn: u64,
    /// The turns since when tasks wait for host memory: perhaps, and for sure.
    since: BTreeMap<TaskId, (u64, Option<u64>)>,
    /// The tasks that waited at the end of the last turn.
    waiting: Vec<First>,
    /// Gangs that were launched to train in this turn.
    launched: Vec<AttemptId>,
    ends_s: BTreeMap<AttemptId, f64>,
    /// Each task's launches, with their places and times.
    launches: BTreeMap<TaskId, Vec<(AttemptId, f64)>>,
    cases: Vec<Case>,
    has_ended: bool,
}

/// A task that started, or was left waiting, while older ones waited.
#[derive(Debug)]
struct Case {
    at_s: f64,
    task: TaskId,
    /// The gang that started; `None` if the task was left waiting.
    started: Option<AttemptId>,
    sides: Vec<Side>,
}

/// A node on which another task has waited longer.
#[derive(Debug)]
struct Side {
    #[expect(dead_code, reason = "it is shown where a rule is broken")]
    older: TaskId,
    total: u64,
    /// What each gang took there.
    taken: Vec<(AttemptId, u64)>,
    /// What the older task needs there, and what the other one does.
    needs: (u64, u64),
}

impl Side {
    /// Whether the older task could start sooner without the other one.
    fn is_delayed(&self, ends_s: &BTreeMap<AttemptId, f64>, at_s: f64, until_s: f64) -> bool {
        let (older, other) = self.needs;
        let end_of = |id| ends_s.get(id).copied().unwrap_or(f64::INFINITY);
        let taken_at = |time_s: f64| -> u64 {
            let there = self.taken.iter().filter(|(id, _)| end_of(id) > time_s);
            there.map(|(_, bytes)| bytes).sum()
        };
        let may_start =
            |time_s: &f64| taken_at(*time_s) == 0 || taken_at(*time_s) + older <= self.total;
        let times_s = self.taken.iter().map(|(id, _)| end_of(id)).chain([at_s]);
        let start_s = times_s.filter(may_start).fold(f64::INFINITY, f64::min).max(at_s);
        until_s > start_s && taken_at(start_s) + older + other > self.total
    }
}

impl Hindsight {
    pub(super) fn stored(&mut self, record: &Record, now_s: f64) {
        match record {
            Record::Launched { attempt, task, purpose: Purpose::Train, .. } => {
                self.launched.push(*attempt);
                self.launches.entry(*task).or_default().push((*attempt, now_s));
            }
            Record::Ended { attempt, .. } => {
                self.ends_s.insert(*attempt, now_s);
            }
            Record::RunEnded { .. } => self.has_ended = true,
            _ => {}
        }
    }

    /// A turn is over.
    pub(super) fn check(&mut self, state: &State, now_s: f64) -> Result<(), Violation> {
        if std::mem::take(&mut self.has_ended) {
            return self.judge();
        }
        self.turn += 1;
        let launched = std::mem::take(&mut self.launched);
        let is_measuring = state.num_open_trials() > 0
            || state.attempts.values().any(|one| one.purpose != Purpose::Train);
        let mut waiting = firsts(state, now_s);
        waiting.retain(|one| devices(&one.place.gang).all(|device| state.is_free(device)));
        if !is_measuring {
            self.note_starts(state, &launched, &waiting, now_s);
        }
        self.since.retain(|task, _| state.task(*task).status == TaskStatus::Waiting);
        for one in &waiting {
            let (_, surely) = self.since.entry(one.task).or_insert((self.turn, None));
            if !is_measuring {
                surely.get_or_insert(self.turn);
            }
        }
        if !is_measuring {
            self.note_waits(state, &waiting, now_s);
        }
        self.waiting = waiting;
        Ok(())
    }

    /// Gangs that started while a task waited that still waits.
    fn note_starts(
        &mut self,
        state: &State,
        launched: &[AttemptId],
        waiting: &[First],
        now_s: f64,
    ) {
        for (number, id) in launched.iter().enumerate() {
            let Some(new) = state.attempts.get(id) else { continue };
            let later: BTreeSet<AttemptId> = launched[number..].iter().copied().collect();
            for part in &new.gang {
                let still = waiting.iter().filter(|one| self.waiting.contains(one));
                let older = still.filter(|one| self.oldest_on(waiting, part.node, new.task, one));
                let sides = older.map(|older| {
                    let needed = bytes_of(state, new, part.node);
                    side(state, (part.node, needed), older, &later)
                });
                let sides: Vec<Side> = sides.collect();
                if !sides.is_empty() {
                    let (at_s, task, started) = (now_s, new.task, Some(*id));
                    self.cases.push(Case { at_s, task, started, sides });
                }
            }
        }
    }

    /// Whether a task has surely waited longer than all others for memory of a node, and than the
    /// task that has started.
    fn oldest_on(&self, waiting: &[First], node: usize, started: TaskId, one: &First) -> bool {
        let Some((_, Some(since))) = self.since.get(&one.task) else { return false };
        let there = waiting.iter().filter(|other| other.task != one.task && is_on(other, node));
        let mut others = there.map(|other| other.task).chain([started]);
        is_on(one, node)
            && others.all(|other| self.since.get(&other).is_none_or(|(maybe, _)| maybe > since))
    }

    /// Tasks that wait although each of their nodes has memory for them now.
    fn note_waits(&mut self, state: &State, waiting: &[First], now_s: f64) {
        for one in waiting {
            let mut sides = Vec::new();
            let has_room = one.place.gang.iter().all(|part| {
                let needed = bytes_of_place(state, &one.place, part.node);
                for older in self.perhaps_oldest_on(waiting, part.node, one) {
                    sides.push(side(state, (part.node, needed), older, &BTreeSet::new()));
                }
                let taken: u64 =
                    state.attempts.values().map(|live| bytes_of(state, live, part.node)).sum();
                taken == 0 || taken + needed <= total_of(state, part.node)
            });
            if has_room {
                self.cases.push(Case { at_s: now_s, task: one.task, started: None, sides });
            }
        }
    }

    /// The tasks, other than this one, that may have waited longest on a node.
    fn perhaps_oldest_on<'a>(
        &self,
        waiting: &'a [First],
        node: usize,
        one: &First,
    ) -> Vec<&'a First> {
        let all = || waiting.iter().filter(|other| is_on(other, node));
        let first_sure = all().filter_map(|other| self.since.get(&other.task)?.1).min();
        let may_be = |other: &&First| {
            let since = self.since.get(&other.task).map_or(0, |(maybe, _)| *maybe);
            other.task != one.task && first_sure.is_none_or(|sure| since <= sure)
        };
        all().filter(may_be).collect()
    }

    /// The run is over: every time is known.
    fn judge(&mut self) -> Result<(), Violation> {
        for Case { at_s, task, started, sides } in std::mem::take(&mut self.cases) {
            let is_delayed = |side: &&Side, end_s: f64| side.is_delayed(&self.ends_s, at_s, end_s);
            if let Some(id) = started {
                let Some(end_s) = self.ends_s.get(&id) else { continue };
                if let Some(side) = sides.iter().find(|one| is_delayed(one, end_s - TOLERANCE_S)) {
                    let what =
                        format!("{task:?} starts at {at_s:.3} s, to end at {end_s:.3} s: {side:?}");
                    return broken("looking back, nobody was overtaken on host memory", what);
                }
                continue;
            }
            // How long it takes is known if it was launched once.
            let Some([(id, start_s)]) = self.launches.get(&task).map(Vec::as_slice) else {
                continue;
            };
            let Some(took_s) = self.ends_s.get(id).map(|end_s| end_s - start_s) else { continue };
            let end_s = at_s + took_s + TOLERANCE_S;
            if *start_s > at_s && !sides.iter().any(|one| is_delayed(&one, end_s)) {
                let what = format!(
                    "{task:?} waits at {at_s:.3} s until {start_s:.3} s and takes {took_s:.3} s, \
                     beside {sides:?}"
                );
                return broken("looking back, nobody waited for nothing", what);
            }
        }
        Ok(())
    }
}

fn is_on(one: &First, node: usize) -> bool {
    one.place.gang.iter().any(|part| part.node == node)
}

/// A node where an older task waits, without the gangs that were launched later.
fn side(
    state: &State,
    (node, needed): (usize, u64),
    older: &First,
    later: &BTreeSet<AttemptId>,
) -> Side {
    let live = state.attempts.iter().filter(|(id, _)| !later.contains(id));
    let taken = live.map(|(id, one)| (*id, bytes_of(state, one, node)));
    Side {
        older: older.task,
        total: total_of(state, node),
        taken: taken.filter(|(_, bytes)| *bytes > 0).collect(),
        needs: (bytes_of_place(state, &older.place, node), needed),
    }
}
