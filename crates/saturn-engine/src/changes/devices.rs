//! How records about nodes and devices change the state.

use saturn_core::Node;

use crate::facts::ids::{NodeId, TaskId};
use crate::facts::machines::{MachineMemory, Machines};
use crate::facts::record::RunEnd;
use crate::state::device::{DeviceState, NodeState, Occupancy};
use crate::state::run::State;

/// No machine has more: a record that says so is damaged.
const MAX_DEVICES: u32 = 1 << 20;

impl State {
    /// The numbers of a node's devices.
    pub(crate) fn device_numbers(&self, node: NodeId) -> impl Iterator<Item = u32> + use<> {
        let num_devices = self.nodes.get(node.0).map_or(0, |node| node.devices.len());
        (0u32..).take(num_devices)
    }

    /// Changes devices of a node. If that may change which can be used, or which are free, the
    /// caller learns the node's occupancy and the usable breadths anew.
    pub(crate) fn with_devices(
        &mut self,
        node: NodeId,
        devices: &[u32],
        mut change: impl FnMut(&mut DeviceState),
    ) {
        let Some(node) = self.nodes.get_mut(node.0) else { return };
        for device in devices {
            if let Some(device) = node.devices.get_mut(*device as usize) {
                change(device);
            }
        }
    }

    pub(crate) fn apply_resumed(
        &mut self,
        device_memory_bytes: Option<u64>,
        machines: Option<Machines>,
    ) {
        self.limit_device_memory(device_memory_bytes);
        if let Some(machines) = machines {
            let Machines {
                device_kind,
                host_memory_bytes,
                host_memory_by_node,
                pool_may_grow,
                hardware,
            } = machines;
            self.config.device_kind = device_kind;
            self.config.policy.host_memory_bytes = host_memory_bytes;
            self.config.policy.host_memory_by_node = host_memory_by_node;
            self.config.policy.pool_may_grow = pool_may_grow;
            self.config.policy.hardware = hardware;
            self.learn_host_memory();
        }
        self.open_trials.clear();
        self.to_inspect.clear();
        for group in &mut self.groups {
            group.inspection.failures = 0;
            for trial in group.trials.values_mut() {
                trial.failures = 0;
            }
        }
        self.interrupted = None;
        if self.ended == Some(RunEnd::Interrupted) {
            self.ended = None;
        }
        for task in &mut self.tasks {
            task.failures = 0;
            task.not_before_s = 0.0;
        }
        // Another driver may find devices good that the last one did not.
        for device in self.nodes.iter_mut().flat_map(|node| &mut node.devices) {
            // An attempt that goes on under this driver has its devices still.
            *device = DeviceState { held_by: device.held_by, ..DeviceState::default() };
        }
        self.learn_all_occupancy();
        self.learn_usable_breadths();
        for task in self.task_ids() {
            self.want_trials_for(task);
        }
        self.learn_all();
        // Strategies that the old machines were large enough for may be too large for these.
        self.close_places_of(self.task_ids());
        self.version += 1;
    }

    pub(crate) fn apply_set_aside(
        &mut self,
        node: NodeId,
        devices: &[u32],
        reason: &str,
        absolved: &[TaskId],
    ) {
        self.with_devices(node, devices, |device| {
            device.set_aside = Some(reason.to_owned());
            device.suspects.clear();
        });
        self.learn_occupancy(node);
        self.learn_usable_breadths();
        for task in absolved {
            if let Some(task) = self.tasks.get_mut(task.0) {
                task.failures = 0;
            }
        }
        self.version += 1;
        self.close_places_on(node, devices.iter().copied());
    }

    pub(crate) fn apply_joined(&mut self, id: NodeId, spec: &Node, memory: Option<MachineMemory>) {
        if id.0 > self.nodes.len() || spec.gpus > MAX_DEVICES {
            return;
        }
        let most_before = self.most_host_memory(&spec.gpu_type);
        if let Some(memory) = memory {
            self.config.policy.host_memory_by_node.insert(spec.name.clone(), memory);
        }
        // The node may come back with fewer devices than it had.
        let devices_before = self.device_numbers(id);
        self.forget_occupancy(id);
        let devices = vec![DeviceState::default(); spec.gpus as usize];
        let state =
            NodeState { is_there: true, devices, slowness: None, occupancy: Occupancy::default() };
        if id.0 == self.nodes.len() {
            self.cluster.nodes.push(spec.clone());
            self.nodes.push(state);
        } else {
            self.cluster.nodes[id.0] = spec.clone();
            self.nodes[id.0] = state;
        }
        self.version += 1;
        self.learn_host_memory();
        self.learn_occupancy_of_joined(id);
        self.close_places_on(id, devices_before);
        self.want_trials_of_pool();
        if self.most_host_memory(&spec.gpu_type) != most_before {
            // Strategies that every node was too small for may fit this one, or the reverse.
            self.want_all_trials();
            self.close_places_of(self.task_ids());
        }
    }

    pub(crate) fn apply_left(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.0) else { return };
        node.is_there = false;
        // The node's devices count as free when it comes back, though ranks on other nodes are
        // still to end.
        let mut left = vec![id];
        for (number, attempt) in &mut self.attempts {
            if attempt.gang.len() > 1 && attempt.gang.iter().any(|part| part.node == id.0) {
                attempt.gang.retain(|part| part.node != id.0);
                attempt.is_lost = true;
                left.extend(attempt.gang.iter().map(|part| NodeId(part.node)));
                for device in &mut node.devices {
                    device.held_by = device.held_by.filter(|holder| holder != number);
                }
            }
        }
        for node in left {
            self.learn_occupancy(node);
        }
        let devices = self.device_numbers(id);
        self.version += 1;
        self.close_places_on(id, devices);
        self.want_trials_of_pool();
    }

    /// The pool has changed: brings the open trials up to date, where that makes a difference.
    pub(crate) fn want_trials_of_pool(&mut self) {
        self.learn_node_widths();
        self.learn_usable_breadths();
        let breadths = self.breadths(|node| self.cluster.nodes[node.0].gpus);
        if breadths == self.breadths {
            return;
        }
        self.breadths = breadths;
        self.want_all_trials();
    }

    fn want_all_trials(&mut self) {
        self.open_trials.clear();
        self.to_inspect.clear();
        for task in self.task_ids() {
            self.want_trials_for(task);
        }
        self.learn_all();
    }
}
