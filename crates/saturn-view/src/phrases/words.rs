//! Phrases that several views share: strategies, devices, outcomes, statuses.
//!
//! These functions escape text from users, so that their results are safe to print.

use saturn_core::names::escape_terminal;
use saturn_core::{Cluster, Gang, Node, PlanStatus, Strategy, TrialOutcome, WHOLE};
use saturn_engine::{DeviceKind, Evaluation, FailureKind, State};

use crate::layout::units::{bytes, number, percent, step_time};

/// The most metrics of an evaluation in a line.
const MAX_METRICS: usize = 4;
/// How the time of current practice is known if not all of its strategies are measured.
pub(crate) const PRACTICE_ESTIMATE: &str =
    "by an estimate of a strategy that nobody has measured, which may be far off";

/// `accuracy 0.83, eval_loss 0.51`; an unknown value is `–`.
pub fn metrics(evaluation: &Evaluation) -> String {
    let told =
        evaluation.metrics.iter().take(MAX_METRICS).map(|(name, value)| metric(name, *value));
    let more = if evaluation.metrics.len() > MAX_METRICS { ", …" } else { "" };
    told.collect::<Vec<_>>().join(", ") + more
}

/// `eval_loss 0.51`; an unknown value is `–`.
pub fn metric(name: &str, value: Option<f64>) -> String {
    let value = value.map_or_else(|| "–".to_owned(), number);
    format!("{} {value}", escape_terminal(name))
}

/// `ddp × 2`.
pub fn strategy(strategy: &Strategy) -> String {
    technique_on(&strategy.technique, strategy.gpus)
}

/// `ddp × 2`, from a technique and a number of devices.
pub fn technique_on(technique: &str, gpus: u32) -> String {
    format!("{} × {gpus}", escape_terminal(technique))
}

/// `fsdp × 2`, or `fsdp × 2, 38 %` if only that share of a task's work runs under this strategy.
pub fn with_share(strategy: &str, share: f64) -> String {
    if share < WHOLE { format!("{strategy}, {}", percent(share)) } else { strategy.to_owned() }
}

/// Device ids with ranges shortened: `0, 2-5`. On several nodes with the nodes' names: `n0: 0-7;
/// n1: 0, 1`. On many nodes their number: `32 on 4 nodes (n0, n1 and 2 more)`.
pub fn devices(cluster: &Cluster, gang: &Gang) -> String {
    let name = |node: usize| cluster.nodes.get(node).map_or("?", |node| node.name.as_str());
    if gang.len() > MAX_NODES {
        return format!(
            "{} {}",
            num_devices(gang),
            on_nodes(gang.iter().map(|one| name(one.node)))
        );
    }
    let parts: Vec<String> = gang
        .iter()
        .map(|placement| {
            let ids = id_ranges(&placement.devices);
            if cluster.nodes.len() == 1 {
                return ids;
            }
            format!("{}: {ids}", escape_terminal(name(placement.node)))
        })
        .collect();
    parts.join("; ")
}

/// `device 1`, `devices 0, 1`, `32 devices on 4 nodes (n0, n1 and 2 more)`.
pub fn on_devices(cluster: &Cluster, gang: &Gang) -> String {
    let num_devices = num_devices(gang);
    if gang.len() > MAX_NODES {
        let devices = devices(cluster, gang);
        return devices.replacen(' ', " devices ", 1);
    }
    let noun = if num_devices == 1 { "device" } else { "devices" };
    format!("{noun} {}", devices(cluster, gang))
}

fn num_devices(gang: &Gang) -> usize {
    gang.iter().map(|placement| placement.devices.len()).sum()
}

/// The most nodes that are named one by one.
pub(crate) const MAX_NODES: usize = 3;

/// `on 4 nodes (n0, n1 and 2 more)`.
pub(crate) fn on_nodes<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    format!("on {} nodes ({})", names.len(), some_of(&names))
}

/// `n0, n1 and 2 more`.
pub(crate) fn some_of(names: &[&str]) -> String {
    let most = if names.len() > MAX_NODES { MAX_NODES - 1 } else { MAX_NODES };
    listed(&names.iter().map(|name| escape_terminal(name)).collect::<Vec<_>>(), most)
}

/// `a, b, c and 9 more`: the first `most` names of a list.
pub(crate) fn listed(names: &[impl AsRef<str>], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        number => format!("{} and {number} more", shown.join(", ")),
    }
}

