//! Whether what the state keeps up, so that no event has to work it out, is what would be worked out
//! anew.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::ids::{AttemptId, NodeId};
use crate::facts::sharing::Uid;
use crate::state::run::State;
use crate::state::soon_free::SoonFree;

impl State {
    /// Whether the figures of every node, the counts over all nodes, and the lists and estimates of
    /// every group are those that a look at the whole state finds. For tests.
    #[doc(hidden)]
    pub fn is_kept_up(&self) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.all(|(id, node)| node.occupancy == self.occupancy_of(NodeId(id)))
            && self.soon_free == self.soon_free_anew()
            && (0..self.groups.len()).all(|group| self.is_group_kept_up(group))
            && self.are_estimates_kept_up()
            && self.are_people_kept_up()
    }

    /// Whether the tasks of each person that may train are those that a look at all tasks finds.
    fn are_people_kept_up(&self) -> bool {
        let mut found: BTreeMap<Uid, BTreeMap<i32, u32>> = BTreeMap::new();
        for task in &self.tasks {
            let of_person = found.entry(task.uid()).or_default();
            if let Some(priority) = task.ready() {
                *of_person.entry(priority).or_default() += 1;
            }
        }
        let counted = |uid: &Uid| self.people.get(uid).map(|person| &person.ready);
        found.iter().all(|(uid, ready)| counted(uid).unwrap_or(&BTreeMap::new()) == ready)
    }

    /// Whether a look at every open task would name no further trial, would rule out none, and would
    /// find no further inspection due. A damaged journal may leave that undone. For tests.
    #[doc(hidden)]
    pub fn are_trials_named(&self) -> bool {
        (0..self.groups.len()).all(|group| self.are_trials_of_group_named(group))
    }

    fn soon_free_anew(&self) -> SoonFree {
        let mut found = SoonFree::default();
        for node in &self.nodes {
            found.add(&node.occupancy);
        }
        found
    }

    fn is_group_kept_up(&self, number: usize) -> bool {
        let group = &self.groups[number];
        let live = self.attempts.iter();
        let live = live.filter(|(_, attempt)| self.task(attempt.task).group == number);
        let live: BTreeSet<AttemptId> = live.map(|(id, _)| *id).collect();
        let has_raised = group.trials.values().any(|trial| trial.own_failures > 0);
        group.attempts == live && (!has_raised || self.have_raised.contains(&number))
    }
}
