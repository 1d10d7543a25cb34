//! Where trials have room: the devices of each node that are free, or will be soon.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use saturn_core::{Gang, Placement};

use crate::facts::ids::{DeviceId, NodeId};
use crate::state::run::State;

/// The devices of each node that trials may use: free devices, and devices that other trials or
/// stopping attempts hold.
#[derive(Debug)]
pub(crate) struct Vacancies {
    by_type: BTreeMap<String, Vec<Vacancy>>,
    node_widths: BTreeMap<String, u32>,
    max_nodes: usize,
}

#[derive(Debug)]
pub(crate) struct Vacancy {
    pub(crate) node: NodeId,
    free: Arc<Vec<u32>>,
    /// Devices that trials and stopping attempts hold, and that are free soon.
    pub(crate) lent: u32,
    /// All devices that can be used.
    pub(crate) devices: u32,
}

impl Vacancy {
    /// Devices that are free, or will be soon.
    pub(crate) fn soon(&self) -> u32 {
        self.num_free() + self.lent
    }

    fn num_free(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    fn free_devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.free.iter().map(|device| DeviceId { node: self.node, device: *device })
    }
}

impl Vacancies {
    pub(crate) fn of(state: &State) -> Self {
        let mut vacancies: BTreeMap<String, Vec<Vacancy>> = BTreeMap::new();
        for node in state.present_nodes() {
            let of = &state.nodes[node.0].occupancy;
            let (free, lent, devices) = (Arc::clone(&of.free), of.lent, of.usable);
            let vacancy = Vacancy { node, free, lent, devices };
            let gpu_type = state.gpu_type(node);
            match vacancies.get_mut(gpu_type) {
                Some(of_type) => of_type.push(vacancy),
                None => drop(vacancies.insert(gpu_type.to_owned(), vec![vacancy])),
            }
        }
        let max_nodes = state.config.policy.max_nodes as usize;
        Self { by_type: vacancies, node_widths: state.node_widths.clone(), max_nodes }
    }

    /// The vacancies of a pool in which these devices are free, and no others.
    pub(crate) fn among(state: &State, devices: impl Iterator<Item = DeviceId>) -> Self {
        let mut free: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for DeviceId { node, device } in devices {
            free.entry(node).or_default().push(device);
        }
        let mut vacancies = Self::of(state);
        for vacancy in vacancies.by_type.values_mut().flatten() {
            vacancy.free = Arc::new(free.remove(&vacancy.node).unwrap_or_default());
        }
        vacancies
    }

    /// The number of trials of a width that fit at most, and one more that may wait.
    pub(crate) fn most(&self, gpu_type: &str, gpus: u32) -> usize {
        let vacancies = self.by_type.get(gpu_type).into_iter().flatten();
        vacancies.map(|vacancy| vacancy.free.len() / gpus.max(1) as usize).sum::<usize>() + 1
    }

    /// Whether there is a node that a trial, or its part there, would fit if it had the devices.
    pub(crate) fn can_hold(
        &self,
        gpu_type: &str,
        gpus: u32,
        fits: impl Fn(NodeId, u32) -> bool,
    ) -> bool {
        let is_wide = self.is_wide(gpu_type, gpus);
        let mut vacancies = self.by_type.get(gpu_type).into_iter().flatten();
        vacancies.any(|vacancy| {
            (is_wide || vacancy.devices >= gpus) && fits(vacancy.node, gpus.min(vacancy.devices))
        })
    }

    /// Whether a trial's devices are free.
    pub(crate) fn has_free(&self, gpu_type: &str, gpus: u32) -> bool {
        self.has(gpu_type, gpus, Vacancy::num_free)
    }

