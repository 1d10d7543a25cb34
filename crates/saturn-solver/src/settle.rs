//! The last step of a search over lists: running tasks that were moved for nothing stay.
//!
//! Moving a task costs a run more than its switch cost (a launch that may fail, a checkpoint), so of
//! plans of equal worth the one that moves less is better.

use crate::lists::{Entry, Lists, Load, play};
use crate::model::Model;
use crate::options::Aim;

/// Puts every running task back to where it runs whose staying makes the plan no worse.
pub(crate) fn settle(model: &Model, aim: Aim, lists: &mut Lists) {
    if !model.has_running() {
        return;
    }
    let mut settling =
        Settling { model, aim, loads: crate::lists::loads(model, lists), free: Vec::new() };
    let value = settling.loads.iter().map(|load| load.end).fold(0.0, f64::max);
    for node in 0..lists.len() {
        let mut at = 0;
        while let Some(entry) = lists[node].get(at).copied() {
            if !settling.put_back(lists, node, at, entry, value) {
                at += 1;
            }
        }
    }
}

struct Settling<'a> {
    model: &'a Model,
    aim: Aim,
    /// What the lists come to.
    loads: Vec<Load>,
    free: Vec<f64>,
}

impl Settling<'_> {
    /// Lets one gang stay where it runs if the plan is no worse for it; `value` is the makespan.
    fn put_back(
        &mut self,
        lists: &mut Lists,
        node: usize,
        at: usize,
        entry: Entry,
        value: f64,
    ) -> bool {
        let task = entry.task as usize;
        let stay = self.model.tasks[task].stay.as_ref().filter(|_| !entry.stays());
        let Some((stay, home)) = stay.and_then(|stay| Some((stay, stay.home()?))) else {
            return false;
        };
        let mut from = lists[node].clone();
        from.remove(at);
        let mut to = if home == node { from.clone() } else { lists[home].clone() };
        to.insert(0, Entry::staying(task, stay));
        let there = self.load(home, &to);
        let here = if home == node { Load::default() } else { self.load(node, &from) };
        let is_no_worse = match self.aim {
            Aim::Makespan => there.end.max(here.end) <= value,
            Aim::Completion => {
                let before = self.loads[home].sum_of_ends
                    + if home == node { 0.0 } else { self.loads[node].sum_of_ends };
                there.sum_of_ends + here.sum_of_ends <= before
            }
        };
        if is_no_worse {
            if home != node {
                lists[node] = from;
                self.loads[node] = here;
            }
            lists[home] = to;
            self.loads[home] = there;
        }
        is_no_worse
    }

    fn load(&mut self, node: usize, list: &[Entry]) -> Load {
        let ready = &self.model.ready[node];
        self.free.resize(ready.len(), 0.0);
        play(&mut self.free, ready, list)
    }
}
