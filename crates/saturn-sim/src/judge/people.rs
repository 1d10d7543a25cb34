//! Tasks of a person whose agent is not there: they rest until it comes.

use saturn_engine::{Event, Record, Ruling};

use crate::judge::books::{Books, TaskBook};

impl Books {
    /// The launcher says whether a person's agent is there. From then on the person's tasks rest.
    pub(super) fn told_of_people(&mut self, event: &Event) {
        match event {
            Event::OwnerLeft { uid } => self.set_away(*uid, true),
            Event::OwnerCame { uid } => self.set_away(*uid, false),
            _ => {}
        }
    }

    fn set_away(&mut self, uid: u32, is_away: bool) {
        if is_away {
            self.away.insert(uid);
        } else {
            self.away.remove(&uid);
        }
        for task in self.tasks.iter_mut().filter(|task| task.owner == Some(uid)) {
            task.is_owner_away = is_away;
        }
    }

    /// A record says what the launcher has said.
    pub(super) fn stored_of_people(&mut self, record: &Record) {
        let (uid, is_away) = match record {
            Record::OwnerLeft { uid } => (uid, true),
            Record::OwnerCame { uid } => (uid, false),
            _ => return,
        };
        if self.away.contains(uid) != is_away {
            self.wrong("records of people are what the launcher says", format!("{record:?}"));
        }
    }
}

impl TaskBook {
    /// Why it is to do nothing for now.
    pub(super) fn why_it_rests(&self) -> Option<&'static str> {
        if self.is_paused {
            Some("it is paused")
        } else if self.is_owner_away {
            Some("nobody can start its person's processes")
        } else if self.ruling != Ruling::GoOn {
            Some("the stopper holds it")
        } else {
            None
        }
    }
}
