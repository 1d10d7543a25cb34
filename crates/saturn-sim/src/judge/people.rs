//! Tasks of a person whose agent is not there: they rest until it comes.

use saturn_engine::{Event, Record, Ruling};

use crate::judge::books::{Books, TaskBook};

impl Books {
    /// The launcher says whether a person's agent is there.
    pub(super) fn told_of_people(&mut self, event: &Event) {
        match event {
            Event::OwnerLeft { uid } => {
                self.told_away.insert(*uid);
            }
            Event::OwnerCame { uid } => {
                self.told_away.remove(uid);
            }
            _ => {}
        }
    }

    pub(super) fn stored_of_people(&mut self, record: &Record) {
        match record {
            Record::OwnerLeft { uid } => self.set_away(*uid, true),
            Record::OwnerCame { uid } => self.set_away(*uid, false),
            _ => {}
        }
    }

    fn set_away(&mut self, uid: u32, is_away: bool) {
        let changes = if is_away { self.away.insert(uid) } else { self.away.remove(&uid) };
        if !changes || self.told_away.contains(&uid) != is_away {
            self.wrong("records of people are what the launcher says", format!("{uid}: {is_away}"));
        }
        for task in self.tasks.iter_mut().filter(|task| task.owner == Some(uid)) {
            task.is_owner_away = is_away;
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
