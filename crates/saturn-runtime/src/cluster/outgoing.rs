//! The letters that an agent has for its driver.
//!
//! A letter stays until the driver has confirmed it. Heartbeats wait for the driver's pace, and of
//! each rank only the newest waits. Every other word is sealed into a letter at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use saturn_engine::{AttemptId, RankReport};

use crate::cluster::letters::{FromAgent, Outbox, is_heartbeat};
use crate::system::clock;

/// Letters and heartbeats on their way to the driver.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    outbox: Option<Outbox>,
    /// Letters that the driver has not confirmed.
    letters: VecDeque<String>,
    /// The number of the first of these letters.
    first: u64,
    /// For each rank, its newest heartbeat that is in no letter yet.
    alive: BTreeMap<(AttemptId, u32), RankReport>,
    /// The least time between two deliveries of heartbeats.
    pace: Duration,
    /// When letters were last handed out.
    delivered: Option<Instant>,
}

impl Outgoing {
    /// Begins to write to the driver of an epoch, which wants heartbeats at this pace.
    pub(super) fn begin(&mut self, epoch: String, pace: Duration) {
        self.outbox = Some(Outbox::new(epoch));
        self.pace = pace;
    }

    /// The letters that go to the driver now: those beyond the `num_read` that it has read.
    ///
    /// An error says why the driver can be told nothing more.
    pub(super) fn hand_out(&mut self, num_read: u64) -> Result<Vec<String>, String> {
        while self.first < num_read && self.letters.pop_front().is_some() {
            self.first += 1;
        }
        if self.delivered.is_none_or(|at| at.elapsed() >= self.pace) {
            self.seal_heartbeats()?;
        }
        if !self.letters.is_empty() {
            self.delivered = Some(clock::now());
        }
        Ok(self.letters.iter().cloned().collect())
    }

    /// Puts a word into a letter. A heartbeat waits for the driver's pace.
    pub(super) fn say(&mut self, word: FromAgent) -> Result<(), String> {
        if let FromAgent::Reported { attempt, rank, report } = &word
            && is_heartbeat(report)
        {
            let last = self.alive.entry((*attempt, *rank)).or_insert(RankReport::Alive);
            // `Alive` carries no progress, so it must not replace a report that does.
            if !matches!(**report, RankReport::Alive) {
                last.clone_from(report);
            }
            return Ok(());
        }
        // Heartbeats that came before this word go out before it.
        self.seal_heartbeats()?;
        self.seal(word)
    }

    fn seal_heartbeats(&mut self) -> Result<(), String> {
        for ((attempt, rank), report) in std::mem::take(&mut self.alive) {
            self.seal(FromAgent::Reported { attempt, rank, report: Box::new(report) })?;
        }
        Ok(())
    }

    fn seal(&mut self, word: FromAgent) -> Result<(), String> {
        if let Some(outbox) = &mut self.outbox {
            self.letters.push_back(outbox.seal(word)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::letters::Inbox;

    /// The reports in letters, as the driver reads them.
    fn read(letters: &[String]) -> Vec<(u32, RankReport)> {
        let mut inbox = Inbox::default();
        let words = letters.iter().filter_map(|letter| inbox.open(letter).unwrap());
        let reported = words.map(|word| match word {
            FromAgent::Reported { rank, report, .. } => (rank, *report),
            other => panic!("{other:?}"),
        });
        reported.collect()
    }

    #[test]
    fn the_last_heartbeat_goes_out_before_later_words() {
        let progress = |step| RankReport::Progress { step, loss: None, step_s: None };
        let checkpoint =
            RankReport::Checkpoint { step: 5, save_s: 0.1, blocked_s: 0.1, loss: None };
        let mut outgoing = Outgoing::default();
        outgoing.begin("one".to_owned(), Duration::from_mins(1));
        outgoing.delivered = Some(clock::now());
        let say = |outgoing: &mut Outgoing, rank, report: RankReport| {
            let report = Box::new(report);
            outgoing.say(FromAgent::Reported { attempt: AttemptId(3), rank, report }).unwrap();
        };
        for (rank, report) in [(0, progress(1)), (1, RankReport::Alive), (0, progress(5))] {
            say(&mut outgoing, rank, report);
        }
        say(&mut outgoing, 0, RankReport::Alive);
        assert!(outgoing.hand_out(0).unwrap().is_empty(), "they wait");
        say(&mut outgoing, 0, checkpoint.clone());
        say(&mut outgoing, 0, progress(6));
        let expected = vec![(0, progress(5)), (1, RankReport::Alive), (0, checkpoint)];
        assert_eq!(read(&outgoing.hand_out(0).unwrap()), expected);
        assert_eq!(
            read(&outgoing.hand_out(0).unwrap()),
            expected,
            "the driver has not confirmed them"
        );
        assert_eq!(outgoing.hand_out(2).unwrap().len(), 1, "the driver has confirmed two");
        assert!(outgoing.hand_out(3).unwrap().is_empty(), "a delivery was just now");
        outgoing.delivered = None;
        outgoing.outbox = Some(Outbox::new("two".to_owned()));
        assert_eq!(read(&outgoing.hand_out(3).unwrap()), vec![(0, progress(6))]);
    }
}
