//! What people who share a run may count on. Tasks of a person whose agent is not there rest until it
//! comes.

use saturn_core::Gang;
use saturn_engine::{AttemptId, Event, Guaranteed, Record, Ruling, TaskId, devices};

use crate::judge::books::{AttemptBook, Books, TaskBook};
use crate::workloads::workload::GUEST_LOGIN;

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
            Record::Guaranteed { uid, tasks } => return self.guaranteed(*uid, tasks),
            Record::Launched { attempt, task, gang, .. } => {
                return self.check_quota(*attempt, *task, gang);
            }
            _ => return,
        };
        if self.away.contains(uid) != is_away {
            self.wrong("records of people are what the launcher says", format!("{record:?}"));
        }
    }
}

impl Books {
    /// A plan moves a task, which is told to stop for it now. Where people share the run, it was not
    /// moved just before.
    pub(super) fn moved(&mut self, task: TaskId) {
        let now_s = self.now_s;
        let Some(sharing) = &self.config.policy.sharing else { return };
        let rest_s = sharing.rest_s;
        let last_s = self.tasks[task.0].moved_s.replace(now_s);
        if let Some(last_s) = last_s.filter(|last_s| now_s < last_s + rest_s) {
            let what = format!("{} at {last_s:.1} s and again", self.tasks[task.0].name);
            self.wrong("nobody's task is moved twice in a short time", what);
        }
    }

    /// With an attempt that is launched, its owner holds no more devices than the owner's quota.
    fn check_quota(&mut self, new: AttemptId, task: TaskId, gang: &Gang) {
        let Some(owner) = self.tasks.get(task.0).map(|task| task.owner) else { return };
        let Some(quota) = self.quota_of(owner) else { return };
        let is_own = |one: &AttemptBook| {
            one.end.is_none() && self.tasks.get(one.task.0).is_some_and(|task| task.owner == owner)
        };
        let others = self.attempts.iter().filter(|(id, one)| **id != new && is_own(one));
        let held = others.map(|(_, one)| devices(&one.gang).count()).sum::<usize>();
        let all = held + devices(gang).count();
        if !gang.is_empty() && all > quota as usize {
            let what = format!("{new} has {owner:?} hold {all} devices, of {quota}");
            self.wrong("nobody holds more devices than the quota", what);
        }
    }

    /// How many devices a person's tasks may hold at once; `None`: all.
    pub(super) fn quota_of(&self, owner: Option<u32>) -> Option<u32> {
        let sharing = self.config.policy.sharing.as_ref()?;
        let login = if owner.is_none() { sharing.host.as_str() } else { GUEST_LOGIN };
        sharing.quotas.get(login).copied()
    }

    /// A guarantee is for tasks of the person who gets it.
    fn guaranteed(&mut self, uid: Option<u32>, tasks: &[Guaranteed]) {
        for Guaranteed { task, guarantee } in tasks {
            let known = self.tasks.get(task.0);
            let is_own = known.is_some_and(|known| known.owner == uid);
            let takes_time = guarantee.start_s < guarantee.by_s;
            let is_part = guarantee.part > 0.0 && guarantee.part <= 1.0;
            if !(is_own && takes_time && is_part) {
                self.wrong("a guarantee is for an own task", format!("{uid:?} {guarantee:?}"));
            }
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
