//! Where the time of a run's devices went.
//!
//! From the arrival of the first task on, each second of each device that is in the pool has one use
//! ([`DeviceUse`]). So all uses together are devices times makespan. Starts of the driver, in which
//! the run's clock stands still, are added to both.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{AttemptEnd, AttemptId, DeviceId, NodeId, Purpose, Record, State, devices};

use crate::facts::device_use::{DeviceUse, Parts};
use crate::facts::idle_causes::IdleCauses;

/// A device, as far as its time is counted.
#[derive(Debug, Clone, PartialEq, Default)]
struct Slot {
    /// Its present use; `None` while it is not in the pool.
    now: Option<DeviceUse>,
    /// Since when, seconds.
    since_s: f64,
    /// When a task trained on it first, seconds.
    trained_s: Option<f64>,
    /// What it did before a task trained on it first, without the present use.
    before: Parts,
}

/// The devices of an attempt, with the present use of their time and when that use began, seconds.
#[derive(Debug, Clone, PartialEq)]
struct Holding {
    devices: Vec<DeviceId>,
    since_s: f64,
    is_training: bool,
    has_saved: bool,
}

/// A device on which nothing trained for a while at the start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LateDevice {
    pub(crate) device: DeviceId,
    /// When a task trained on it first, seconds on the run's clock; `None` if none did.
    pub(crate) trained_s: Option<f64>,
    /// What it did until then, longest first, each with its seconds.
    pub(crate) causes: Vec<(DeviceUse, f64)>,
}

/// Each record lets so many idle devices be looked at again, so that the work of a record does not
/// grow with the pool. In a larger pool the cause of an idle device may be told a few records late.
const LOOKS: usize = 64;
/// The most looks that are saved up.
const MOST_LOOKS: usize = 1 << 20;

/// A device on which nothing trained for longer than this at the start is late, seconds.
pub(crate) const LATE_S: f64 = 5.0;

impl LateDevice {
    /// Seconds until a task trained on it, or until now.
    pub(crate) fn waited_s(&self) -> f64 {
        self.causes.iter().map(|(_, seconds)| seconds).sum()
    }
}

/// The uses of all devices, folded record by record.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct DeviceTime {
    /// When the first task came, seconds.
    began_s: Option<f64>,
    /// Up to when time is counted, seconds.
    until_s: f64,
    /// Device-seconds by use.
    spent: Parts,
    /// The same up to the end of the last training attempt.
    until_trained: Option<Parts>,
    slots: BTreeMap<DeviceId, Slot>,
    /// How many devices have each use now.
    numbers: BTreeMap<DeviceUse, u32>,
    /// Usable devices that nothing holds.
    idle: BTreeSet<DeviceId>,
    /// The idle devices that the present record is about.
    fresh: BTreeSet<DeviceId>,
    /// How many idle devices may be looked at again, see [`LOOKS`].
    looks: usize,
    holdings: BTreeMap<AttemptId, Holding>,
}

impl DeviceTime {
    /// Takes in a record; `state` is the state after it.
    pub(crate) fn record(&mut self, state: &State, record: &Record, now_s: f64) {
        self.advance(now_s);
        match record {
            Record::TaskAdded { .. } => {
                self.began_s.get_or_insert(now_s);
            }
            Record::DriverStarted { startup_s } => self.started_up(*startup_s),
            Record::StoodStill { for_s } => {
                self.stood_still(*for_s, now_s);
                return;
            }
            Record::Launched { attempt, purpose, gang, .. } if *purpose != Purpose::Inspection => {
                let devices: Vec<DeviceId> = devices(gang).collect();
                let is_training = *purpose == Purpose::Train;
                let holding = Holding { devices, since_s: now_s, is_training, has_saved: false };
                self.holdings.insert(*attempt, holding);
                self.look_at_attempt(state, *attempt, now_s);
            }
            Record::Started { attempt, .. } | Record::WentOn { attempt, .. } => {
                if let Some(holding) = self.holdings.get_mut(attempt) {
                    holding.since_s = now_s;
                    holding.is_training |= matches!(record, Record::WentOn { .. });
                }
                self.look_at_attempt(state, *attempt, now_s);
            }
            Record::Checkpointed { attempt, blocked_s, .. } => {
                self.saved(*attempt, *blocked_s, now_s);
                return; // No device becomes free or idle for another reason.
            }
            Record::Ended { attempt, end, .. } => self.ended(state, *attempt, end, now_s),
            Record::NodeJoined { node, .. }
            | Record::NodeLeft { node, .. }
            | Record::SetAside { node, .. }
            | Record::TakenBack { node, .. } => self.look_at_node(state, *node, now_s),
            Record::Resumed { .. } => {
                for node in (0..state.nodes.len()).map(NodeId) {
                    self.look_at_node(state, node, now_s);
                }
            }
            // These say nothing of why a device is idle, and come often.
            Record::Clocked { .. }
            | Record::Evaluated { .. }
            | Record::Solved { .. }
            | Record::Noted { .. }
            | Record::PlanKept { .. } => return,
            _ => {}
        }
        self.look_at_idle(state, now_s);
    }

