//! Rules on searches: they train nothing, and end once everything that can be tried is known.
//!
//! Written from the promise of `saturn search`: of every task that is left, each technique that the
//! run has is tried on each number of devices that the task allows, that a node has and that the
//! task's owner may hold, unless an inspection has ruled it out. What needs more devices than can be used is named. Devices that
//! other programs use for now are waited for.
//!
//! Does not do: look at gangs on several nodes, or at what is known of earlier runs beyond that
//! something is.

use std::collections::BTreeSet;

use saturn_core::StrategyKey;
use saturn_engine::{DeviceId, Mode, NodeId};

use crate::judge::books::Books;

/// How a search tells of what it has not tried.
pub(super) const NOT_TRIED: &str = "not tried, since too few devices can be used: ";
/// The rule that a search only measures.
pub(super) const TRAINS_NOTHING: &str = "a search trains nothing";
/// Up to this number of devices every number is tried.
const ALL_UP_TO: u32 = 8;

impl Books {
    /// Whether the run only measures.
    pub(super) fn is_search(&self) -> bool {
        self.config.mode == Mode::Search
    }

    /// A search says that it is complete.
    pub(super) fn search_ended(&mut self) {
        let rule = "a search ends when all is tried";
        if !self.is_closed {
            return self.wrong(rule, "more tasks may come".to_owned());
        }
        if let Some((id, _)) = self.attempts.iter().find(|(_, one)| one.end.is_none()) {
            return self.wrong(rule, format!("{id} has not ended"));
        }
        let open = (0..self.tasks.len()).filter(|task| self.tasks[*task].end.is_none());
        let groups: BTreeSet<&str> = open.map(|task| self.tasks[task].group.as_str()).collect();
        let missing = groups.into_iter().find_map(|group| self.not_found_out(group));
        if let Some(what) = missing {
            self.wrong(rule, what);
        }
    }

    /// A strategy of a group of which nothing is known and that could have been tried, or that was not
    /// named although too few devices can be used.
    fn not_found_out(&self, group: &str) -> Option<String> {
        let types: BTreeSet<&str> =
            self.nodes.iter().filter(|one| one.2 > 0).map(|one| one.1.as_str()).collect();
        for gpu_type in types {
            if self.why_too_large_for_all(group, gpu_type).is_some() {
                continue;
            }
            let widest = |has: &dyn Fn(usize) -> u32| {
                let of_type = (0..self.nodes.len()).filter(|node| self.nodes[*node].1 == gpu_type);
                of_type.map(has).max().unwrap_or(0)
            };
            let there = widest(&|node| self.nodes[node].2).min(ALL_UP_TO);
            let usable = widest(&|node| self.num_to_come(node));
            for gpus in 1..=there {
                for technique in &self.config.techniques {
                    let key = StrategyKey { technique: technique.name.clone(), gpus };
                    if self.is_found_out(group, &key, gpu_type) {
                        continue;
                    }
                    if gpus <= usable {
                        return Some(format!("{group} {key:?} on {gpu_type} was never tried"));
                    }
                    let named = format!("{}×{gpus}", key.technique);
                    let told = self.not_tried.strip_prefix(NOT_TRIED).unwrap_or_default();
                    if !told.split(", ").any(|one| one == named) {
                        return Some(format!("nobody is told that {named} was not tried"));
                    }
                }
            }
        }
        None
    }

    /// Whether something is known of a strategy, or no task of the group that is left may be tried
    /// under it.
    fn is_found_out(&self, group: &str, key: &StrategyKey, gpu_type: &str) -> bool {
        let one = (key.clone(), gpu_type.to_owned());
        let is_in = |all: Option<&BTreeSet<(StrategyKey, String)>>| {
            all.is_some_and(|all| all.contains(&one))
        };
        let may_try = |task: usize| {
            let task = &self.tasks[task];
            task.end.is_none()
                && task.group == group
                && !task.excluded.contains(key)
                && self.quota_of(task.owner).is_none_or(|quota| key.gpus <= quota)
                && task.gpu_range.as_ref().is_none_or(|range| range.contains(&key.gpus))
        };
        is_in(self.tried.get(group))
            || is_in(self.ruled_out.get(group))
            || !(0..self.tasks.len()).any(may_try)
    }

    /// The devices of a node that may be used, now or once other programs have left them.
    fn num_to_come(&self, node: usize) -> u32 {
        let may_come = |device: &u32| {
            let id = DeviceId { node: NodeId(node), device: *device };
            !self.set_aside.contains(&id) || self.outside.left.contains(&id)
        };
        let devices = (0..self.nodes[node].2).filter(may_come).count();
        u32::try_from(devices).unwrap_or(u32::MAX)
    }
}
