//! Nodes that come and go with everything on them, and devices that turn bad.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use saturn_core::{Gang, Node, TrialOutcome};
use saturn_engine::{AttemptId, DeviceId, FailureKind, LaunchError, Purpose, TaskId, devices};

use crate::world::cluster::{Found, World};
use crate::world::faults::Fault;
use crate::world::gang::{Failure, LiveGang, Order, Phase, whole};
use crate::world::history::Fact;

/// A gang that is so close to a checkpoint of the recorded run comes to it, seconds: its steps were
/// a little slower.
const NEARLY_S: f64 = 1.0;

impl World {
    /// Steps on a node take longer by this factor from now on.
    pub(crate) fn set_pace(&mut self, name: &str, factor: f64) {
        let before = self.paces.insert(name.to_owned(), factor).unwrap_or(1.0);
        for attempt in self.gangs_on(name) {
            self.slow_down(attempt, factor / before);
        }
    }

    /// The factor of a gang: that of its slowest node.
    pub(super) fn pace(&self, gang: &Gang) -> f64 {
        let names = gang.iter().filter_map(|part| self.numbered.get(part.node));
        names.filter_map(|(name, _)| self.paces.get(name)).copied().fold(1.0, f64::max)
    }

    /// Adds a node. The engine is not told.
    pub fn add_node(&mut self, node: Node) {
        let (name, gpus) = (node.name.clone(), node.gpus);
        self.history.add(self.now_s, || Fact::Node { name, gpus });
        self.silent.remove(&node.name);
        self.nodes.insert(node.name.clone(), node);
    }

    /// Removes a node with everything on it. The engine is not told.
    pub fn remove_node(&mut self, name: &str) -> Option<Node> {
        let node = self.nodes.remove(name)?;
        self.silent.remove(name);
        self.history.add(self.now_s, || Fact::Node { name: name.to_owned(), gpus: 0 });
        self.forget_held_on(name);
        let lost: Vec<AttemptId> = self.gangs_on(name);
        for attempt in lost {
            if let Some(gang) = self.gangs.get(&attempt) {
                let devices = f64::from(gang.order.num_ranks);
                self.lost_device_s += devices * (gang.unsaved_s(self.now_s) + gang.load_s);
            }
            self.lose_share(attempt, name);
        }
        Some(node)
    }

    /// A node has gone, and the engine is told later.
    pub(crate) fn leaves_unheard(&mut self, name: &str) {
        *self.leaving.entry(name.to_owned()).or_default() += 1;
    }

    /// The engine is told now that a node has gone.
    pub(crate) fn told_of_leaving(&mut self, name: &str) {
        if let Some(times) = self.leaving.get_mut(name) {
            *times = times.saturating_sub(1);
        }
    }

    /// The launcher knows of a node's loss before the engine does.
    pub(super) fn check_nodes(&mut self, order: &Order) -> Result<(), LaunchError> {
        if self.always_fails.1 == Some(order.task) {
            self.hit(Fault::AlwaysFails);
            let error = "its parent ended at once".to_owned();
            return Err(LaunchError { kind: FailureKind::Saturn, error });
        }
        let names = order.gang.iter().filter_map(|part| self.numbered.get(part.node));
        for (name, _) in names {
            if self.leaving.get(name).is_some_and(|times| *times > 0) {
                let error = format!("node {name} has gone");
                return Err(LaunchError { kind: FailureKind::Saturn, error });
            }
        }
        Ok(())
    }

    /// A node is dead: what is on it does and says nothing any more. The engine is not told. These
    /// checkpoints are found later.
    pub(crate) fn silence_node(&mut self, name: &str, found: &BTreeMap<TaskId, Found>) {
        self.silent.insert(name.to_owned());
        for attempt in self.gangs_on(name) {
            let now_s = self.now_s;
            let Some(gang) = self.gangs.get_mut(&attempt) else { continue };
            gang.look_up(now_s);
            let (task, step) = (gang.order.task, gang.step);
            let nearly = whole(NEARLY_S / gang.step_s.max(f64::MIN_POSITIVE));
            self.stand_still(attempt);
            let Some(found) = found.get(&task) else { continue };
            let is_there = step + found.unheard + nearly >= found.step;
            if is_there && self.saved_step(task) < found.step {
                self.save(attempt, task, found.step);
            }
        }
    }

