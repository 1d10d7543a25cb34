//! How records about attempts change the state: launches, progress, checkpoints and ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::facts::evaluation::{BestEvaluation, Evaluation};
use crate::facts::failure::{FailureKind, RankFailure};
use crate::facts::ids::{AttemptId, DeviceId};
use crate::facts::record::{AttemptEnd, Purpose, Record, StopReason};
use crate::state::attempt::{Attempt, LeftOut, Warm};
use crate::state::blame::{is_early, is_everywhere, is_own_failure};
use crate::state::run::State;
use crate::state::space::NoSpace;
use crate::state::task::TaskStatus;

impl State {
    pub(crate) fn apply_launch(&mut self, launched: &Record, now_s: f64) {
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
            went_on: None,
            stopping: None,
            step,
            stepped_s: now_s,
            step_s: None,
            blocked_s: 0.0,
            slowed: LeftOut::default(),
            beside_inspections: LeftOut::default(),
            last_report: None,
            recent: None,
            saved_step: None,
            heard_s: now_s,
            settled_s: 0.0,
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
        // Only a damaged journal launches an attempt twice.
        if let Some(before) = self.take_attempt(*id) {
            self.hold(&before, None);
            self.learn_occupancy_under(&before.gang);
        }
        self.hold(&attempt, Some(*id));
        if *purpose != Purpose::Train {
            self.measuring.insert(*id);
        }
        let group = self.tasks[task.0].group;
        self.groups[group].attempts.insert(*id);
        self.attempts.insert(*id, attempt);
        self.learn_occupancy_under(gang);
    }

    /// Takes out an attempt that is over.
    fn take_attempt(&mut self, id: AttemptId) -> Option<Attempt> {
        let attempt = self.attempts.remove(&id)?;
        self.measuring.remove(&id);
        let group = self.tasks[attempt.task.0].group;
        self.groups[group].attempts.remove(&id);
        Some(attempt)
    }

    /// Notes who holds the devices of an attempt.
    pub(crate) fn hold(&mut self, attempt: &Attempt, holder: Option<AttemptId>) {
        for DeviceId { node, device } in attempt.devices() {
            self.with_devices(node, &[device], |device| device.held_by = holder);
        }
    }