    /// Takes devices for a trial, if they are free and so many of its ranks fit the node.
    pub(crate) fn take(
        &mut self,
        gpu_type: &str,
        gpus: u32,
        fits: impl Fn(NodeId, u32) -> bool,
    ) -> Option<Gang> {
        if self.is_wide(gpu_type, gpus) {
            let parts = self.spread(gpu_type, gpus, Vacancy::num_free)?;
            if !parts.iter().all(|(node, gpus)| fits(*node, *gpus)) {
                return None;
            }
            let mut gang: Gang =
                parts.into_iter().map(|(node, gpus)| self.take_of(node, gpus)).collect();
            gang.sort_by_key(|part| part.node);
            return Some(gang);
        }
        let vacancies = self.by_type.get(gpu_type)?;
        let vacancy = vacancies
            .iter()
            .find(|vacancy| vacancy.num_free() >= gpus && fits(vacancy.node, gpus))?;
        let node = vacancy.node;
        Some(vec![self.take_of(node, gpus)])
    }

    fn take_of(&mut self, node: NodeId, gpus: u32) -> Placement {
        let mut devices = Vec::new();
        if let Some(vacancy) = self.vacancy(node) {
            devices.extend(Arc::make_mut(&mut vacancy.free).drain(..gpus as usize));
            vacancy.lent += gpus;
        }
        Placement { node: node.0, devices }
    }

    /// Devices of a node will be free soon.
    pub(crate) fn lend(&mut self, node: NodeId, gpus: u32) {
        if let Some(vacancy) = self.vacancy(node) {
            vacancy.lent += gpus;
        }
    }

    fn vacancy(&mut self, node: NodeId) -> Option<&mut Vacancy> {
        self.by_type.values_mut().flatten().find(|vacancy| vacancy.node == node)
    }

    pub(crate) fn is_wide(&self, gpu_type: &str, gpus: u32) -> bool {
        self.node_widths.get(gpu_type).is_some_and(|width| gpus > *width)
    }

    /// The nodes for a wide gang, with how many devices of each. They are whole nodes, the largest
    /// first, and a part of one more node: of the node with just enough. `has` says how many
    /// devices a node has for it.
    pub(crate) fn spread(
        &self,
        gpu_type: &str,
        gpus: u32,
        has: impl Fn(&Vacancy) -> u32,
    ) -> Option<Vec<(NodeId, u32)>> {
        let mut vacancies: Vec<&Vacancy> = self.by_type.get(gpu_type)?.iter().collect();
        vacancies.sort_by_key(|vacancy| (Reverse(vacancy.devices), vacancy.node));
        let (mut parts, mut left) = (Vec::new(), gpus);
        vacancies.retain(|vacancy| {
            // The last node that the gang may take must have all devices that are left to take.
            let is_enough = vacancy.devices == left || parts.len() + 1 < self.max_nodes;
            let is_whole = vacancy.devices > 0
                && has(vacancy) == vacancy.devices
                && vacancy.devices <= left
                && is_enough;
            if is_whole {
                parts.push((vacancy.node, vacancy.devices));
                left -= vacancy.devices;
            }
            !is_whole
        });
        if left > 0 {
            let enough = vacancies.into_iter().filter(|vacancy| has(vacancy) >= left);
            parts.push((enough.min_by_key(|vacancy| has(vacancy))?.node, left));
        }
        (parts.len() <= self.max_nodes).then_some(parts)
    }

    /// The free devices of a node where a trial will fit once other trials end. Narrower trials may
    /// still take them.
    pub(crate) fn keep(&self, gpu_type: &str, gpus: u32) -> Vec<DeviceId> {
        if self.is_wide(gpu_type, gpus) {
            let parts = self.spread(gpu_type, gpus, Vacancy::soon).unwrap_or_default();
            let vacancies = self.by_type.get(gpu_type).into_iter().flatten();
            let vacancies =
                vacancies.filter(|vacancy| parts.iter().any(|(node, _)| *node == vacancy.node));
            return vacancies.flat_map(Vacancy::free_devices).collect();
        }
        let vacancies = self.by_type.get(gpu_type).into_iter().flatten();
        let wide_enough = |vacancy: &&Vacancy| {
            vacancy.lent > 0 && vacancy.free.len() + vacancy.lent as usize >= gpus as usize
        };
        vacancies
            .filter(wide_enough)
            .max_by_key(|vacancy| vacancy.free.len())
            .map(|vacancy| vacancy.free_devices().collect())
            .unwrap_or_default()
    }

