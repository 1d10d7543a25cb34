//! The letters between driver and agents, and the checks that no letter is missing, foreign or read
//! twice.
//!
//! A carrier that can't know whether a letter arrived carries the letter again. So a writer keeps
//! its letters until the reader has confirmed them by their number, and a reader skips a letter
//! that it has read before.

use std::collections::BTreeMap;
use std::path::PathBuf;

use saturn_engine::{AttemptEnd, AttemptId, FailureKind, LaunchOrder, RankReport};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::launching::settings::LaunchSettings;

/// The version of letters. Driver and agents must have the same.
const VERSION: u32 = 3;

/// An order to an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToAgent {
    /// The first letter: begin with this run. `pace_s` is the least time between two deliveries of
    /// heartbeats, seconds.
    Begin { run_dir: PathBuf, settings: Box<LaunchSettings>, pace_s: f64 },
    /// Start a gang. If the gang takes several nodes, `part` is the number of this agent's share,
    /// and the address of the store where all ranks meet. `memory_by_type` is the least memory of
    /// devices of each type, over all nodes.
    Launch {
        order: Box<LaunchOrder>,
        memory_by_type: BTreeMap<String, u64>,
        part: Option<(usize, String)>,
    },
    /// Open a store where ranks of several nodes will meet.
    OpenStore,
    /// Have a gang stop at a checkpoint.
    Stop { attempt: AttemptId },
    /// Tell a gang at which step to stop; `None` for the task's last.
    Until { attempt: AttemptId, step: Option<u64> },
    /// Let a trial continue as training.
    GoOn { attempt: AttemptId, steps: u64 },
    /// Kill a gang.
    Kill { attempt: AttemptId },
    /// The end of an attempt is on record.
    Ended { attempt: AttemptId, end: AttemptEnd },
    /// The run is over.
    End,
}

/// What an agent says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromAgent {
    /// The agent starts processes without delay from now on.
    Ready,
    /// The agent can't serve the run.
    Unfit { error: String },
    /// The address of the agent's store, or why it can't be opened.
    Store { opened: Result<String, String> },
    /// A rank reports something.
    Reported { attempt: AttemptId, rank: u32, report: Box<RankReport> },
    /// A rank's process has ended.
    Exited { attempt: AttemptId, rank: u32, code: i32, last_words: String },
    /// A gang could not be started.
    LaunchFailed { attempt: AttemptId, kind: FailureKind, error: String },
    /// A message for the person who watches the run.
    Note { text: String },
    /// The agent has ended its processes; `left` are those that live on.
    Over { left: Vec<i32> },
}

/// Whether a report is a heartbeat, which says no more than that a rank goes on.
pub(crate) fn is_heartbeat(report: &RankReport) -> bool {
    matches!(report, RankReport::Progress { .. } | RankReport::Alive)
}

#[derive(Serialize, Deserialize)]
struct Letter<T> {
    version: u32,
    /// Identifies the driver, of all that ever drove the run.
    epoch: String,
    /// The number of the letter among those to its reader.
    number: u64,
    content: T,
}

/// Numbers and writes letters to one reader.
#[derive(Debug)]
pub(crate) struct Outbox {
    epoch: String,
    next: u64,
}

impl Outbox {
    pub(crate) fn new(epoch: String) -> Self {
        Self { epoch, next: 0 }
    }

    /// Writes the next letter, with this content.
    pub(crate) fn seal<T: Serialize>(&mut self, content: T) -> Result<String, String> {
        let letter =
            Letter { version: VERSION, epoch: self.epoch.clone(), number: self.next, content };
        self.next += 1;
        serde_json::to_string(&letter).map_err(|error| error.to_string())
    }
}

/// Reads letters of one writer and checks their order.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The epoch of the first letter.
    epoch: Option<String>,
    next: u64,
}

impl Inbox {
    /// The content of the next letter; `None` if the letter was read before. An error says in words
    /// what is wrong with the letter.
    pub(crate) fn open<T: DeserializeOwned>(&mut self, letter: &str) -> Result<Option<T>, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let unreadable = |error: serde_json::Error| format!("a letter can't be read: {error}");
        let Versioned { version } = serde_json::from_str(letter).map_err(unreadable)?;
        if version != VERSION {
            return Err(format!("a letter has version {version}, not {VERSION}"));
        }
        let Letter { epoch, number, content, .. }: Letter<T> =
            serde_json::from_str(letter).map_err(unreadable)?;
        if self.epoch.get_or_insert_with(|| epoch.clone()) != &epoch {
            return Err("a letter is of another driver of the run".to_owned());
        }
        if number < self.next {
            return Ok(None);
        }
        if number != self.next {
            return Err(format!("letter {number} came in place of letter {}", self.next));
        }
        self.next += 1;
        Ok(Some(content))
    }

    /// How many letters were read: their numbers are below this.
    pub(crate) fn num_read(&self) -> u64 {
        self.next
    }

    /// The epoch of the letters so far.
    pub(crate) fn epoch(&self) -> Option<&str> {
        self.epoch.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> FromAgent {
        FromAgent::Note { text: text.to_owned() }
    }

    #[test]
    fn letters_are_read_once_in_their_order_and_of_one_driver() {
        let mut out = Outbox::new("one".to_owned());
        let letters: Vec<String> = ["a", "b", "c"].map(|text| out.seal(note(text)).unwrap()).into();
        let mut inbox = Inbox::default();
        let open = |inbox: &mut Inbox, letter: &str| inbox.open::<FromAgent>(letter);
        assert!(
            matches!(open(&mut inbox, &letters[0]), Ok(Some(FromAgent::Note { text })) if text == "a")
        );
        assert!(matches!(open(&mut inbox, &letters[0]), Ok(None)), "it was read before");
        assert_eq!(inbox.num_read(), 1);
        let early = open(&mut inbox, &letters[2]).unwrap_err();
        assert_eq!(early, "letter 2 came in place of letter 1");
        let foreign = Outbox::new("two".to_owned()).seal(note("x")).unwrap();
        assert!(open(&mut inbox, &foreign).unwrap_err().contains("another driver"));
        let newer = letters[1].replace("\"version\":3", "\"version\":4");
        assert_eq!(open(&mut inbox, &newer).unwrap_err(), "a letter has version 4, not 3");
        assert!(open(&mut inbox, "[]").unwrap_err().starts_with("a letter can't be read"));
        assert!(matches!(open(&mut inbox, &letters[1]), Ok(Some(_))));
    }
}