    /// Device-seconds by use: until the last training attempt ended if no task is left, else until the
    /// last record.
    pub(crate) fn spent(&self, state: &State) -> &Parts {
        let is_over = state.tasks_left().next().is_none();
        self.until_trained.as_ref().filter(|_| is_over).unwrap_or(&self.spent)
    }

    /// Device-seconds by use until the last record.
    pub(crate) fn so_far(&self) -> &Parts {
        &self.spent
    }

    /// Devices on which nothing trained for more than [`LATE_S`] at the start.
    pub(crate) fn late(&self) -> impl Iterator<Item = LateDevice> + '_ {
        let late = self.slots.keys().filter_map(|device| self.late_device(*device));
        late.filter(|late| late.waited_s() > LATE_S)
    }

    /// What a device did before a task trained on it.
    pub(crate) fn late_device(&self, device: DeviceId) -> Option<LateDevice> {
        let slot = self.slots.get(&device)?;
        let mut before = slot.before;
        if let Some(now) = slot.now.filter(|_| slot.trained_s.is_none()) {
            before.add(now, self.counted_s(slot.since_s, self.until_s));
        }
        let causes = before.longest_first();
        Some(LateDevice { device, trained_s: slot.trained_s, causes })
    }

    /// Seconds from one time to another that count: those after the first task came.
    fn counted_s(&self, from_s: f64, to_s: f64) -> f64 {
        self.began_s.map_or(0.0, |began_s| (to_s - from_s.max(began_s)).max(0.0))
    }

    fn advance(&mut self, now_s: f64) {
        let passed_s = self.counted_s(self.until_s, now_s);
        if passed_s > 0.0 {
            for (one, number) in &self.numbers {
                self.spent.add(*one, f64::from(*number) * passed_s);
            }
        }
        self.until_s = self.until_s.max(now_s);
    }

    /// The driver has started, while the run's clock stood still.
    fn started_up(&mut self, startup_s: f64) {
        if self.began_s.is_none() {
            return;
        }
        let there = self.slots.values_mut().filter(|slot| slot.now.is_some());
        for slot in there {
            self.spent.add(DeviceUse::StartsUp, startup_s);
            if slot.trained_s.is_none() {
                slot.before.add(DeviceUse::StartsUp, startup_s);
            }
        }
    }

    /// The driver stood still until now: nobody knows what the devices did for so many seconds.
    fn stood_still(&mut self, for_s: f64, now_s: f64) {
        let (began_s, spent) = (self.began_s, &mut self.spent);
        for slot in self.slots.values_mut() {
            let known = [DeviceUse::SetAside, DeviceUse::NothingLeft];
            let Some(now) = slot.now.filter(|now| !known.contains(now)) else { continue };
            let Some(from_s) = began_s.map(|began_s| slot.since_s.max(began_s)) else { continue };
            let for_s = for_s.min(now_s - from_s).max(0.0);
            let is_late = slot.trained_s.is_none();
            for parts in [Some(&mut *spent), is_late.then_some(&mut slot.before)] {
                let Some(parts) = parts else { continue };
                parts.add(now, -for_s);
                parts.add(DeviceUse::StoodStill, for_s);
            }
        }
        // Checkpoints that are told next were written during the standstill.
        for holding in self.holdings.values_mut() {
            holding.since_s = now_s;
        }
    }

    /// A checkpoint was written, for which training stood still for a part of the time.
    fn saved(&mut self, attempt: AttemptId, blocked_s: f64, now_s: f64) {
        let Some(holding) = self.holdings.get_mut(&attempt) else { return };
        let since_s = std::mem::replace(&mut holding.since_s, now_s);
        holding.has_saved = true;
        let number = holding.devices.len() as f64;
        let blocked_s = blocked_s.clamp(0.0, self.counted_s(since_s, now_s));
        self.spent.add(DeviceUse::Trains, -number * blocked_s);
        self.spent.add(DeviceUse::Saves, number * blocked_s);
    }

    fn ended(&mut self, state: &State, attempt: AttemptId, end: &AttemptEnd, now_s: f64) {
        let Some(holding) = self.holdings.remove(&attempt) else { return };
        let trained = |device: &&DeviceId| {
            self.slots.get(*device).is_some_and(|slot| slot.now == Some(DeviceUse::Trains))
        };
        let number = holding.devices.iter().filter(trained).count() as f64;
        // The steps of an attempt that ends well are all in its last checkpoint.
        let ends_well = matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped);
        if holding.has_saved && ends_well {
            let ending_s = self.counted_s(holding.since_s, now_s);
            self.spent.add(DeviceUse::Trains, -number * ending_s);
            self.spent.add(DeviceUse::Ends, number * ending_s);
        }
        if holding.is_training {
            self.until_trained = Some(self.spent);
        }
        for device in holding.devices {
            self.look_at(state, device, now_s);
        }
    }

    fn look_at_attempt(&mut self, state: &State, attempt: AttemptId, now_s: f64) {
        let held = self.holdings.get(&attempt).map(|holding| holding.devices.clone());
        for device in held.into_iter().flatten() {
            self.look_at(state, device, now_s);
        }
    }

    fn look_at_node(&mut self, state: &State, node: NodeId, now_s: f64) {
        let Some(of) = state.nodes.get(node.0) else { return };
        // The node may have come back with fewer devices.
        let known = (DeviceId { node, device: 0 })..=(DeviceId { node, device: u32::MAX });
        let known = self.slots.range(known).map(|(device, _)| *device);
        let there = (0u32..).take(of.devices.len()).map(|device| DeviceId { node, device });
        for device in there.chain(known).collect::<BTreeSet<_>>() {
            self.look_at(state, device, now_s);
        }
        if !of.is_there {
            for holding in self.holdings.values_mut() {
                holding.devices.retain(|device| device.node != node);
            }
        }
    }

    /// Finds the present use of a device; of an idle device the cause is found later.
    fn look_at(&mut self, state: &State, id: DeviceId, now_s: f64) {
        self.idle.remove(&id);
        let is_there = state.nodes.get(id.node.0).is_some_and(|node| node.is_there);
        let Some(device) = state.device(id).filter(|_| is_there) else {
            return self.turn(id, None, now_s);
        };
        let held_by = device.held_by.and_then(|attempt| state.attempts.get(&attempt));
        let is_set_aside = device.set_aside.is_some();
        match held_by {
            Some(attempt) => {
                let now = match (attempt.purpose, attempt.started) {
                    (Purpose::Train, Some(_)) => DeviceUse::Trains,
                    (Purpose::Train, None) if attempt.went_on.is_some() => DeviceUse::Trains,
                    (Purpose::Train, None) => DeviceUse::Launches,
                    (Purpose::Trial | Purpose::Inspection, _) => DeviceUse::Measured,
                };
                self.turn(id, Some(now), now_s);
            }
            None if is_set_aside => self.turn(id, Some(DeviceUse::SetAside), now_s),
            None => {
                self.idle.insert(id);
                self.fresh.insert(id);
            }
        }
    }

    /// Finds out why devices are idle. If very many devices are idle, only the devices that the record is
    /// about are looked at.
    fn look_at_idle(&mut self, state: &State, now_s: f64) {
        let fresh = std::mem::take(&mut self.fresh);
        self.looks = (self.looks + LOOKS).min(MOST_LOOKS);
        let looked_at = if self.idle.len() <= self.looks {
            self.looks -= self.idle.len();
            self.idle.iter().copied().collect()
        } else {
            Vec::from_iter(fresh)
        };
        let mut causes = IdleCauses::of(state);
        for device in looked_at {
            let cause = causes.of_device(device);
            self.turn(device, Some(cause), now_s);
        }
    }

    /// A device has another use from now on.
    fn turn(&mut self, id: DeviceId, next: Option<DeviceUse>, now_s: f64) {
        let slot = self.slots.entry(id).or_default();
        let last = std::mem::replace(&mut slot.now, next);
        if last == next {
            return;
        }
        if let Some(last) = last {
            *self.numbers.entry(last).or_insert(1) -= 1;
        }
        if let Some(next) = next {
            *self.numbers.entry(next).or_insert(0) += 1;
        }
        let since_s = std::mem::replace(&mut slot.since_s, now_s);
        if let (Some(last), Some(began_s), false) = (last, self.began_s, slot.trained_s.is_some()) {
            slot.before.add(last, (now_s - since_s.max(began_s)).max(0.0));
        }
        if next == Some(DeviceUse::Trains) {
            slot.trained_s.get_or_insert(now_s);
        }
    }
}
