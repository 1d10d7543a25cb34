//! What an agent has to tell the drivers of its run.
//!
//! A word stays until the driver says that it has had its effect. Some words have a part of their
//! effect in the driver's memory alone: that a rank has ended, when others of its gang have not.
//! Such *last words* stay until the attempt's end is on record, and are told again to the next
//! driver. Of heartbeats, only the newest of each rank is kept, and it waits until everything that
//! came before it was sent. The next driver is told the newest progress again, too: that an attempt
//! has trained is on record only with its checkpoints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use saturn_engine::{AttemptId, RankReport};

use crate::cluster::letters::{FromAgent, is_heartbeat};

/// At most so many words are sent whose effect the driver has not confirmed. More wait here, and
/// not in a buffer of the driver's that stands still.
const MAX_SENT: u64 = 256;

/// Words on their way to a driver.
#[derive(Debug)]
pub(super) struct Telling {
    /// The number of the next word.
    next: u64,
    /// Words without a confirmed effect, by rising numbers.
    words: VecDeque<(u64, FromAgent)>,
    /// The number of the first word that was not sent to the present driver.
    unsent: u64,
    /// Last words whose effect was confirmed, by attempt.
    last: BTreeMap<AttemptId, Vec<FromAgent>>,
    /// Of each rank, the newest heartbeat that was not sent.
    alive: BTreeMap<(AttemptId, u32), RankReport>,
    /// Of each rank, the newest progress that was sent.
    progress: BTreeMap<(AttemptId, u32), RankReport>,
}

impl Default for Telling {
    fn default() -> Self {
        let (words, last, alive, progress) = Default::default();
        Self { next: 1, words, unsent: 1, last, alive, progress }
    }
}

impl Telling {
    /// Takes a word in.
    pub(super) fn say(&mut self, word: FromAgent) {
        if let FromAgent::Reported { attempt, rank, report } = &word
            && is_heartbeat(report)
        {
            let newest = self.alive.entry((*attempt, *rank)).or_insert(RankReport::Alive);
            // `Alive` carries no progress, so it must not replace a report that does.
            if !matches!(**report, RankReport::Alive) {
                newest.clone_from(report);
            }
            return;
        }
        self.words.push_back((self.next, word));
        self.next += 1;
    }

    /// Words to be sent now, with their numbers.
    pub(super) fn take(&mut self) -> Vec<(Option<u64>, FromAgent)> {
        let confirmed = self.words.front().map_or(self.next, |(first, _)| *first);
        let until = confirmed + MAX_SENT;
        let new = self.words.iter().filter(|(number, _)| (self.unsent..until).contains(number));
        let mut sent: Vec<_> = new.map(|(number, word)| (Some(*number), word.clone())).collect();
        self.unsent = self.unsent.max(until.min(self.next));
        if self.unsent == self.next {
            for ((attempt, rank), report) in std::mem::take(&mut self.alive) {
                if !matches!(report, RankReport::Alive) {
                    self.progress.insert((attempt, rank), report.clone());
                }
                sent.push((None, FromAgent::Reported { attempt, rank, report: Box::new(report) }));
            }
        }
        sent
    }

    /// All words up to this number have had their effect.
    pub(super) fn heard(&mut self, number: u64) {
        while self.words.front().is_some_and(|(first, _)| *first <= number) {
            let Some((_, word)) = self.words.pop_front() else { return };
            if is_last(&word)
                && let Some(attempt) = attempt_of(&word)
            {
                self.last.entry(attempt).or_default().push(word);
            }
        }
    }

    /// An attempt's end is on record.
    pub(super) fn forget(&mut self, attempt: AttemptId) {
        self.last.remove(&attempt);
        self.alive.retain(|(of, _), _| *of != attempt);
        self.progress.retain(|(of, _), _| *of != attempt);
    }

    /// Another driver takes on these attempts. It has the effect of all words up to `heard`, and
    /// remembers no last words.
    pub(super) fn begin_again(&mut self, attempts: &BTreeSet<AttemptId>, heard: u64) {
        self.heard(heard);
        let is_wanted = |word: &FromAgent| attempt_of(word).is_none_or(|of| attempts.contains(&of));
        let again = std::mem::take(&mut self.last).into_values().flatten();
        let kept = std::mem::take(&mut self.words).into_iter().map(|(_, word)| word);
        let all: Vec<FromAgent> = again.chain(kept).filter(is_wanted).collect();
        self.unsent = self.next;
        for word in all {
            self.words.push_back((self.next, word));
            self.next += 1;
        }
        for (rank, report) in std::mem::take(&mut self.progress) {
            let newest = self.alive.entry(rank).or_insert(RankReport::Alive);
            if matches!(newest, RankReport::Alive) {
                *newest = report;
            }
        }
        self.alive.retain(|(attempt, _), _| attempts.contains(attempt));
    }
}

fn attempt_of(word: &FromAgent) -> Option<AttemptId> {
    match word {
        FromAgent::Reported { attempt, .. }
        | FromAgent::Exited { attempt, .. }
        | FromAgent::LaunchFailed { attempt, .. } => Some(*attempt),
        FromAgent::Ready
        | FromAgent::Unfit { .. }
        | FromAgent::Store { .. }
        | FromAgent::Note { .. }
        | FromAgent::Over { .. } => None,
    }
}

