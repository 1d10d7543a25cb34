//! A driver that stands still for a while: it handles no event, and no timer is due. The events of
//! that time wait in a backlog, and the driver handles them when it goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use saturn_engine::{AttemptEnd, AttemptId, Event, FailureKind, Record};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::world::faults::Fault;

/// A driver that stands still.
#[derive(Debug)]
pub(super) struct Standstill {
    since_s: f64,
    pub(super) until_s: f64,
    /// The events that happened meanwhile, the oldest first.
    pub(super) backlog: VecDeque<Event>,
}

/// What a backlog says of attempts.
#[derive(Debug, Default)]
struct Unheard {
    /// Attempts whose ranks have said something.
    spoke: BTreeSet<AttemptId>,
    /// The number of ranks of each attempt that have ended.
    ended: BTreeMap<AttemptId, u32>,
    is_interrupted: bool,
}

impl Unheard {
    fn of(backlog: &VecDeque<Event>) -> Self {
        let mut unheard = Self::default();
        for event in backlog {
            match event {
                Event::Reported { attempt, .. } => {
                    unheard.spoke.insert(*attempt);
                }
                Event::RankExited { attempt, .. } => {
                    *unheard.ended.entry(*attempt).or_default() += 1;
                }
                Event::Interrupt => unheard.is_interrupted = true,
                _ => {}
            }
        }
        unheard
    }
}

impl Simulation {
    /// The driver stands still from now on, for so many seconds.
    pub(crate) fn stand_still(&mut self, for_s: f64) {
        if self.standstill.is_none() && self.state().ended.is_none() {
            self.world.hit(Fault::StoodStill);
            let since_s = self.world.now_s();
            let backlog = VecDeque::new();
            self.standstill = Some(Standstill { since_s, until_s: since_s + for_s, backlog });
        }
    }

    /// The driver goes on, with its backlog first.
    pub(super) fn listen_again(&mut self) {
        let Some(Standstill { since_s, backlog, .. }) = self.standstill.take() else { return };
        let unheard = Unheard::of(&backlog);
        let num_ranks: BTreeMap<AttemptId, u32> =
            self.state().attempts.iter().map(|(id, one)| (*id, one.live_ranks)).collect();
        let (num_records, num_drivers) = (self.journal.len(), self.num_drivers);
        self.is_catching_up = true;
        let now_s = self.world.now_s();
        if let Some(watch) = &mut self.watch {
            watch.stood_still(now_s);
        }
        // If the driver dies meanwhile, the next driver is told the remaining events.
        self.words.backlog = backlog;
        self.deliver(Event::StoodStill { for_s: now_s - since_s });
        while let Some(event) = self.words.backlog.pop_front() {
            if self.state().ended.is_none() {
                self.deliver(event);
            } else {
                self.send_again(event);
            }
        }
        self.is_catching_up = false;
        if self.num_drivers == num_drivers
            && let Some(what) = self.wrong_after(num_records, &unheard, &num_ranks)
        {
            self.broken("a standstill of the driver says nothing of gangs", what);
        }
    }

    /// What the engine has decided wrongly by the backlog: as if gangs had been silent during the
    /// standstill, or had trained all that time.
    fn wrong_after(
        &self,
        num_records: usize,
        unheard: &Unheard,
        num_ranks: &BTreeMap<AttemptId, u32>,
    ) -> Option<String> {
        let wrong = |record: &Record| match record {
            Record::Ended { attempt, end: AttemptEnd::Abandoned, .. } => {
                let have_ended = unheard.ended.get(attempt) == num_ranks.get(attempt);
                (have_ended && !unheard.is_interrupted)
                    .then(|| format!("{attempt} is abandoned, though its ranks had ended"))
            }
            Record::Clocked { .. } | Record::Observed { .. } => {
                Some(format!("its time counts as that of steps: {record:?}"))
            }
            _ => None,
        };
        let mut silent = self.state().attempts.iter().filter(|(id, one)| {
            let failure = one.failure.as_ref();
            unheard.spoke.contains(id)
                && failure.is_some_and(|failure| failure.kind == FailureKind::Stalled)
        });
        let silent = silent.next().map(|(id, _)| format!("{id} is killed, though it had reported"));
        silent.or_else(|| self.journal[num_records..].iter().find_map(|(record, _)| wrong(record)))
    }

    /// Another driver takes the run over, and does not stand still. Returns what is not a command of
    /// the last driver's backlog.
    pub(super) fn forget_standstill(&mut self) -> Vec<Event> {
        self.num_drivers += 1;
        let mut backlog = std::mem::take(&mut self.words.backlog);
        backlog.extend(self.standstill.take().into_iter().flat_map(|one| one.backlog));
        backlog.into_iter().filter_map(|event| self.send_again(event)).collect()
    }

    /// An event of a backlog is lost. People get no answer to a lost command, so they send it again.
    /// Returns any other event.
    fn send_again(&mut self, event: Event) -> Option<Event> {
        let Event::Command { command } = event else { return Some(event) };
        self.plan_deed(self.world.now_s(), Deed::Ask(command));
        None
    }
}
