//! What must be looked at because of a record: devices, tasks and timers; and whether the record is
//! a reason to plan. So nothing need be searched for.

use crate::facts::ids::{AttemptId, DeviceId, NodeId, TaskId, devices};
use crate::facts::record::{Purpose, Record};
use crate::ledger::agenda::Agenda;
use crate::ledger::book::Ledger;
use crate::ledger::timers::{Timer, overdue_at_s};

impl Ledger {
    /// What an attempt that is about to end leaves behind: free devices, and a task that may go on.
    pub(crate) fn note_end(&mut self, id: AttemptId) {
        let Some(attempt) = self.state.attempts.get(&id) else { return };
        let task = attempt.task;
        let nodes: Vec<NodeId> = attempt.gang.iter().map(|part| NodeId(part.node)).collect();
        for device in attempt.devices() {
            self.queues.touch(device);
        }
        self.queues.touch_task(&self.state, task);
        if attempt.purpose != Purpose::Train {
            // This trial or inspection may have been the last that could give its group a strategy.
            self.agenda.may_be_hopeless.extend(&self.state.group_of(task).tasks);
        }
        if let Some(key) = self.state.task(task).was_killed.clone() {
            self.was_killed.insert(task, key);
        } else {
            self.was_killed.remove(&task);
        }
        self.agenda.trials_changed = true;
        self.note_host_memory_on(nodes);
        self.note_quotas();
    }

    pub(crate) fn note(&mut self, record: &Record) {
        self.note_for_planning(record);
        match record {
            Record::Launched { attempt, task, purpose, gang, .. } => {
                if *purpose == Purpose::Train {
                    self.agenda.not_waiting.push(*task);
                }
                if let Some(at_s) =
                    self.state.attempts.get(attempt).and_then(|one| overdue_at_s(&self.state, one))
                {
                    self.timers.set(at_s, Timer::Attempt(*attempt));
                }
                for device in devices(gang) {
                    self.queues.touch(device);
                }
            }
            Record::TaskAdded { task, .. } => {
                self.agenda.trials_changed = true;
                self.agenda.may_be_hopeless.insert(*task);
                self.idle.note_without_place(&self.state, *task);
            }
            // The trials of a task that could do nothing have waited.
            Record::TrialsChosen { .. }
            | Record::Unpaused { .. }
            | Record::OwnerCame { .. }
            | Record::Judged { .. } => {
                self.agenda.trials_changed = true;
            }
            // Tasks that waited for wider nodes wait in vain now.
            Record::Closed => self.agenda.may_be_hopeless.extend(&self.state.open_tasks),
            Record::Inspected { group, .. } | Record::Tried { group, .. } => {
                if let Some(group) = self.state.group_by_key.get(group) {
                    self.agenda.may_be_hopeless.extend(&self.state.groups[*group].tasks);
                }
                self.agenda.trials_changed = true;
            }
            Record::Excluded { task, .. } => {
                self.agenda.may_be_hopeless.insert(*task);
                // The task may need another strategy measured.
                self.agenda.trials_changed = true;
            }
            // A task that trains is not asked about: its last strategy may have failed meanwhile.
            Record::Retrying { task, .. } => {
                self.agenda.may_be_hopeless.insert(*task);
                self.idle.note_wait(*task);
            }
            Record::Wished { task, .. } => {
                self.queues.touch_task(&self.state, *task);
                self.idle.note_wait(*task);
            }
            Record::WentOn { attempt, .. } => {
                let task = self.state.attempts.get(attempt).map(|one| one.task);
                self.agenda.not_waiting.extend(task);
            }
            Record::TaskEnded { task, .. } => {
                self.agenda.not_waiting.push(*task);
                self.idle.note_task_end(&self.state, *task);
                self.queues.touch_task(&self.state, *task);
                // The trials of a task that comes after it may have waited for that; and devices or host
                // memory may be kept for a trial that it no longer needs.
                self.agenda.trials_changed = true;
                // The plan counted on a later end, and others may wait for devices elsewhere.
                let is_as_planned = self.state.task(*task).has_all_steps();
                if !is_as_planned && self.state.has_waiting_place() {
                    self.agenda.ask_again();
                }
            }
            // A place ends with the checkpoint of its last step, also while its task still trains
            // elsewhere.
            Record::Checkpointed { attempt, .. } => {
                if let Some(task) = self.state.attempts.get(attempt).map(|one| one.task) {
                    self.queues.touch_task(&self.state, task);
                }
            }
            Record::Shared { .. } => {
                self.agenda.trials_changed = true;
                self.agenda.may_be_hopeless.extend(&self.state.open_tasks);
                self.agenda.ask_again();
                self.note_quotas();
            }
            Record::Planned { .. } => self.note_plan(),
            Record::NodeJoined { .. }
            | Record::NodeLeft { .. }
            | Record::SetAside { .. }
            | Record::TakenBack { .. }
            | Record::Resumed { .. } => {
                self.note_pool(record);
                self.agenda.trials_changed = true;
                // Whether a task can do without these devices depends on the usable breadths, and
                // which trials are wanted on the breadths alone. On a large pool a device more or less
                // changes neither, and no task need be looked at.
                let is_resumed = matches!(record, Record::Resumed { .. });
                let is_narrower = matches!(record, Record::SetAside { .. })
                    && self.agenda.usable_breadths != self.state.usable_breadths;
                if is_resumed || is_narrower || self.agenda.breadths != self.state.breadths {
                    self.agenda.breadths.clone_from(&self.state.breadths);
                    self.agenda.usable_breadths.clone_from(&self.state.usable_breadths);
                    self.agenda.may_be_hopeless.extend(&self.state.open_tasks);
                }
            }
            _ => {}
        }
    }

