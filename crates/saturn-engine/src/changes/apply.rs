//! How each record changes the state.
//!
//! [`State::apply`] is the only way in which a run's durable state changes. It never fails: a record
//! that names something unknown (a damaged journal) changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use saturn_core::{Node, Strategy, StrategyKey};

use crate::changes::trials::batches_per_epoch;
use crate::facts::config::{Machines, TaskSpec, Wishes};
use crate::facts::event::FailureKind;
use crate::facts::ids::{AttemptId, DeviceId, NodeId, TaskId};
use crate::facts::record::{AttemptEnd, Purpose, Record, RunEnd, TaskEnd};
use crate::knowledge::durations::{Lesson, Warm};
use crate::state::group::{Group, InspectionState};
use crate::state::order::Order;
use crate::state::run::{Attempt, DeviceState, NodeState, State, TaskState, TaskStatus};

/// No machine has more: a record that says so is damaged.
const MAX_DEVICES: u32 = 1 << 20;

impl State {
    /// Applies a record that was made at `now_s`.
    pub fn apply(&mut self, record: &Record, now_s: f64) {
        self.now_s = self.now_s.max(now_s);
        match record {
            Record::Began { .. }
            | Record::PlanKept { .. }
            | Record::NotSolved { .. }
            | Record::DriverStarted { .. }
            | Record::Noted { .. } => {}
            Record::Resumed { device_memory_bytes, machines } => {
                self.apply_resumed(*device_memory_bytes, *machines);
            }
            Record::NodeJoined { node, spec } => self.apply_joined(*node, spec),
            Record::NodeLeft { node, .. } => self.apply_left(*node),
            Record::SetAside { node, devices, reason, absolved } => {
                self.apply_set_aside(*node, devices, reason, absolved);
            }
            Record::TakenBack { node, devices, .. } => {
                self.with_devices(*node, devices, |device| {
                    device.set_aside = None;
                    device.suspects.clear();
                });
                self.version += 1;
            }
            Record::TaskAdded { task, spec } => self.apply_added(*task, spec, now_s),
            Record::Closed => self.is_closed = true,
            Record::Wished { task, wishes } => {
                let wishes = self.known_wishes(wishes);
                self.with_task(*task, |task| task.spec.wishes = wishes);
                self.note_followers(*task);
            }
            Record::Paused { task } => {
                self.with_task(*task, |task| task.is_paused = true);
            }
            Record::Unpaused { task } => self.with_task(*task, |task| task.is_paused = false),
            Record::Judged { task, judgement } => self.apply_judged(*task, judgement),
            Record::Launched { .. } => self.apply_launch(record, now_s),
            Record::Started { attempt, step, setup_s } => {
                self.apply_started(*attempt, *step, *setup_s, now_s);
            }
            Record::Checkpointed { attempt, step, save_s, blocked_s, loss } => {
                self.apply_checkpoint(*attempt, (*step, *loss), (*save_s, *blocked_s), now_s);
            }
            Record::Evaluated { attempt, evaluation, best, evaluation_s } => {
                self.apply_evaluated(*attempt, evaluation, best.as_ref(), *evaluation_s, now_s);
            }
            Record::Inspected { group, inspection } => self.apply_inspected(group, inspection),
            Record::Tried { group, gpu_type, strategy, outcome } => {
                self.apply_tried(group, gpu_type, strategy, outcome);
            }
            Record::WentOn { attempt, step } => self.apply_went_on(*attempt, *step, now_s),
            Record::TrialsChosen { trials, .. } => self.apply_chosen(trials),
            Record::Observed { group, gpu_type, strategy, step_s } => {
                self.apply_observed(group, gpu_type, strategy, *step_s);
            }
            Record::Clocked { attempt, trained } => self.apply_clocked(*attempt, *trained),
            Record::Planned { plan } => {
                let mut plan = plan.clone();
                if plan.places.iter().any(|place| place.task.0 >= self.tasks.len()) {
                    let places = &mut Arc::make_mut(&mut plan).places;
                    places.retain(|place| place.task.0 < self.tasks.len());
                }
                self.order = Order::of(self, &plan);
                self.plan = Some(plan);
                self.num_plans += 1;
            }
            Record::Stopping { attempt, reason } => {
                if let Some(state) = self.attempts.get_mut(attempt) {
                    state.stopping = Some((*reason, now_s));
                }
            }
            Record::Until { attempt, step } => {
                if let Some(state) = self.attempts.get_mut(attempt) {
                    state.until_step = *step;
                }
            }
            Record::Ended { attempt, end, step, step_s } => {
                self.apply_end(*attempt, end, *step, (*step_s, now_s));
            }
            Record::Retrying { task, not_before_s, counts } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.failures += u32::from(*counts);
                    task.not_before_s = *not_before_s;
                }
            }
            Record::Excluded { task, key, reason } => {
                self.with_task(*task, |task| task.excluded.push((key.clone(), reason.clone())));
                if task.0 < self.tasks.len() {
                    self.want_trials_for(*task);
                }
            }
            Record::TaskEnded { task, end } => self.apply_task_end(*task, end),
            Record::Interrupted { at_once } => self.interrupted = Some(*at_once),
            Record::RunEnded { end } => self.ended = Some(*end),
        }
    }

    /// A change of a task on which plans rest.
    pub(crate) fn with_task(&mut self, id: TaskId, change: impl FnOnce(&mut TaskState)) {
        if let Some(task) = self.tasks.get_mut(id.0) {
            change(task);
            self.version += 1;
            self.close_places_of([id]);
        }
    }

    fn note_followers(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id.0) else { return };
        for before in &task.spec.wishes.after {
            self.followers.entry(*before).or_default().insert(id);
        }
    }

    /// The numbers of a node's devices.
    fn device_numbers(&self, node: NodeId) -> impl Iterator<Item = u32> + use<> {
        let num_devices = self.nodes.get(node.0).map_or(0, |node| node.devices.len());
        (0u32..).take(num_devices)
    }

    fn with_devices(
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
        self.learn_usable_breadths();
    }

    fn apply_resumed(&mut self, device_memory_bytes: Option<u64>, machines: Option<Machines>) {
        self.limit_device_memory(device_memory_bytes);
        if let Some(Machines { device_kind, host_memory_bytes, pool_may_grow }) = machines {
            self.config.device_kind = device_kind;
            self.config.policy.host_memory_bytes = host_memory_bytes;
            self.config.policy.pool_may_grow = pool_may_grow;
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
        // Another process may find devices well that this one's predecessor did not.
        for device in self.nodes.iter_mut().flat_map(|node| &mut node.devices) {
            *device = DeviceState::default();
        }
        self.learn_usable_breadths();
        for task in self.task_ids() {
            self.want_trials_for(task);
        }
        // What the machines were large enough for may be too large for these.
        self.close_places_of(self.task_ids());
        self.version += 1;
    }

    fn apply_set_aside(
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
        for task in absolved {
            if let Some(task) = self.tasks.get_mut(task.0) {
                task.failures = 0;
            }
        }
        self.version += 1;
        self.close_places_on(node, devices.iter().copied());
    }

    fn apply_joined(&mut self, id: NodeId, spec: &Node) {
        if id.0 > self.nodes.len() || spec.gpus > MAX_DEVICES {
            return;
        }
        // It may come back with fewer than it had.
        let devices_before = self.device_numbers(id);
        let devices = vec![DeviceState::default(); spec.gpus as usize];
        let state = NodeState { is_there: true, devices };
        if id.0 == self.nodes.len() {
            self.cluster.nodes.push(spec.clone());
            self.nodes.push(state);
        } else {
            self.cluster.nodes[id.0] = spec.clone();
            self.nodes[id.0] = state;
        }
        self.version += 1;
        self.close_places_on(id, devices_before);
        self.want_trials_of_pool();
    }

    fn apply_left(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.0) else { return };
        node.is_there = false;
        // Whatever comes back is free, though ranks on other nodes are still to end.
        for (number, attempt) in &mut self.attempts {
            if attempt.gang.len() > 1 && attempt.gang.iter().any(|part| part.node == id.0) {
                attempt.gang.retain(|part| part.node != id.0);
                attempt.is_lost = true;
                for device in &mut node.devices {
                    device.held_by = device.held_by.filter(|holder| holder != number);
                }
            }
        }
        let devices = self.device_numbers(id);
        self.version += 1;
        self.close_places_on(id, devices);
        self.want_trials_of_pool();
    }

    fn apply_added(&mut self, id: TaskId, spec: &TaskSpec, now_s: f64) {
        if id.0 != self.tasks.len() {
            return;
        }
        let next = self.groups.len();
        let group = *self.group_by_key.entry(spec.profile_key.clone()).or_insert(next);
        if group == next {
            self.groups.push(Group {
                key: spec.profile_key.clone(),
                tasks: Vec::new(),
                num_open: 0,
                inspection: InspectionState::default(),
                trials: std::collections::BTreeMap::new(),
                chosen: BTreeSet::new(),
                no_space: None,
                lesson: Lesson::default(),
            });
        }
        let wishes = self.known_wishes(&spec.wishes);
        self.groups[group].tasks.push(id);
        self.groups[group].num_open += 1;
        self.open_tasks.insert(id);
        self.task_by_name.insert(spec.name.clone(), id);
        self.tasks.push(TaskState {
            spec: TaskSpec { measured: Vec::new(), wishes, ..spec.clone() },
            group,
            status: TaskStatus::Waiting,
            is_paused: false,
            judged: None,
            is_let_go_on: false,
            added_s: now_s,
            steps: spec.steps,
            step: spec.start_step,
            checkpoint_step: spec.start_step,
            loss: None,
            checkpoint_loss: None,
            failures: 0,
            not_before_s: 0.0,
            no_space: None,
            excluded: Vec::new(),
            save_s: None,
            blocked_s: 0.0,
            evaluation: None,
            best: None,
            evaluating_s: 0.0,
            num_attempts: 0,
            trained_until_s: 0.0,
            was_killed: None,
        });
        self.note_followers(id);
        self.version += 1;
        self.take_over_measured(group, spec);
        if !spec.measured.is_empty() {
            self.learn(group);
        }
        self.want_trials_for(id);
        // What the group's inspection and trials have found holds for it too.
        let Group { inspection, trials, .. } = &self.groups[group];
        let inspected = inspection.found.as_ref().and_then(|found| found.batches_per_epoch);
        let mut outcomes = trials.values().filter_map(|one| one.outcome.as_ref());
        if let Some(batches) = inspected.or_else(|| outcomes.find_map(batches_per_epoch)) {
            self.tasks[id.0].learn_steps(batches);
        }
    }

    /// Wishes without tasks that there are not.
    fn known_wishes(&self, wishes: &Wishes) -> Wishes {
        let mut wishes = wishes.clone();
        wishes.after.retain(|task| task.0 < self.tasks.len());
        wishes
    }

    fn apply_launch(&mut self, launched: &Record, now_s: f64) {
        let Record::Launched { attempt: id, task, purpose, strategy, gang, until_step } = launched
        else {
            return;
        };
        let Some(task_state) = self.tasks.get_mut(task.0) else { return };
        let step = task_state.checkpoint_step;
        if *purpose == Purpose::Train && !matches!(task_state.status, TaskStatus::Ended(_)) {
            task_state.status = TaskStatus::Running(*id);
            task_state.num_attempts += 1;
            task_state.is_let_go_on = false;
        }
        self.next_attempt = self.next_attempt.max(id.0 + 1);
        let attempt = Attempt {
            task: *task,
            purpose: *purpose,
            strategy: Arc::new(strategy.clone()),
            gang: gang.clone(),
            until_step: *until_step,
            launched_s: now_s,
            started: None,
            warm: None,
            recorded: None,
            stopping: None,
            step,
            stepped_s: now_s,
            step_s: None,
            blocked_s: 0.0,
            saved_step: None,
            heard_s: now_s,
            live_ranks: self.config.num_ranks(strategy),
            failure: None,
            failed_ranks: BTreeSet::new(),
            echo_s: None,
            killed_s: None,
            is_lost: false,
            completed: false,
            says_trained: false,
        };
        match purpose {
            Purpose::Inspection => self.apply_inspecting(*id, *task),
            Purpose::Trial => {
                self.with_trial(&attempt, |trial| trial.attempt = Some(*id));
                let group = self.tasks[task.0].group;
                let gpu_type = self.gang_type(gang).to_owned();
                self.close_trial(group, &strategy.key(), &gpu_type);
                self.groups[group].no_space = None;
            }
            Purpose::Train => self.tasks[task.0].no_space = None,
        }
        self.hold(&attempt, Some(*id));
        self.attempts.insert(*id, attempt);
    }

    /// Notes who holds the devices of an attempt.
    fn hold(&mut self, attempt: &Attempt, holder: Option<AttemptId>) {
        for DeviceId { node, device } in attempt.devices() {
            self.with_devices(node, &[device], |device| device.held_by = holder);
        }
    }

    fn apply_started(&mut self, id: AttemptId, step: u64, setup_s: f64, now_s: f64) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.started = Some((step, now_s));
        attempt.step = step;
        attempt.stepped_s = now_s;
        if attempt.purpose != Purpose::Train {
            return;
        }
        let attempt = attempt.clone();
        if let Some(task) = self.tasks.get_mut(attempt.task.0) {
            task.stands_at(step);
            task.checkpoint_step = step;
        }
        if step > 0 {
            self.with_trial(&attempt, |trial| trial.trained_load_s = Some(setup_s));
        }
    }

    fn apply_checkpoint(
        &mut self,
        id: AttemptId,
        (step, loss): (u64, Option<f64>),
        (save_s, blocked_s): (f64, f64),
        now_s: f64,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.blocked_s += blocked_s;
        attempt.saved_step = Some(step);
        if step >= attempt.step {
            attempt.step = step;
            attempt.stepped_s = now_s;
        }
        let Some(task) = self.tasks.get_mut(attempt.task.0) else { return };
        if step > task.checkpoint_step {
            task.failures = 0;
            task.was_killed = None;
        }
        (task.checkpoint_step, task.checkpoint_loss) = (step, loss);
        if step >= task.step {
            (task.step, task.loss) = (step, loss.or(task.loss));
        }
        task.blocked_s += blocked_s;
        // One in the background takes longer than it costs.
        if blocked_s >= save_s {
            task.save_s = Some(save_s);
        }
    }

    fn apply_end(
        &mut self,
        id: AttemptId,
        end: &AttemptEnd,
        step: u64,
        (step_s, now_s): (Option<f64>, f64),
    ) {
        let Some(attempt) = self.attempts.remove(&id) else { return };
        self.hold(&attempt, None);
        self.judge_devices(&attempt, end);
        self.apply_space(&attempt, end, now_s);
        self.num_lost += u32::from(match end {
            AttemptEnd::Failed { failure } => {
                failure.kind.may_be_machines_fault() || failure.kind == FailureKind::Saturn
            }
            AttemptEnd::Lost => true,
            AttemptEnd::Finished
            | AttemptEnd::Stopped
            | AttemptEnd::Killed
            | AttemptEnd::Abandoned => false,
        });
        let has_failed = matches!(
            end,
            AttemptEnd::Failed { failure } if failure.kind != FailureKind::Saturn
        );
        if attempt.purpose == Purpose::Inspection {
            return self.apply_inspection_end(attempt.task, has_failed);
        }
        if attempt.purpose == Purpose::Trial {
            let took_s = (now_s - attempt.launched_s).max(0.0);
            self.trials_s += took_s * f64::from(attempt.strategy.gpus);
            self.with_trial(&attempt, |trial| {
                trial.attempt = None;
                trial.failures += u32::from(has_failed);
            });
            // Without an outcome it is open again.
            self.want_trials_for(attempt.task);
            // What waited for it to end can be planned: its outcome may have come before its end.
            self.version += 1;
            return;
        }
        if let Some(step_s) = step_s {
            self.with_trial(&attempt, |trial| trial.trained_step_s = Some(step_s));
        }
        let Some(task) = self.tasks.get_mut(attempt.task.0) else { return };
        if task.status == TaskStatus::Running(id) {
            task.status = TaskStatus::Waiting;
        }
        task.stands_at(step);
        task.trained_until_s = now_s;
        task.was_killed = None;
        if matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped) {
            task.checkpoint_step = step;
        } else if let AttemptEnd::Failed { failure } = end
            && matches!(failure.kind, FailureKind::Killed | FailureKind::HostMemory)
            && attempt.saved_step.is_none()
        {
            task.was_killed = Some(attempt.strategy.key());
        }
        // While it trained, it was no matter whether its place was before what it must come after.
        self.close_places_of([attempt.task]);
    }

    /// Keeps in mind on which devices tasks failed as a machine's fault makes them fail.
    fn judge_devices(&mut self, attempt: &Attempt, end: &AttemptEnd) {
        let (is_fault, did_well) = match end {
            AttemptEnd::Failed { failure } => (failure.kind.may_be_machines_fault(), false),
            AttemptEnd::Finished | AttemptEnd::Stopped => (false, true),
            AttemptEnd::Killed | AttemptEnd::Lost | AttemptEnd::Abandoned => (false, false),
        };
        let task = attempt.task;
        for DeviceId { node, device } in attempt.devices() {
            self.with_devices(node, &[device], |device| {
                if is_fault {
                    device.suspects.push(task);
                } else if did_well {
                    device.suspects.clear();
                }
            });
        }
    }

    fn apply_task_end(&mut self, id: TaskId, end: &TaskEnd) {
        let Some(task) = self.tasks.get_mut(id.0) else { return };
        if matches!(task.status, TaskStatus::Ended(_)) {
            return;
        }
        task.status = TaskStatus::Ended(end.clone());
        task.excluded = Vec::new();
        if let TaskEnd::Done { loss } = end {
            task.loss = loss.or(task.loss);
        }
        let has_all_steps = task.steps.is_none_or(|steps| task.step >= steps);
        if !(matches!(end, TaskEnd::Done { .. }) && has_all_steps) {
            // Its end was not in the plan.
            self.version += 1;
        }
        self.open_tasks.remove(&id);
        let group = task.group;
        self.groups[group].num_open -= 1;
        if self.groups[group].num_open == 0 {
            self.close_trials(group);
        }
    }

    /// Takes in what a rank says between records: a convenience for forecasts and people, never
    /// needed to resume.
    pub fn observe(
        &mut self,
        id: AttemptId,
        step: u64,
        loss: Option<f64>,
        step_s: Option<f64>,
        now_s: f64,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.heard_s = now_s;
        if step > attempt.step || attempt.started.is_none() {
            attempt.step = step;
            attempt.stepped_s = now_s;
        }
        let has_stepped = attempt.started.is_some_and(|(from_step, _)| step > from_step);
        if has_stepped && attempt.warm.is_none() {
            attempt.warm = Some(Warm { step, at_s: now_s, blocked_s: attempt.blocked_s });
        }
        attempt.step_s = step_s.filter(|step_s| *step_s > 0.0).or(attempt.step_s);
        if attempt.purpose == Purpose::Train
            && let Some(task) = self.tasks.get_mut(attempt.task.0)
        {
            task.step = step;
            task.loss = loss.or(task.loss);
        }
    }
}

impl FailureKind {
    /// Whether a device that is broken would make attempts fail so.
    pub(crate) fn may_be_machines_fault(self) -> bool {
        matches!(self, Self::Died | Self::Machine | Self::Stalled)
    }
}

/// A set of excluded strategies says so of one.
pub(crate) fn is_excluded(excluded: &[(StrategyKey, String)], strategy: &Strategy) -> bool {
    excluded.iter().any(|(key, _)| strategy.is_of(key))
}