/// Whether a word says how a rank comes to its end. What these words lead to is on record only once
/// the whole gang has ended.
fn is_last(word: &FromAgent) -> bool {
    match word {
        FromAgent::Exited { .. } => true,
        FromAgent::Reported { report, .. } => matches!(
            **report,
            RankReport::Failed { .. } | RankReport::Finished { .. } | RankReport::Stopped { .. }
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: AttemptId = AttemptId(1);
    const TWO: AttemptId = AttemptId(2);

    fn said(attempt: AttemptId, rank: u32, report: RankReport) -> FromAgent {
        FromAgent::Reported { attempt, rank, report: Box::new(report) }
    }

    fn saved(attempt: AttemptId, step: u64) -> FromAgent {
        let report = RankReport::Checkpoint { step, save_s: 0.1, blocked_s: 0.1, loss: None };
        said(attempt, 0, report)
    }

    fn progress(attempt: AttemptId, step: u64) -> FromAgent {
        said(attempt, 0, RankReport::Progress { step, loss: None, step_s: None })
    }

    fn exited(attempt: AttemptId, rank: u32) -> FromAgent {
        FromAgent::Exited { attempt, rank, code: 0, last_words: String::new() }
    }

    /// The number of each word, with a short text about the word.
    fn short(words: &[(Option<u64>, FromAgent)]) -> Vec<(Option<u64>, String)> {
        let text = |word: &FromAgent| match word {
            FromAgent::Reported { attempt, report, .. } => match **report {
                RankReport::Checkpoint { step, .. } => format!("{} saved {step}", attempt.0),
                RankReport::Progress { step, .. } => format!("{} at {step}", attempt.0),
                RankReport::Finished { .. } => format!("{} finished", attempt.0),
                _ => "?".to_owned(),
            },
            FromAgent::Exited { attempt, rank, .. } => format!("{}/{rank} exited", attempt.0),
            FromAgent::Note { text } => text.clone(),
            _ => "?".to_owned(),
        };
        words.iter().map(|(number, word)| (*number, text(word))).collect()
    }

    fn expect(words: &[(Option<u64>, FromAgent)], expected: &[(Option<u64>, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(number, text)| (*number, (*text).to_owned())).collect();
        assert_eq!(short(words), expected);
    }

    #[test]
    fn the_next_driver_hears_what_had_no_effect_and_the_last_words_again() {
        let mut telling = Telling::default();
        for word in [saved(ONE, 5), exited(ONE, 1), saved(TWO, 7), saved(ONE, 9)] {
            telling.say(word);
        }
        let all = [
            (Some(1), "1 saved 5"),
            (Some(2), "1/1 exited"),
            (Some(3), "2 saved 7"),
            (Some(4), "1 saved 9"),
        ];
        expect(&telling.take(), &all);
        assert!(telling.take().is_empty(), "they are sent once");
        telling.heard(3);
        telling.say(FromAgent::Note { text: "a note".to_owned() });
        // The driver dies. Its journal says that word 4 had its effect too.
        telling.begin_again(&BTreeSet::from([ONE]), 4);
        expect(&telling.take(), &[(Some(6), "1/1 exited"), (Some(7), "a note")]);
        // It dies again, before the exit has led to a record.
        telling.heard(6);
        telling.begin_again(&BTreeSet::from([ONE]), 4);
        expect(&telling.take(), &[(Some(8), "1/1 exited"), (Some(9), "a note")]);
        telling.heard(9);
        telling.forget(ONE);
        telling.begin_again(&BTreeSet::from([ONE]), 9);
        assert!(telling.take().is_empty(), "its end is on record");
    }

    #[test]
    fn the_next_driver_hears_again_how_far_ranks_had_come() {
        let mut telling = Telling::default();
        telling.say(progress(ONE, 5));
        telling.say(progress(TWO, 7));
        assert_eq!(telling.take().len(), 2);
        telling.say(said(ONE, 0, RankReport::Alive));
        assert_eq!(telling.take().len(), 1);
        telling.begin_again(&BTreeSet::from([ONE]), 0);
        expect(&telling.take(), &[(None, "1 at 5")]);
    }

    #[test]
    fn words_of_attempts_that_nobody_takes_on_are_forgotten() {
        let mut telling = Telling::default();
        for word in [saved(ONE, 5), saved(TWO, 7), progress(ONE, 6), progress(TWO, 8)] {
            telling.say(word);
        }
        telling.begin_again(&BTreeSet::from([TWO]), 0);
        expect(&telling.take(), &[(Some(3), "2 saved 7"), (None, "2 at 8")]);
    }

    #[test]
    fn a_driver_that_confirms_nothing_is_sent_no_more_and_the_newest_heartbeat_waits() {
        let mut telling = Telling::default();
        for step in 0..MAX_SENT + 2 {
            telling.say(saved(ONE, step));
            telling.say(progress(ONE, step));
        }
        telling.say(said(ONE, 0, RankReport::Alive));
        let sent = telling.take();
        assert_eq!(sent.len() as u64, MAX_SENT);
        assert!(sent.iter().all(|(number, _)| number.is_some()), "the heartbeat is younger");
        assert!(telling.take().is_empty());
        telling.heard(1);
        expect(&telling.take(), &[(Some(MAX_SENT + 1), "1 saved 256")]);
        telling.heard(2);
        let last = [(Some(MAX_SENT + 2), "1 saved 257"), (None, "1 at 257")];
        expect(&telling.take(), &last);
    }
}