    /// Devices have become usable, or can't be used any more.
    fn note_pool(&mut self, record: &Record) {
        let nodes = match record {
            Record::NodeJoined { node, .. }
            | Record::NodeLeft { node, .. }
            | Record::SetAside { node, .. }
            | Record::TakenBack { node, .. } => node.0..node.0 + 1,
            _ => 0..self.state.nodes.len(),
        };
        for node in nodes {
            let num_devices = self.state.nodes.get(node).map_or(0, |node| node.devices.len());
            for device in (0u32..).take(num_devices) {
                self.queues.touch(DeviceId { node: NodeId(node), device });
            }
        }
    }

    /// Another plan is in force.
    pub(crate) fn note_plan(&mut self) {
        self.queues.begin(&self.state);
        self.idle.forget_tasks();
        for task in &self.state.open_tasks {
            if !self.state.has_place(*task) {
                self.idle.note_without_place(&self.state, *task);
            }
        }
    }

    /// Notes of which tasks and groups planning must look whether the solver was asked about them as
    /// they are now.
    fn note_for_planning(&mut self, record: &Record) {
        let (state, news) = (&self.state, &mut self.agenda.planning);
        match record {
            Record::Wished { task, .. } | Record::TaskEnded { task, .. } => {
                news.tasks.insert(*task);
            }
            Record::Excluded { task, .. } => {
                news.tasks.insert(*task);
                // Strategies may have been ruled out.
                news.groups.insert(state.task(*task).group);
            }
            Record::TaskAdded { task, spec } => {
                news.tasks.insert(*task);
                news.groups.insert(state.task(*task).group);
                if !spec.measured.is_empty() {
                    news.groups.extend(&state.learns_from);
                }
            }
            Record::Inspected { group, .. }
            | Record::Tried { group, .. }
            | Record::Observed { group, .. } => {
                news.groups.extend(state.group_by_key.get(group));
                news.groups.extend(&state.learns_from);
            }
            Record::NodeJoined { .. } | Record::NodeLeft { .. } => {
                news.groups.extend(0..state.groups.len());
            }
            // It may allow strategies again that were excluded.
            Record::Resumed { .. } => {
                news.tasks.extend(&state.open_tasks);
                news.groups.extend(0..state.groups.len());
            }
            _ => {}
        }
    }

    /// Whether a record may be a reason for another plan. A record that only takes devices or tasks
    /// away concerns the tasks that lose their places by it, and no others.
    pub(crate) fn is_news(&mut self, record: &Record) -> bool {
        match record {
            Record::NodeJoined { node, .. } | Record::TakenBack { node, .. } => {
                // A wide gang may need this node beside the idle one.
                let may_better = !self.has_idle_node_like(*node) || self.state.may_span_nodes();
                if may_better {
                    self.agenda.note_arrival();
                }
                may_better
            }
            // A group no longer waits for trials that now have no room.
            Record::NodeLeft { .. } | Record::SetAside { .. } => !self.state.open_trials.is_empty(),
            Record::TaskEnded { .. } => false,
            _ => true,
        }
    }

    /// Tasks have lost their places, after the first so many that had: other tasks may now be first
    /// on those devices, and these tasks are without a place.
    pub(crate) fn note_closed(&mut self, num_before: usize) {
        for task in self.state.order.closed_since(num_before) {
            self.queues.touch_task(&self.state, *task);
            self.idle.note_without_place(&self.state, *task);
        }
        self.agenda.ask_again();
    }

    /// A task has stopped. If it has no place to go on in, a plan is wanted.
    pub(crate) fn note_stopped(&mut self, task: TaskId) {
        self.agenda.to_end.insert(task);
        // Its training, or its trial, may have shown what a strategy takes.
        self.agenda.planning.groups.insert(self.state.task(task).group);
        if !self.state.has_ended(task) && !self.state.has_place(task) {
            self.agenda.ask_again();
            self.idle.note_without_place(&self.state, task);
        }
    }

