//! Which outcomes of trials a change of the machines puts in doubt.
//!
//! Two kinds of outcomes are in doubt: outcomes under another limit of device memory, and outcomes
//! of gangs that took several nodes and now fit one wider node.
//!
//! Of each type of device there is a *node width*: the devices of the largest node of the type that
//! the run has had. A measurement within a node says nothing of a gang on several nodes, nor the
//! reverse: a network lies in between.

use std::sync::Arc;

use saturn_core::TrialOutcome;

use crate::facts::ids::TaskId;
use crate::state::run::State;
use crate::state::trial::TrialKey;

impl State {
    /// Brings up to date how many devices of each type can be used, after nodes or devices have
    /// come or gone.
    pub(crate) fn learn_usable_breadths(&mut self) {
        self.usable_breadths = self.breadths(|node| self.nodes[node.0].occupancy.usable);
    }

    /// Brings node widths up to date, and forgets outcomes that a new width puts in doubt. A width
    /// only grows: a strategy that was measured on a large node waits for another such node if only
    /// smaller ones are left.
    pub(crate) fn learn_node_widths(&mut self) {
        let mut widths = self.node_widths.clone();
        for node in &self.cluster.nodes {
            let width = widths.entry(node.gpu_type.clone()).or_default();
            *width = node.gpus.max(*width);
        }
        let before = std::mem::replace(&mut self.node_widths, widths);
        if before != self.node_widths {
            // Other strategies may be wide now.
            for group in &mut self.groups {
                group.footing.has_changed = true;
            }
        }
        if self.config.policy.max_nodes < 2 {
            return; // no gang is wide
        }
        let mut is_grown = false;
        for (gpu_type, old) in before {
            let new = self.node_widths.get(&gpu_type).copied().unwrap_or(old);
            if old < new {
                self.forget_outcomes(&gpu_type, old + 1..=new);
                is_grown = true;
            }
        }
        if is_grown {
            let wide = self.open_places().filter(|(_, place)| place.gang.len() > 1);
            let tasks: Vec<TaskId> = wide.map(|(_, place)| place.task).collect();
            self.close_places_of(tasks);
        }
    }

    /// Forgets the outcomes of strategies of so many devices.
    fn forget_outcomes(&mut self, gpu_type: &str, counts: std::ops::RangeInclusive<u32>) {
        for group in &mut self.groups {
            group.inspection.put_in_doubt();
            for (key, trial) in &mut group.trials {
                if key.gpu_type == gpu_type && counts.contains(&key.strategy.gpus) {
                    trial.outcome = None;
                    trial.reused = None;
                    trial.trained_step_s = None;
                    trial.is_trained_here = false;
                    trial.trained = None;
                    trial.trained_load_s = None;
                    trial.trained_evaluation_s = None;
                }
            }
            group.learn();
        }
        self.learn_all_occupancy();
    }

    /// Takes over a limit of the devices' memory, and forgets the outcomes that it puts in doubt.
    ///
    /// An outcome holds for the limit under which it was found. A wider limit reopens strategies
    /// that ran out of memory; a narrower limit reopens strategies that needed more than it leaves.
    /// The inspection is repeated. Every other outcome stays: a strategy that fits less often than
    /// its trial says is excluded when it fails, as always.
    pub(crate) fn limit_device_memory(&mut self, limit: Option<u64>) {
        let before = std::mem::replace(&mut self.config.device_memory_bytes, limit);
        if before == limit {
            return;
        }
        let is_wider = before.is_some_and(|before| limit.is_none_or(|limit| limit > before));
        for group in &mut self.groups {
            let ruled_out: Vec<Arc<TrialKey>> =
                group.trials.keys().filter(|key| group.is_ruled_out(key)).cloned().collect();
            group.inspection.put_in_doubt();
            for (key, trial) in &mut group.trials {
                let is_in_doubt = match &trial.outcome {
                    _ if ruled_out.contains(key) => true,
                    Some(TrialOutcome::OutOfMemory { .. }) => is_wider,
                    Some(TrialOutcome::Measured { peak_memory_bytes, .. }) => {
                        limit.is_some_and(|limit| *peak_memory_bytes > limit)
                    }
                    _ => false,
                };
                if is_in_doubt {
                    (trial.outcome, trial.reused) = (None, None);
                    // Otherwise plans would count on the strategy for what training showed.
                    (trial.trained_step_s, trial.trained) = (None, None);
                    trial.is_trained_here = false;
                }
            }
            group.learn();
        }
        if is_wider {
            for task in &mut self.tasks {
                task.excluded.clear();
            }
        }
    }
}
