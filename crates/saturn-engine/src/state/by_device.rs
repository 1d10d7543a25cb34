//! A table with a place for each device of a run's nodes, so that a value for a device is found
//! without a search.

use crate::facts::ids::{DeviceId, NodeId};
use crate::state::device::NodeState;

/// A value for each device that has one.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ByDevice<T> {
    /// Devices of the largest node.
    width: usize,
    /// Node by node, each with room for `width` devices.
    values: Vec<Option<T>>,
}

impl<T: Copy> ByDevice<T> {
    /// A table without a value for any device of these nodes.
    pub(crate) fn of(nodes: &[NodeState]) -> Self {
        let width = nodes.iter().map(|node| node.devices.len()).max().unwrap_or(0);
        Self { width, values: vec![None; nodes.len() * width] }
    }

    /// The number of a device's place in the table; `None` where no node has such a device.
    pub(crate) fn index(&self, device: DeviceId) -> Option<usize> {
        let number = device.device as usize;
        (number < self.width && device.node.0 < self.values.len() / self.width)
            .then(|| device.node.0 * self.width + number)
    }

    /// The device of that number.
    pub(crate) fn device(&self, index: usize) -> DeviceId {
        let device = u32::try_from(index % self.width).unwrap_or(u32::MAX);
        DeviceId { node: NodeId(index / self.width), device }
    }

    /// Devices that have a value.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let with_value = self.values.iter().enumerate().filter(|(_, value)| value.is_some());
        with_value.map(|(index, _)| self.device(index))
    }

    /// The value of a device.
    pub(crate) fn get(&self, device: DeviceId) -> Option<T> {
        *self.values.get(self.index(device)?)?
    }

    /// Where the value of a device stands; `None` where no node has such a device.
    pub(crate) fn slot(&mut self, device: DeviceId) -> Option<&mut Option<T>> {
        let index = self.index(device)?;
        self.values.get_mut(index)
    }
}
