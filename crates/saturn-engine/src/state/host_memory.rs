//! What a strategy takes of a machine's own memory, beside the memory of its devices.
//!
//! The figures are worked out from the inspection of the model. The weights are in host memory
//! once, however many ranks map them. On CPU slots each rank's part of the training state is host
//! memory too, and a trial's measured peak counts if it is larger. With GPUs, the part of the
//! training state that the devices don't hold is in host memory. A model that was not inspected is
//! never held back. While a model is inspected again, the figures of its last inspection count.
//!
//! A strategy that can't fit any idle machine is neither tried nor planned with. Only lower bounds
//! decide that, so that no strategy is refused for a guess, and the memory that machines have when they
//! are idle: what others hold of it now they may give back. What is available now decides which
//! attempts wait for each other.

use std::collections::BTreeMap;

use saturn_core::{Finding, Inspection, Placement, TrialOutcome};

use crate::facts::config::DeviceKind;
use crate::facts::ids::NodeId;
use crate::facts::record::Purpose;
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::trial::TrialKey;

impl State {
    /// How much host memory of a node all its attempts may take together, bytes; `None`: no limit.
    pub(crate) fn host_memory_of(&self, node: NodeId) -> Option<u64> {
        self.config.policy.host_memory_of(&self.cluster.nodes.get(node.0)?.name)
    }

    /// The largest host memory of an idle machine that has a node of this type, bytes; `None` if some
    /// node has no limit.
    ///
    /// Nodes that have gone count too: they may come back.
    pub(crate) fn most_host_memory(&self, gpu_type: &str) -> Option<u64> {
        let policy = &self.config.policy;
        if policy.host_memory_by_node.is_empty() {
            return policy.host_memory_bytes;
        }
        self.host_memory_of_types.get(gpu_type).copied()
    }

    /// Brings up to date how much host memory the largest machine of each type has when it is idle,
    /// after a node has come or the machines have changed.
    pub(crate) fn learn_host_memory(&mut self) {
        let policy = &self.config.policy;
        let mut most: BTreeMap<&str, Option<u64>> = BTreeMap::new();
        for node in &self.cluster.nodes {
            let own = policy.most_host_memory_of(&node.name);
            let of_type = most.entry(&node.gpu_type).or_insert(Some(0));
            *of_type = of_type.zip(own).map(|(most, own)| own.max(most));
        }
        let limited = most.into_iter().filter_map(|(name, most)| Some((name.to_owned(), most?)));
        self.host_memory_of_types = limited.collect();
    }

    /// Why a strategy of a group can't run on any node, even alone; `None` if it may.
    pub(crate) fn why_too_large_for_host(&self, group: usize, key: &TrialKey) -> Option<String> {
        let total = self.most_host_memory(&key.gpu_type)?;
        let found = self.groups[group].inspection.sizes()?;
        let least = match self.config.device_kind {
            DeviceKind::Cuda => found.parameter_bytes,
            DeviceKind::Cpu => {
                let (gpus, width) = (key.strategy.gpus, self.node_widths.get(&key.gpu_type));
                // If a gang is wider than every node, some node has at least so many of its ranks.
                let ranks = width.map_or(gpus, |width| gpus.div_ceil(gpus.div_ceil(*width).max(1)));
                let on_slots = least_on_devices(found, key).unwrap_or(0);
                found.parameter_bytes.max(part_of(on_slots, ranks, gpus))
            }
        };
        (least > total).then(|| {
            format!(
                "it needs at least {} of host memory, and a node allows {} (host_memory)",
                size_text(least),
                size_text(total)
            )
        })
    }