    pub(crate) fn apply_started(&mut self, id: AttemptId, step: u64, setup_s: f64, now_s: f64) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.started = Some((step, now_s));
        attempt.step = step;
        attempt.stepped_s = now_s;
        if attempt.purpose != Purpose::Train {
            return;
        }
        let attempt = attempt.clone();
        let mut before = step;
        if let Some(task) = self.tasks.get_mut(attempt.task.0) {
            before = task.checkpoint_step;
            task.reset_to_step(step);
            task.checkpoint_step = step;
        }
        if step < before {
            // The newest checkpoint was damaged.
            self.close_places_between(attempt.task, step, before);
        }
        if step > 0 {
            self.with_trial(&attempt, |trial| trial.trained_load_s = Some(setup_s));
        }
    }

    pub(crate) fn apply_checkpoint(
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
        // A checkpoint in the background takes longer than it costs.
        if blocked_s >= save_s {
            task.save_s = Some(save_s);
        }
    }

    pub(crate) fn apply_stopping(&mut self, id: AttemptId, reason: StopReason, now_s: f64) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.stopping = Some((reason, now_s));
        if reason.is_for_gain() {
            self.tasks[attempt.task.0].moved_s = Some(now_s);
        }
        let gang = attempt.gang.clone();
        self.learn_occupancy_under(&gang);
    }

    pub(crate) fn apply_end(
        &mut self,
        id: AttemptId,
        end: &AttemptEnd,
        step: u64,
        (step_s, now_s): (Option<f64>, f64),
    ) {
        let Some(attempt) = self.take_attempt(id) else { return };
        self.hold(&attempt, None);
        self.learn_occupancy_under(&attempt.gang);
        self.note_suspects(&attempt, end);
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
        // What the task itself is to blame for does not count against its group.
        let (has_failed, has_raised) = match end {
            AttemptEnd::Failed { failure }
                if attempt.purpose != Purpose::Train && is_early(self, &attempt, failure.kind) =>
            {
                self.with_task(attempt.task, |task| task.raised_early = true);
                (false, false)
            }
            AttemptEnd::Failed { failure } if failure.kind != FailureKind::Saturn => {
                let is_own = is_own_failure(self, &attempt, failure.kind);
                (!is_own, is_own && !is_everywhere(&attempt.strategy, failure.kind))
            }
            _ => (false, false),
        };
        if attempt.purpose == Purpose::Inspection {
            self.learn_last_inspection(&attempt, now_s);
            return self.apply_inspection_end(attempt.task, has_failed);
        }
        if attempt.purpose == Purpose::Trial {
            if has_raised {
                self.have_raised.insert(self.tasks[attempt.task.0].group);
            }
            let took_s = (now_s - attempt.launched_s).max(0.0);
            self.trials_s += took_s * f64::from(attempt.strategy.gpus);
            self.with_trial(&attempt, |trial| {
                trial.attempt = None;
                trial.failures += u32::from(has_failed);
                trial.own_failures += u32::from(has_raised);
            });
            let gpu_type = self.gang_type(&attempt.gang);
            let trial = self.group_of(attempt.task).trial(&attempt.strategy, gpu_type);
            if trial.is_some_and(|trial| trial.outcome.is_some()) {
                self.want_trials_for(attempt.task);
            } else {
                // The trial is open again, for every task of the group.
                self.want_trials_of_group(self.task(attempt.task).group);
            }
            // Tasks that waited for the trial to end can be planned: its outcome may have come
            // before its end.
            self.version += 1;
            return;
        }
        if let Some(step_s) = step_s {
            self.with_trial(&attempt, |trial| {
                trial.trained_step_s = Some(step_s);
                trial.is_trained_here = true;
            });
        }
        self.charge(&attempt, now_s);
        let Some(task) = self.tasks.get_mut(attempt.task.0) else { return };
        if task.status == TaskStatus::Running(id) {
            task.status = TaskStatus::Waiting;
        }
        task.reset_to_step(step);
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
        // The task's places may come too early in the plan, which was allowed while it trained.
        self.close_places_of([attempt.task]);
    }

    /// Counts the device time of an attempt at training, if people share the run.
    fn charge(&mut self, attempt: &Attempt, now_s: f64) {
        let Some(sharing) = &self.config.policy.sharing else { return };
        let uid = self.tasks[attempt.task.0].uid();
        self.people.entry(uid).or_default().charge(sharing, attempt, now_s);
    }

    /// Notes on which devices tasks failed as a machine's fault makes them fail.
    pub(crate) fn note_suspects(&mut self, attempt: &Attempt, end: &AttemptEnd) {
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

    /// Takes in a rank's report of progress, which is no record: a convenience for forecasts and
    /// people, never needed to resume.
    pub fn observe(
        &mut self,
        id: AttemptId,
        step: u64,
        loss: Option<f64>,
        step_s: Option<f64>,
        now_s: f64,
    ) {
        let last_report = self.attempts.get(&id).and_then(|attempt| attempt.last_report);
        let was_beside =
            last_report.is_some_and(|last| self.was_beside_inspection(last.at_s, now_s));
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.heard_s = now_s;
        let has_new_step = step > attempt.step || attempt.started.is_none();
        if has_new_step {
            attempt.step = step;
            attempt.stepped_s = now_s;
            if let Some(last) = last_report.filter(|_| was_beside) {
                let clocked = attempt.clocked_since(last);
                attempt.beside_inspections.add(LeftOut { steps: clocked.0, seconds: clocked.1 });
            }
        }
        let has_stepped = attempt.started.is_some_and(|(from_step, _)| step > from_step);
        if has_stepped && attempt.warm.is_none() && now_s >= attempt.settled_s {
            attempt.warm = Some(Warm { at_s: now_s, ..attempt.here() });
        }
        attempt.step_s = step_s.filter(|step_s| *step_s > 0.0).or(attempt.step_s);
        if attempt.purpose == Purpose::Train
            && let Some(task) = self.tasks.get_mut(attempt.task.0)
        {
            task.step = step;
            task.loss = loss.or(task.loss);
        }
        self.compare_pace(id, now_s);
        if let Some(attempt) = self.attempts.get_mut(&id)
            && attempt.warm.is_some()
        {
            let last =
                attempt.last_report.filter(|_| !has_new_step).unwrap_or_else(|| attempt.here());
            let Attempt { slowed, beside_inspections, .. } = *attempt;
            attempt.last_report = Some(Warm { slowed, beside_inspections, ..last });
        }
    }

    pub(crate) fn apply_went_on(&mut self, id: AttemptId, step: u64, now_s: f64) {
        let Some(before) = self.attempts.get(&id).filter(|one| one.purpose == Purpose::Trial)
        else {
            return;
        };
        let before = before.clone();
        self.with_trial(&before, |trial| trial.attempt = None);
        let gpu_type = self.gang_type(&before.gang).to_owned();
        let known = self.group_of(before.task).trial(&before.strategy, &gpu_type);
        let strategy = known.map(|trial| Arc::clone(&trial.strategy));
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.purpose = Purpose::Train;
        attempt.went_on = Some(step);
        self.measuring.remove(&id);
        attempt.completed = false;
        attempt.started = Some((step, now_s));
        attempt.step = step;
        attempt.stepped_s = now_s;
        attempt.strategy = strategy.unwrap_or_else(|| Arc::clone(&before.strategy));
        self.learn_occupancy_under(&before.gang);
        let task = &mut self.tasks[before.task.0];
        if !matches!(task.status, TaskStatus::Ended(_)) {
            task.status = TaskStatus::Running(id);
            task.num_attempts += 1;
            task.step = step;
            task.is_let_go_on = false;
            task.no_space = None;
        }
        self.version += 1;
    }

    /// A task's model was evaluated, or had been before an attempt that continues it.
    pub(crate) fn apply_evaluated(
        &mut self,
        id: AttemptId,
        evaluation: &Evaluation,
        best: Option<&BestEvaluation>,
        taken_s: Option<f64>,
        now_s: f64,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if let Some(taken_s) = taken_s {
            attempt.blocked_s += taken_s;
            if evaluation.step >= attempt.step {
                attempt.step = evaluation.step;
                attempt.stepped_s = now_s;
            }
        }
        let attempt = attempt.clone();
        if let Some(task) = self.tasks.get_mut(attempt.task.0) {
            task.evaluation = Some(evaluation.clone());
            task.best = best.cloned();
            task.evaluating_s += taken_s.unwrap_or(0.0);
        }
        if taken_s.is_some() {
            self.with_trial(&attempt, |trial| trial.trained_evaluation_s = taken_s);
        }
    }

    pub(crate) fn apply_space(&mut self, attempt: &Attempt, end: &AttemptEnd, now_s: f64) {
        let Some(failure) = end.no_space() else { return };
        let error = failure.error.clone();
        let no_space = Some(NoSpace { task: attempt.task, error, since_s: now_s });
        let group = self.tasks[attempt.task.0].group;
        match attempt.purpose {
            Purpose::Inspection => {}
            Purpose::Trial => self.groups[group].no_space = no_space,
            Purpose::Train => self.tasks[attempt.task.0].no_space = no_space,
        }
    }
}

impl AttemptEnd {
    /// The failure, where the disk was full.
    fn no_space(&self) -> Option<&RankFailure> {
        match self {
            Self::Failed { failure } if failure.kind == FailureKind::NoSpace => Some(failure),
            _ => None,
        }
    }
}