    /// Tasks that waited for host memory of these nodes may start: an attempt has ended there, or
    /// memory is kept there for other tasks than before. In a full pool tasks wait on every node, so
    /// the other nodes' devices are not looked at.
    pub(crate) fn note_host_memory_on(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let short = &mut self.agenda.short_of_host_memory;
        for node in nodes {
            let first = DeviceId { node, device: 0 };
            let last = DeviceId { node, device: u32::MAX };
            let there: Vec<DeviceId> = short.range(first..=last).copied().collect();
            for device in there {
                short.remove(&device);
                self.queues.touch(device);
            }
        }
    }

    /// Tasks that waited until their owners hold fewer devices may start: an attempt has ended, or quotas
    /// have changed. For a task that waits for host memory too, none was kept meanwhile.
    fn note_quotas(&mut self) {
        let Agenda { short_of_quota, short_of_host_memory, .. } = &mut self.agenda;
        let mut waiting = std::mem::take(short_of_quota);
        if self.state.has_quotas() {
            waiting.append(short_of_host_memory);
        }
        for device in waiting {
            self.queues.touch(device);
        }
    }

    /// Whether another node of the same type, with as many devices and as much host memory, has no work
    /// in the plan in force at all. Then the plan would have no use for this node either.
    pub(crate) fn has_idle_node_like(&self, node: NodeId) -> bool {
        let state = &self.state;
        let is_idle =
            |device: DeviceId| self.idle.devices.contains(&device) && self.is_at_hand(device);
        let num_devices = state.usable_devices(node).count();
        let host_memory = |node: NodeId| state.host_memory_of(node).unwrap_or(u64::MAX);
        let mut last = None;
        let mut idle = self
            .idle
            .devices
            .iter()
            .map(|device| device.node)
            .filter(|node| last.replace(*node) != Some(*node));
        state.plan.is_some()
            && idle.any(|other| {
                other != node
                    && state.nodes[other.0].is_there
                    && state.gpu_type(other) == state.gpu_type(node)
                    && state
                        .usable_devices(other)
                        .all(|device| is_idle(DeviceId { node: other, device }))
                    && state.usable_devices(other).count() >= num_devices
                    && host_memory(other) >= host_memory(node)
            })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use saturn_core::{Knobs, Node, Placement, Strategy};

    use super::*;
    use crate::facts::config::{Allowed, DeviceKind, Mode, Policy, RunConfig, TaskSpec, Wishes};
    use crate::facts::record::AttemptEnd;
    use crate::state::run::State;

    const NODES: usize = 3;
    const GPUS: u32 = 2;

    /// A task that trains on one device of the middle one of three nodes. On every device a task
    /// waits for host memory.
    fn full_pool() -> Ledger {
        let config = RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cpu,
            device_memory_bytes: None,
            techniques: Vec::new(),
            policy: Policy::default(),
        };
        let mut ledger = Ledger::of(State::new(config));
        for node in 0..NODES {
            let spec = Node::new(format!("n{node}"), GPUS, "cpu");
            let node = NodeId(node);
            ledger.commit(Record::NodeJoined { node, spec, host_memory_bytes: None }, 0.0);
        }
        let spec = TaskSpec {
            name: "a".to_owned(),
            dir: "tasks/a".to_owned(),
            steps: Some(9),
            epochs: None,
            batches_a_step: NonZeroU64::MIN,
            can_resume: true,
            gpu_range: None,
            allowed: Allowed::default(),
            profile_key: "a".to_owned(),
            measured: Vec::new(),
            wishes: Wishes::default(),
            evaluation: None,
            parameters: Knobs::new(),
            goal: None,
            is_rest: false,
            start_step: 0,
            owner: None,
        };
        ledger.commit(Record::TaskAdded { task: TaskId(0), spec }, 0.0);
        let strategy = Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() };
        let gang = vec![Placement { node: 1, devices: vec![0] }];
        ledger.launch(TaskId(0), Purpose::Train, strategy, (gang, None), 1.0);
        ledger.agenda.short_of_host_memory.extend(all_devices());
        while ledger.queues.take_changed().is_some() {}
        ledger
    }

    fn all_devices() -> impl Iterator<Item = DeviceId> {
        let devices = (0..NODES).flat_map(|node| (0..GPUS).map(move |device| (node, device)));
        devices.map(|(node, device)| DeviceId { node: NodeId(node), device })
    }

    #[test]
    fn an_end_has_the_devices_of_its_own_node_looked_at_and_no_others() {
        let mut ledger = full_pool();
        let attempt = *ledger.state.attempts.keys().next().expect("it trains");
        let end = AttemptEnd::Stopped;
        ledger.commit(Record::Ended { attempt, end, step: 0, step_s: None }, 2.0);
        let looked_at: Vec<DeviceId> =
            std::iter::from_fn(|| ledger.queues.take_changed()).collect();
        let is_there = |device: &DeviceId| device.node == NodeId(1);
        assert_eq!(looked_at, all_devices().filter(is_there).collect::<Vec<_>>());
        let waits_on: Vec<DeviceId> = ledger.agenda.short_of_host_memory.into_iter().collect();
        assert_eq!(waits_on, all_devices().filter(|one| !is_there(one)).collect::<Vec<_>>());
    }
}