    /// Whether a process of a gang is on a dead node.
    pub(super) fn is_silent(&self, gang: &LiveGang) -> bool {
        gang.order.gang.iter().any(|part| {
            let node = self.numbered.get(part.node);
            node.is_some_and(|(name, _)| self.silent.contains(name))
        })
    }

    /// A gang takes no further action by itself.
    pub(super) fn stand_still(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        (gang.phase, gang.turn) = (Phase::Still, gang.turn + 1);
    }

    /// Removes the processes of a gang that are on a node. Its processes on other nodes stand still
    /// and wait. The caller says which of the gang's processes have ended.
    fn lose_share(&mut self, attempt: AttemptId, name: &str) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if gang.order.gang.len() < 2 {
            return self.vanish(attempt);
        }
        let order = gang.order.clone();
        self.stand_still(attempt);
        let mut parts: Vec<(usize, usize)> =
            order.gang.iter().map(|part| (part.node, part.devices.len())).collect();
        // Ranks are numbered so.
        parts.sort_by_key(|(_, num_devices)| Reverse(*num_devices));
        let mut ranks = 0..order.num_ranks;
        for (node, num_devices) in parts {
            let of_node: Vec<u32> = ranks.by_ref().take(num_devices).collect();
            if self.numbered.get(node).is_some_and(|(numbered, _)| numbered == name) {
                if let Some(gang) = self.gangs.get_mut(&attempt) {
                    gang.lost.insert(node);
                }
                for rank in of_node {
                    self.rank_ends(attempt, rank, 1);
                }
            }
        }
    }

    pub(super) fn gangs_on(&self, name: &str) -> Vec<AttemptId> {
        let on = |gang: &LiveGang| {
            gang.order.gang.iter().any(|part| {
                let node = self.numbered.get(part.node);
                node.is_some_and(|(numbered, _)| numbered == name)
                    && !gang.lost.contains(&part.node)
            })
        };
        self.gangs.iter().filter(|(_, gang)| on(gang)).map(|(id, _)| *id).collect()
    }

    /// All processes of a gang are gone at once, without a word.
    pub(super) fn vanish(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.remove(&attempt) else { return };
        for rank in gang.live {
            self.history.add(self.now_s, || Fact::Gone { attempt, rank });
        }
        self.settle_neighbours();
    }

    /// Programs outside Saturn use these devices. Half of the gangs there run out of memory soon;
    /// a trial may say so as its outcome.
    pub(crate) fn come_beside(&mut self, used: &BTreeSet<DeviceId>) {
        let is_beside = |gang: &LiveGang| devices(&gang.order.gang).any(|id| used.contains(&id));
        let beside = self.gangs.iter().filter(|(_, gang)| is_beside(gang));
        let beside: Vec<AttemptId> = beside.map(|(id, _)| *id).collect();
        for attempt in beside {
            if self.odds.is_empty() || self.rng.random_bool(0.5) {
                continue;
            }
            if self.rng.random_bool(0.5)
                && let Some(gang) = self.gangs.get_mut(&attempt)
                && gang.order.purpose == Purpose::Trial
            {
                let detail = "others use the device".to_owned();
                gang.fate.outcome = Some(TrialOutcome::OutOfMemory { detail });
                continue;
            }
            let kind = FailureKind::OutOfMemory;
            self.fail(attempt, &Failure::Says { kind, echo_first: false });
        }
    }

    /// A device is bad or well from now on.
    pub fn set_bad(&mut self, device: DeviceId, is_bad: bool) {
        if is_bad {
            self.hit(Fault::BadDevice);
            self.bad.insert(device);
        } else {
            self.bad.remove(&device);
        }
    }
}
