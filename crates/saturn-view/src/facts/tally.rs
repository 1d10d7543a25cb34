//! What programs that watch runs count and gauge.
//!
//! A count only grows, whichever record comes next, and is the same for whoever reads the same
//! records. Where the time of devices went is told anew when a checkpoint is done: a part of what
//! counted as training was its writing. So the count of a use is the most that it ever was.

use saturn_engine::{AttemptEnd, DeviceId, FailureKind, Purpose, Record, State};

use crate::facts::counts::TaskCounts;
use crate::facts::device_use::{DeviceUse, Parts};
use crate::facts::expect::Expected;
use crate::facts::history::History;

/// Counts that only grow, folded record by record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    device_s: Parts,
    /// Plans that came into force.
    pub plans_adopted: u64,
    /// How often the plan in force was kept, since none was worth a switch.
    pub plans_kept: u64,
    /// Answers of the solver that can't be used.
    pub not_solved: u64,
    /// Attempts that were launched, by purpose: inspections, trials, training.
    pub launches: [u64; 3],
    /// Attempts that failed, by the kind of their failure.
    pub failures: Vec<(FailureKind, u64)>,
}

impl Tally {
    /// Takes in a record; `history` is the history after it.
    pub fn record(&mut self, history: &History, record: &Record) {
        self.device_s.raise_to(history.device_time.so_far());
        match record {
            Record::Planned { .. } => self.plans_adopted += 1,
            Record::PlanKept { .. } => self.plans_kept += 1,
            Record::NotSolved { .. } => self.not_solved += 1,
            Record::Launched { purpose, .. } => self.launches[*purpose as usize] += 1,
            Record::Ended { end: AttemptEnd::Failed { failure }, .. } => {
                match self.failures.iter_mut().find(|(kind, _)| *kind == failure.kind) {
                    Some((_, number)) => *number += 1,
                    None => self.failures.push((failure.kind, 1)),
                }
            }
            _ => {}
        }
    }

    /// Seconds of device time by use, up to the last record.
    pub fn device_s(&self) -> impl Iterator<Item = (DeviceUse, f64)> + '_ {
        DeviceUse::ALL.iter().map(|one| (*one, self.device_s.of(*one)))
    }
}

/// What the devices of the pool do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Held by tasks that train.
    pub training: usize,
    /// Held by trials.
    pub measuring: usize,
    /// Usable, and held by nothing.
    pub idle: usize,
    /// Set aside.
    pub set_aside: usize,
}

impl DeviceCounts {
    /// Counts the devices of the nodes that are there.
    pub fn of(state: &State) -> Self {
        let mut counts = Self::default();
        for node in state.present_nodes() {
            let num_devices = state.nodes.get(node.0).map_or(0, |node| node.devices.len());
            for device in (0u32..).take(num_devices) {
                let Some(device) = state.device(DeviceId { node, device }) else { continue };
                let held_by = device.held_by.and_then(|attempt| state.attempts.get(&attempt));
                *match held_by.map(|attempt| attempt.purpose) {
                    Some(Purpose::Train) => &mut counts.training,
                    Some(Purpose::Trial | Purpose::Inspection) => &mut counts.measuring,
                    None if device.set_aside.is_some() => &mut counts.set_aside,
                    None => &mut counts.idle,
                } += 1;
            }
        }
        counts
    }
}

/// What a run is now, in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gauges {
    /// Tasks by stage.
    pub tasks: TaskCounts,
    /// Devices by use.
    pub devices: DeviceCounts,
    /// Seconds to the expected end of all planned tasks; `None` if nothing is planned.
    pub left_s: Option<f64>,
    /// The least seconds that the plan in force can take from now on, as far as its solve has proven;
    /// `None` if nothing is.
    pub bound_left_s: Option<f64>,
}

impl Gauges {
    /// A run at `now_s`.
    pub fn of(state: &State, history: &History, now_s: f64) -> Self {
        let expected = Expected::of(state, history, now_s);
        let left_s = expected.end_s().map(|end_s| (end_s - now_s).max(0.0));
        let plan = state.plan.as_ref().filter(|plan| plan.lower_bound_s > 0.0);
        let bound_left_s = plan.map(|plan| (plan.at_s + plan.lower_bound_s - now_s).max(0.0));
        Self {
            tasks: TaskCounts::of(state),
            devices: DeviceCounts::of(state),
            left_s,
            bound_left_s: bound_left_s.filter(|_| left_s.is_some()),
        }
    }
}
