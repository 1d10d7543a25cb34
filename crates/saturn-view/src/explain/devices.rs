//! Where the time of a run's devices went, and why some began to train late.

use saturn_engine::{DeviceId, State};

use crate::explain::code::Code;
use crate::explain::reason::Reason;
use crate::facts::device_use::DeviceUse;
use crate::facts::history::History;
use crate::layout::units::{count, duration, percent};
use crate::phrases::device_uses::{late_devices, shares};
use crate::phrases::words;

/// How many groups of devices that began late are told; the report has all.
const MOST_GROUPS: usize = 4;

/// The reasons of a run in which something has trained.
pub(super) fn of_run(state: &State, history: &History) -> Vec<Reason> {
    let spent = history.device_time.spent(state);
    let (all_s, trains_s) = (spent.sum(), spent.of(DeviceUse::Trains));
    if trains_s <= 0.0 {
        return Vec::new();
    }
    let others = shares(&spent.longest_first(), all_s);
    let others = if others.is_empty() { others } else { format!("; {others}") };
    let missed_s = DeviceUse::ALL.iter().filter(|one| one.is_missed());
    let missed_s = missed_s.fold(0.0, |sum, one| sum + spent.of(*one));
    let text = format!(
        "The devices trained {} of their time, {} together{others}. They stood idle while a task could have \
         trained there, or wider: {}.",
        percent(trains_s / all_s),
        duration(all_s),
        percent(missed_s / all_s),
    );
    let mut reasons = vec![Reason::new(Code::DeviceTime, text)];
    reasons.extend(late(state, history));
    reasons
}

fn late(state: &State, history: &History) -> Vec<Reason> {
    let groups = late_devices(state, history);
    let mut reasons = Vec::new();
    for (waited_s, gang, causes) in groups.iter().take(MOST_GROUPS) {
        let on = words::on_devices(&state.cluster, gang);
        let first = gang.first().and_then(|part| {
            Some(DeviceId {
                node: saturn_engine::NodeId(part.node),
                device: *part.devices.first()?,
            })
        });
        let late = first.and_then(|device| history.device_time.late_device(device));
        let until = match late.and_then(|late| late.trained_s) {
            Some(_) => format!("for {} at the start", duration(*waited_s)),
            None => format!("in {}", duration(*waited_s)),
        };
        let text = format!("No task trained on {on} {until}: {causes}.");
        reasons.push(Reason::new(Code::DeviceLate, text));
    }
    let more: usize = groups.iter().skip(MOST_GROUPS).map(|(_, gang, _)| num(gang)).sum();
    if more > 0 {
        let text =
            format!("{} began to train late, too; the report has all.", count(more, "more device"));
        reasons.push(Reason::new(Code::DeviceLate, text));
    }
    reasons
}

fn num(gang: &saturn_core::Gang) -> usize {
    gang.iter().map(|part| part.devices.len()).sum()
}