    /// Bytes of host memory that a strategy of a group is expected to take on a node that has
    /// `ranks` of its ranks.
    pub(crate) fn host_bytes(&self, group: usize, key: &TrialKey, ranks: u32) -> u64 {
        let group = &self.groups[group];
        let Some(found) = group.inspection.sizes() else { return 0 };
        let on_devices = least_on_devices(found, key);
        let beside = match self.config.device_kind {
            DeviceKind::Cuda => {
                on_devices.map_or(0, |held| training_state_bytes(found).saturating_sub(held))
            }
            DeviceKind::Cpu => {
                let outcome = group.trials.get(key).and_then(|trial| trial.outcome.as_ref());
                let measured = match outcome {
                    Some(TrialOutcome::Measured { peak_memory_bytes, .. }) => {
                        peak_memory_bytes.saturating_mul(u64::from(key.strategy.gpus))
                    }
                    _ => 0,
                };
                measured.max(on_devices.unwrap_or(0))
            }
        };
        found.parameter_bytes.max(part_of(beside, ranks, key.strategy.gpus))
    }

    /// Bytes of a node's host memory that an attempt is expected to take.
    pub(crate) fn host_bytes_of(&self, attempt: &Attempt, node: NodeId) -> u64 {
        let parts = attempt.gang.iter().filter(|part| part.node == node.0);
        let ranks = parts.map(num_devices).sum();
        if ranks == 0 || attempt.purpose == Purpose::Inspection {
            return 0;
        }
        let gpu_type = self.gang_type(&attempt.gang).to_owned();
        let key = TrialKey { strategy: attempt.strategy.key(), gpu_type };
        self.host_bytes(self.task(attempt.task).group, &key, ranks)
    }

    /// Whether ranks that are expected to take so many bytes of host memory may start on a node.
    pub(crate) fn has_host_memory_on(&self, node: NodeId, needed: u64) -> bool {
        let Some(total) = self.host_memory_of(node) else { return true };
        let taken = self.nodes[node.0].occupancy.host_bytes;
        taken == 0 || taken.saturating_add(needed) <= total
    }

    /// Whether ranks that are expected to take so many bytes of host memory may start on a node
    /// without waiting for training there to end.
    pub(crate) fn has_host_memory_beside_training(&self, node: NodeId, needed: u64) -> bool {
        let Some(total) = self.host_memory_of(node) else { return true };
        let taken = self.nodes[node.0].occupancy.trained_bytes;
        taken == 0 || taken.saturating_add(needed) <= total
    }
}

/// The devices of a gang on one node.
pub(crate) fn num_devices(part: &Placement) -> u32 {
    u32::try_from(part.devices.len()).unwrap_or(u32::MAX)
}

/// The part that `ranks` of `gpus` ranks hold of the bytes that all of them hold.
fn part_of(bytes: u64, ranks: u32, gpus: u32) -> u64 {
    bytes / u64::from(gpus.max(1)) * u64::from(ranks)
}

/// The bytes that all devices of a strategy hold at least, together.
fn least_on_devices(found: &Inspection, key: &TrialKey) -> Option<u64> {
    let mut of_it = found
        .verdicts
        .iter()
        .filter(|one| one.gpus == key.strategy.gpus && one.technique == key.strategy.technique)
        .filter(|one| one.gpu_type == key.gpu_type);
    match of_it.next()?.finding {
        Finding::CanRun { least_memory_bytes, .. } => {
            least_memory_bytes.map(|least| least.saturating_mul(u64::from(key.strategy.gpus)))
        }
        Finding::NotApplicable { .. } | Finding::OutOfMemory { .. } => None,
    }
}

/// Parameters, gradients and optimizer state, wherever they are.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes to a few digits, never negative"
)]
fn training_state_bytes(found: &Inspection) -> u64 {
    let trained = found.trainable_bytes as f64 * (1.0 + found.optimizer_state_ratio.max(0.0));
    found.parameter_bytes.saturating_add(trained as u64)
}

/// A size in words: in decimal units, as the Python face writes them.
#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
fn size_text(bytes: u64) -> String {
    let bytes = bytes as f64;
    if bytes < 1e9 { format!("{:.0} MB", bytes / 1e6) } else { format!("{:.1} GB", bytes / 1e9) }
}
