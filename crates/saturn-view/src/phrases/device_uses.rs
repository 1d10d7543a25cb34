//! Where the time of devices went, in words.

use saturn_core::{Gang, Placement};
use saturn_engine::{Purpose, State, devices};

use crate::facts::device_time::LateDevice;
use crate::facts::device_use::DeviceUse;
use crate::facts::history::History;
use crate::layout::units::{duration, percent};
use crate::phrases::words::some_of;

/// The most uses that a line names; shorter ones are summed up.
const MOST_NAMED: usize = 5;
/// A use that took less than this share of the time is not named.
const LEAST_SHARE: f64 = 0.005;

/// The name of a use in a list of uses.
pub(crate) fn phrase(one: DeviceUse) -> &'static str {
    match one {
        DeviceUse::Trains => "training",
        DeviceUse::Saves => "checkpoints",
        DeviceUse::Launches => "launches",
        DeviceUse::Ends => "ends of processes",
        DeviceUse::Measured => "trials",
        DeviceUse::StartsUp => "start-up",
        DeviceUse::StoodStill => "standstills of the driver",
        DeviceUse::SetAside => "set aside",
        DeviceUse::Stopping => "the run's stop",
        DeviceUse::Kept => "kept for a gang or a move",
        DeviceUse::WaitsHostMemory => "waits for host memory",
        DeviceUse::WaitsPlan => "waits for plans",
        DeviceUse::WaitsTrial => "waits for trials",
        DeviceUse::WaitsInspection => "waits for inspections",
        DeviceUse::PlannedElsewhere => "planned elsewhere",
        DeviceUse::WaitsQuota => "waits for a quota",
        DeviceUse::CouldWiden => "not used to widen",
        DeviceUse::WaitsPredecessor => "waits for other tasks",
        DeviceUse::WaitsTime => "waits for a time",
        DeviceUse::Held => "held tasks",
        DeviceUse::Paused => "paused tasks",
        DeviceUse::NoFit => "no task that fits",
        DeviceUse::AllTrain => "no task that waits",
        DeviceUse::NothingLeft => "no task left",
    }
}

/// `4.0 s trials, 3.2 s launches`; for causes, each with its seconds.
pub(crate) fn seconds(causes: &[(DeviceUse, f64)]) -> String {
    let one =
        |(cause, seconds): &(DeviceUse, f64)| format!("{} {}", duration(*seconds), phrase(*cause));
    causes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `trials 12.0 %, launches 8.1 %, other 1.0 %`: the shares of the uses but training in the time of
/// all devices. Empty if all of it was training.
pub(crate) fn shares(uses: &[(DeviceUse, f64)], all_s: f64) -> String {
    let others = || uses.iter().filter(|(one, _)| *one != DeviceUse::Trains);
    let is_named = |(index, (_, seconds)): &(usize, &(DeviceUse, f64))| {
        *index < MOST_NAMED && *seconds >= LEAST_SHARE * all_s
    };
    let named = || others().enumerate().filter(is_named).map(|(_, one)| one);
    let share = |seconds: f64| percent(seconds / all_s.max(1e-9));
    let mut parts: Vec<String> =
        named().map(|(one, seconds)| format!("{} {}", phrase(*one), share(*seconds))).collect();
    let sum_s = |sum: f64, (_, seconds): &(DeviceUse, f64)| sum + seconds;
    let rest_s = others().fold(0.0, sum_s) - named().fold(0.0, sum_s);
    if rest_s >= LEAST_SHARE * all_s {
        parts.push(format!("other {}", share(rest_s)));
    }
    parts.join(", ")
}

/// What a device did before a task trained on it, with the tasks whose trials it had: `5.1 s start-up,
/// 4.0 s trials (vit-b16, gpt2)`.
pub(crate) fn until_trained(state: &State, history: &History, late: &LateDevice) -> String {
    let has = |cause: DeviceUse| late.causes.iter().any(|(one, _)| *one == cause);
    let trained_s = late.trained_s.unwrap_or(f64::INFINITY);
    let tried = history.attempts.values().filter(|one| {
        // A trial that went on counts as training by now.
        let is_trial = match one.purpose {
            Purpose::Trial => true,
            Purpose::Train => !has(DeviceUse::Launches),
            Purpose::Inspection => false,
        };
        is_trial
            && one.launched_s < trained_s
            && devices(&one.gang).any(|device| device == late.device)
    });
    let mut names: Vec<&str> = Vec::new();
    for one in tried {
        let name = state.name(one.task);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let one = |one: &(DeviceUse, f64)| {
        let text = seconds(std::slice::from_ref(one));
        let is_named = one.0 == DeviceUse::Measured && !names.is_empty();
        if is_named { format!("{text} ({})", some_of(&names)) } else { text }
    };
    late.causes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Devices on which nothing trained for a while at the start: the longest of their waits, the devices
/// that waited for the same causes, and these causes. Longest first.
pub(crate) fn late_devices(state: &State, history: &History) -> Vec<(f64, Gang, String)> {
    let mut all: Vec<(f64, Gang, String)> = Vec::new();
    for late in history.device_time.late() {
        let text = until_trained(state, history, &late);
        let (node, device) = (late.device.node.0, late.device.device);
        if let Some((longest_s, gang, _)) = all.iter_mut().find(|(_, _, other)| *other == text) {
            *longest_s = longest_s.max(late.waited_s());
            match gang.iter_mut().find(|part| part.node == node) {
                Some(part) => part.devices.push(device),
                None => gang.push(Placement { node, devices: vec![device] }),
            }
        } else {
            let gang = vec![Placement { node, devices: vec![device] }];
            all.push((late.waited_s(), gang, text));
        }
    }
    all.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    all
}