    /// The nodes of a type, in the order in which they came.
    pub(crate) fn of_type(&self, gpu_type: &str) -> impl Iterator<Item = &Vacancy> {
        self.by_type.get(gpu_type).into_iter().flatten()
    }

    /// The node of a type that has the most devices free now or soon, where a trial would fit if
    /// training stopped.
    pub(crate) fn nearest(&mut self, gpu_type: &str, gpus: u32) -> Option<&mut Vacancy> {
        let vacancies = self.by_type.get_mut(gpu_type)?.iter_mut();
        vacancies.filter(|vacancy| vacancy.devices >= gpus).max_by_key(|vacancy| vacancy.soon())
    }

    /// Whether a trial has room beside the attempts that train: devices, and whatever else `fits`
    /// asks of a node for so many of its ranks.
    pub(crate) fn has_without_training(
        &self,
        gpu_type: &str,
        gpus: u32,
        fits: impl Fn(NodeId, u32) -> bool,
    ) -> bool {
        if self.is_wide(gpu_type, gpus) {
            let parts = self.spread(gpu_type, gpus, Vacancy::soon);
            return parts
                .is_some_and(|parts| parts.into_iter().all(|(node, ranks)| fits(node, ranks)));
        }
        let mut vacancies = self.by_type.get(gpu_type).into_iter().flatten();
        vacancies.any(|vacancy| vacancy.soon() >= gpus && fits(vacancy.node, gpus))
    }

    /// Whether a trial fits where each node has so many devices for it.
    fn has(&self, gpu_type: &str, gpus: u32, has: impl Fn(&Vacancy) -> u32) -> bool {
        if self.is_wide(gpu_type, gpus) {
            return self.spread(gpu_type, gpus, has).is_some();
        }
        let mut vacancies = self.by_type.get(gpu_type).into_iter().flatten();
        vacancies.any(|vacancy| has(vacancy) >= gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up to four nodes of up to four devices, all free.
    fn pools() -> impl Iterator<Item = Vec<u32>> {
        (0..625u32).map(|number| {
            let digits = [number % 5, number / 5 % 5, number / 25 % 5, number / 125];
            digits.into_iter().filter(|devices| *devices > 0).collect()
        })
    }

    #[test]
    fn a_wide_gang_that_an_idle_pool_holds_finds_its_nodes_there() {
        for (devices, max_nodes) in
            pools().flat_map(|pool| (1..5).map(move |max| (pool.clone(), max)))
        {
            let vacancy = |(node, devices)| Vacancy {
                node: NodeId(node),
                free: Arc::new((0..devices).collect()),
                lent: 0,
                devices,
            };
            let vacancies = devices.iter().copied().enumerate().map(vacancy).collect();
            let width = devices.iter().copied().max().unwrap_or(0);
            let gpu_type = "fast".to_owned();
            let vacancies = Vacancies {
                by_type: BTreeMap::from([(gpu_type.clone(), vacancies)]),
                node_widths: BTreeMap::from([(gpu_type.clone(), width)]),
                max_nodes,
            };
            let mut nodes = devices.clone();
            nodes.sort_unstable_by_key(|devices| Reverse(*devices));
            nodes.truncate(max_nodes);
            for gpus in width + 1..18 {
                let found = vacancies.spread(&gpu_type, gpus, Vacancy::num_free);
                let most: u32 = nodes.iter().sum();
                assert_eq!(
                    found.is_some(),
                    gpus <= most,
                    "{gpus} of {devices:?}, {max_nodes} nodes"
                );
                let parts = found.unwrap_or_default();
                let held: u32 = parts.iter().map(|(_, devices)| devices).sum();
                assert!(parts.is_empty() || held == gpus && parts.len() <= max_nodes);
                let cut = parts.iter().filter(|(node, held)| devices[node.0] != *held);
                assert!(cut.count() <= 1, "{parts:?} of {devices:?}: whole nodes but for one");
            }
        }
    }
}