/// All devices of a gang as (node, device) pairs.
pub(crate) fn gang_devices(gang: &Gang) -> Vec<(usize, u32)> {
    saturn_engine::devices(gang).map(|device| (device.node.0, device.device)).collect()
}

/// Ids with ranges shortened: `0, 2-5`.
pub(crate) fn id_ranges(ids: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &id in ids {
        match ranges.last_mut() {
            Some((_, last)) if id == last.saturating_add(1) => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    let texts: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    texts.join(", ")
}

/// The kind of a run's devices: `GPUs`, `CPU slots`.
pub fn device_kind(kind: DeviceKind, count: u32) -> &'static str {
    match (kind, count) {
        (DeviceKind::Cpu, 1) => "CPU slot",
        (DeviceKind::Cpu, _) => "CPU slots",
        (DeviceKind::Cuda, 1) => "GPU",
        (DeviceKind::Cuda, _) => "GPUs",
    }
}

/// A pool and the memory of its devices: `4 CPU slots`, `2 GPUs of 80.0 GB each`.
pub fn pool(kind: DeviceKind, count: u32, memory_bytes: Option<u64>) -> String {
    let each = if count == 1 { "" } else { " each" };
    let memory = memory_bytes.map_or_else(String::new, |size| format!(" of {}{each}", bytes(size)));
    format!("{count} {}{memory}", device_kind(kind, count))
}

/// The usable devices of a run: `12 GPUs of 80.0 GB each (4 A100, 8 H100)`. Types are given if
/// there are several.
pub fn pool_of(state: &State) -> String {
    let mut types: Vec<(&str, usize)> = Vec::new();
    for node in state.present_nodes() {
        let number = state.usable_devices(node).count();
        let gpu_type = state.gpu_type(node);
        match types.iter_mut().find(|(known, _)| *known == gpu_type) {
            Some((_, sum)) => *sum += number,
            None => types.push((gpu_type, number)),
        }
    }
    let number = u32::try_from(types.iter().map(|(_, number)| number).sum::<usize>());
    let config = &state.config;
    let pool = pool(config.device_kind, number.unwrap_or(u32::MAX), config.device_memory_bytes);
    if types.len() < 2 {
        return pool;
    }
    let types: Vec<String> = types
        .iter()
        .map(|(gpu_type, number)| format!("{number} {}", escape_terminal(gpu_type)))
        .collect();
    format!("{pool} ({})", types.join(", "))
}

/// The devices of a node: `4 GPUs (A100)`.
pub fn devices_of(kind: DeviceKind, node: &Node) -> String {
    let devices = device_kind(kind, node.gpus);
    match kind {
        DeviceKind::Cpu => format!("{} {devices}", node.gpus),
        DeviceKind::Cuda => {
            format!("{} {devices} ({})", node.gpus, escape_terminal(&node.gpu_type))
        }
    }
}

/// ` on A100`, if the run has had devices of several types.
pub fn on_type(state: &State, gpu_type: &str) -> String {
    let is_other = |node: &Node| node.gpu_type != gpu_type;
    if state.cluster.nodes.iter().any(is_other) {
        format!(" on {}", escape_terminal(gpu_type))
    } else {
        String::new()
    }
}

/// A trial's outcome on one line.
pub fn outcome(outcome: &TrialOutcome) -> String {
    match outcome {
        TrialOutcome::Measured { step_s, peak_memory_bytes, .. } => {
            format!("{}, {}", step_time(*step_s), bytes(*peak_memory_bytes))
        }
        TrialOutcome::NotApplicable { reason } => {
            format!("can't run: not applicable: {}", first_line(reason))
        }
        TrialOutcome::OutOfMemory { detail } => {
            format!("can't run: out of memory: {}", first_line(detail))
        }
        TrialOutcome::Failed { error, .. } => format!("can't run: failed: {}", first_line(error)),
    }
}

/// What the solver proved of a plan. The proof rests on measured or estimated times.
pub fn plan_status(status: PlanStatus) -> &'static str {
    match status {
        PlanStatus::Optimal => "proven optimal by these estimates",
        PlanStatus::Feasible => "not proven optimal",
        PlanStatus::Infeasible => "infeasible",
        PlanStatus::TimedOut => "timed out without a plan",
    }
}

/// A kind of failure in words.
pub fn failure_kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Task => "the task's own code",
        FailureKind::Certain => "it would fail again",
        FailureKind::OutOfMemory => "out of memory",
        FailureKind::PeerLost => "another rank went away",
        FailureKind::NotApplicable => "not applicable",
        FailureKind::Died => "the process died",
        FailureKind::Killed => "killed",
        FailureKind::HostMemory => "out of host memory",
        FailureKind::Machine => "not the task's fault",
        FailureKind::Saturn => "one of Saturn's own processes",
        FailureKind::SaturnRepeated => "Saturn's own processes, again and again",
        FailureKind::Stalled => "hung",
        FailureKind::NoSpace => "no space on the disk",
        FailureKind::Error => "error",
    }
}

/// A person who has submitted tasks, by name.
pub(crate) fn person(state: &State, uid: u32) -> String {
    state.guest_login(uid).map_or_else(|| format!("person {uid}"), escape_terminal)
}

/// The first line of foreign text that is not blank, safe to print.
pub fn first_line(text: &str) -> String {
    escape_terminal(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or(""))
}

/// A path quoted for a shell.
pub fn shell_quoted(path: &str) -> String {
    let is_plain = !path.is_empty()
        && path.chars().all(|one| one.is_ascii_alphanumeric() || "_-./=+:@,%".contains(one));
    if is_plain { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// The command that continues a run: on a cluster again if it was on one. `shown` is the run as a
/// shell reads it.
pub fn resume_command(state: &State, shown: &str) -> String {
    // The journal knows no address; `auto` finds the cluster of the machine that drives the run.
    let place = if state.config.policy.pool_may_grow { " --cluster auto" } else { "" };
    format!("saturn resume {shown}{place}")
}

#[cfg(test)]
mod tests {
    use saturn_core::{Node, Placement};
    use saturn_engine::{Mode, Policy, RunConfig};

    use super::*;

    fn cluster(nodes: &[(&str, u32)]) -> Cluster {
        let node = |(name, gpus): &(&str, u32)| Node::new(*name, *gpus, "gpu");
        Cluster { nodes: nodes.iter().map(node).collect() }
    }

    #[test]
    fn device_ids_are_shortened_and_named_by_node() {
        let gang = vec![Placement { node: 0, devices: vec![0, 2, 3, 5, 6, 7] }];
        assert_eq!(devices(&cluster(&[("n0", 8)]), &gang), "0, 2, 3, 5-7");
        let two = cluster(&[("a", 8), ("b", 8)]);
        let wide = vec![
            Placement { node: 0, devices: (0..8).collect() },
            Placement { node: 1, devices: vec![0] },
        ];
        assert_eq!(on_devices(&two, &wide), "devices a: 0-7; b: 0");
        let names = (0..16).map(|node| Node::new(format!("n{node}"), 8, "A100"));
        let many = Cluster { nodes: names.collect() };
        let whole = |node| Placement { node, devices: (0..8).collect() };
        let gang: Gang = (0..16).map(whole).collect();
        assert_eq!(devices(&many, &gang), "128 on 16 nodes (n0, n1 and 14 more)");
        assert_eq!(on_devices(&many, &gang), "128 devices on 16 nodes (n0, n1 and 14 more)");
    }

    #[test]
    fn a_pool_says_what_each_device_may_hold() {
        assert_eq!(pool(DeviceKind::Cpu, 4, None), "4 CPU slots");
        assert_eq!(pool(DeviceKind::Cpu, 2, Some(600_000_000)), "2 CPU slots of 600 MB each");
        assert_eq!(pool(DeviceKind::Cuda, 1, Some(80_000_000_000)), "1 GPU of 80.0 GB");
    }

    #[test]
    fn a_run_of_a_cluster_is_resumed_on_a_cluster() {
        let policy = |pool_may_grow| Policy { pool_may_grow, ..Policy::default() };
        let command = |pool_may_grow| {
            let config = RunConfig {
                mode: Mode::Orchestrate,
                device_kind: DeviceKind::Cpu,
                device_memory_bytes: None,
                techniques: Vec::new(),
                policy: policy(pool_may_grow),
            };
            resume_command(&State::new(config), "it")
        };
        assert_eq!(command(false), "saturn resume it");
        assert_eq!(command(true), "saturn resume it --cluster auto");
    }

    #[test]
    fn resume_commands_survive_a_shell() {
        assert_eq!(shell_quoted("/runs/a-1"), "/runs/a-1");
        assert_eq!(shell_quoted("/my runs/it's"), r"'/my runs/it'\''s'");
        assert_eq!(shell_quoted(""), "''");
    }
}
