//! Records and actions about attempts, and the world's facts about their processes.

use saturn_core::{Gang, Strategy};
use saturn_engine::{
    Action, AttemptEnd, AttemptId, FailureKind, Purpose, RankReport, Record, Ruling, TaskId,
    devices,
};

use crate::judge::books::{AttemptBook, Books};
use crate::judge::duty::Duty;
use crate::judge::search::TRAINS_NOTHING;
use crate::judge::tasks::is_raised;

impl Books {
    pub(super) fn stored_of_attempt(&mut self, record: &Record) {
        match record {
            Record::Launched { .. } => self.launched(record),
            Record::Started { attempt, step, .. } => {
                let said = |report: &RankReport| matches!(report, RankReport::Started { step: said, .. } if said == step);
                self.must_have_said(*attempt, said, "started");
                if let Some(one) = self.attempts.get(attempt) {
                    let task = &mut self.tasks[one.task.0];
                    // More steps than were told if the last report of a checkpoint was lost.
                    if *step < task.checkpoint || one.purpose == Purpose::Train {
                        task.has_checkpoint(*step);
                    }
                }
            }
            Record::Checkpointed { attempt, step, .. } => {
                let said = |report: &RankReport| matches!(report, RankReport::Checkpoint { step: said, .. } if said == step);
                self.must_have_said(*attempt, said, "saved");
                if let Some(task) = self.attempts.get(attempt).map(|one| one.task) {
                    let task = &mut self.tasks[task.0];
                    if *step > task.checkpoint {
                        task.failures = 0;
                        task.failed.forgiven();
                    }
                    task.failed.saved();
                    task.has_checkpoint(*step);
                }
            }
            Record::Stopping { attempt, reason } => {
                let Some(one) = self.attempts.get_mut(attempt) else { return };
                let is_for_gain = reason.is_for_gain();
                if is_for_gain
                    && one.purpose == Purpose::Train
                    && !self.tasks[one.task.0].can_resume
                {
                    let what = format!("{attempt} is stopped: {reason:?}");
                    return self.wrong("what can't resume is never moved", what);
                }
                let task = one.task;
                if one.is_stopping || one.end.is_some() {
                    return self.wrong("a stop is asked once", format!("{attempt}"));
                }
                one.is_stopping = true;
                self.duties.push(Duty::Stop(*attempt));
                if is_for_gain {
                    self.moved(task);
                }
            }
            Record::WentOn { attempt, step } => self.went_on(*attempt, *step),
            Record::Until { attempt, step } => {
                if let Some(one) = self.attempts.get_mut(attempt) {
                    one.until_step = *step;
                    one.until_due = true;
                    self.duties.push(Duty::Until(*attempt));
                }
            }
            Record::Ended { attempt, end, step, .. } => self.attempt_ended(*attempt, end, *step),
            _ => {}
        }
    }

    fn must_have_said(
        &mut self,
        attempt: AttemptId,
        said: impl Fn(&RankReport) -> bool,
        what: &str,
    ) {
        let is_true = self.attempts.get(&attempt).is_some_and(|one| one.said.iter().any(said));
        if !is_true {
            self.wrong("records are true", format!("{attempt} never said that it {what} so"));
        }
    }

    /// A trial that waits for a word trains its task from now on.
    fn went_on(&mut self, id: AttemptId, step: u64) {
        if !self.attempts.contains_key(&id) {
            return self.wrong("records name what there is", format!("{id} goes on"));
        }
        if self.is_search() {
            return self.wrong(TRAINS_NOTHING, format!("{id} goes on"));
        }
        let one = &self.attempts[&id];
        if one.purpose != Purpose::Trial || one.waits_at != Some(step) || one.end.is_some() {
            return self.wrong("records are true", format!("{id} does not wait at step {step}"));
        }
        if let Some(what) = self.why_not_trained(one.task, &one.strategy) {
            self.wrong("only what may start starts", format!("{id} goes on: {what}"));
        }
        let on_disk = self.tasks[self.attempts[&id].task.0].on_disk;
        if let Some(one) = self.attempts.get_mut(&id) {
            one.purpose = Purpose::Train;
            one.is_let_on = true;
            // It keeps the reports that it was told to make; that was no end.
            one.said.retain(|report| !matches!(report, RankReport::Trial { .. }));
            if step < on_disk {
                self.wrong("no step is lost", format!("{id} goes on from before step {on_disk}"));
            }
        }
    }

    fn launched(&mut self, record: &Record) {
        let Record::Launched { attempt, task, purpose, strategy, gang, until_step } = record else {
            return;
        };
        if self.newest.is_some_and(|newest| *attempt <= newest) {
            let what = format!("{attempt} comes after {:?}", self.newest);
            return self.wrong("numbers are given once", what);
        }
        self.newest = Some(*attempt);
        if *purpose == Purpose::Train && self.is_search() {
            return self.wrong(TRAINS_NOTHING, format!("{attempt} trains"));
        }
        if let Some(task) = self.tasks.get_mut(task.0) {
            task.has_worked |= *purpose == Purpose::Train;
        }
        let group = self.tasks.get(task.0).map_or("", |task| task.group.as_str());
        if let Some(what) = self.why_too_much_host_memory(group, strategy, gang)
            && *purpose != Purpose::Inspection
        {
            self.wrong("host memory is enough", format!("{attempt}: {what}"));
        }
        if *purpose == Purpose::Inspection {
            if !gang.is_empty() {
                self.wrong("an inspection holds no device", format!("{attempt} on {gang:?}"));
            }
        } else if !self.is_sound(gang, strategy) {
            self.wrong("a gang is whole", format!("{attempt} on {gang:?} for {strategy:?}"));
        }
        self.check_launched_alone(gang);
        if let Some(what) = self.why_not(*task, *purpose, record) {
            self.wrong("only what may start starts", format!("{attempt}: {what}"));
        }
        let book = AttemptBook {
            task: *task,
            purpose: *purpose,
            strategy: strategy.clone(),
            gang: gang.clone(),
            until_step: *until_step,
            is_performed: false,
            launch_failed: false,
            live: std::collections::BTreeSet::new(),
            has_begun: false,
            loaded_step: None,
            stopped_unstarted: false,
            was_early: false,
            is_stopping: false,
            stop_performed: false,
            until_due: false,
            waits_at: None,
            has_waited: false,
            is_let_on: false,
            is_killed: false,
            end: None,
            is_lost: false,
            outlives: false,
            num_ranks: self.config.num_ranks(strategy),
            num_exits: 0,
            cause: None,
            death: None,
            is_left: false,
            has_lost_node: false,
            failed_ranks: std::collections::BTreeSet::new(),
            said: Vec::new(),
        };
        self.attempts.insert(*attempt, book);
        self.duties.push(Duty::Launch(*attempt));
    }

    /// Why a task may not be launched now.
    fn why_not(&self, id: TaskId, purpose: Purpose, record: &Record) -> Option<String> {
        let Record::Launched { strategy, gang, until_step, .. } = record else { return None };
        let Some(task) = self.tasks.get(id.0) else {
            return Some("there is no such task".to_owned());
        };
        if task.end.is_some() {
            return Some("its task has ended".to_owned());
        }
        let held = self.attempts.values().filter(|one| one.end.is_none());
        let mut held = held.flat_map(|one| devices(&one.gang));
        if held.any(|device| devices(gang).any(|other| other == device)) {
            return Some("others hold its devices".to_owned());
        }
        if let Some(what) = self.why_not_called(id).filter(|_| purpose != Purpose::Train) {
            return Some(what);
        }
        let rests_until_s = self.rests_until_s.get(&task.group).copied().unwrap_or(0.0);
        if purpose != Purpose::Train && self.now_s < rests_until_s - 1e-6 {
            return Some(format!("its group rests until {rests_until_s:.3} s"));
        }
        match purpose {
            Purpose::Inspection => return self.why_not_looked_at(&task.group),
            Purpose::Trial => return self.why_not_tried(&task.group, strategy, gang),
            Purpose::Train => {}
        }
        if let Some(what) = self.why_not_trained(id, strategy) {
            return Some(what);
        }
        let is_planned = self.plan.iter().flatten().any(|place| {
            place.task == id
                && *place.strategy == *strategy
                && *place.gang == *gang
                && place.until_step == *until_step
        });
        (!is_planned).then(|| "it is not in the plan".to_owned())
    }

    /// Why a task may not train now, on any devices.
    fn why_not_trained(&self, id: TaskId, strategy: &Strategy) -> Option<String> {
        let task = &self.tasks[id.0];
        if let Some(why) = task.why_it_rests() {
            return Some(why.to_owned());
        }
        if self.now_s < task.release_s.max(task.not_before_s) {
            return Some("it is too early".to_owned());
        }
        if task.excluded.contains(&strategy.key()) {
            return Some("its strategy is excluded".to_owned());
        }
        if !task.gpu_range.as_ref().is_none_or(|range| range.contains(&strategy.gpus)) {
            return Some("its gpu_range does not allow it".to_owned());
        }
        if self.waits_for_others(id) {
            return Some("what it comes after is not done".to_owned());
        }
        let live = self
            .attempts
            .values()
            .any(|one| one.task == id && one.purpose == Purpose::Train && one.end.is_none());
        live.then(|| "it trains already".to_owned())
    }

    pub(super) fn performed(&mut self, action: &Action) {
        match action {
            Action::Launch { attempt, task, strategy, gang, purpose, until_step, .. } => {
                let Some(one) = self.attempts.get_mut(attempt) else {
                    return self
                        .wrong("records come before actions", format!("{attempt} is launched"));
                };
                let is_same = one.task == *task
                    && one.purpose == *purpose
                    && one.strategy == *strategy
                    && one.gang == *gang
                    && one.until_step == *until_step;
                if one.is_performed || !is_same {
                    return self.wrong("actions are as recorded", format!("{attempt} is launched"));
                }
                one.is_performed = true;
            }
            Action::Stop { attempt } => {
                let Some(one) = self.attempts.get_mut(attempt) else { return };
                if one.waits_at.take().is_some() && !one.is_let_on {
                    return;
                }
                if !one.is_stopping || one.stop_performed {
                    return self
                        .wrong("records come before actions", format!("{attempt} is stopped"));
                }
                one.stop_performed = true;
                one.stopped_unstarted = !one.has_begun;
            }
            Action::GoOn { attempt, .. } => {
                let Some(one) = self.attempts.get_mut(attempt) else { return };
                if !one.is_let_on || one.waits_at.take().is_none() {
                    self.wrong("records come before actions", format!("{attempt} goes on"));
                }
            }
            Action::Until { attempt, step } => {
                let Some(one) = self.attempts.get_mut(attempt) else { return };
                if !one.until_due || one.until_step != *step {
                    return self
                        .wrong("records come before actions", format!("{attempt} until {step:?}"));
                }
                one.until_due = false;
            }
            Action::Kill { attempt } => {
                if let Some(one) = self.attempts.get_mut(attempt) {
                    one.is_killed = true;
                }
            }
            Action::Solve { request, .. } => {
                if *request <= self.newest_solve {
                    return self.wrong("numbers are given once", format!("solve {request}"));
                }
                self.newest_solve = *request;
                self.open_solves.insert(*request);
            }
        }
    }

    pub(super) fn began(
        &mut self,
        attempt: AttemptId,
        (task, purpose): (TaskId, Purpose),
        gang: &Gang,
        num_ranks: u32,
    ) {
        let Some(one) = self.attempts.get_mut(&attempt) else {
            return self.wrong("records come before actions", format!("{attempt} has processes"));
        };
        let expected = self.config.num_ranks(&one.strategy);
        // The launcher puts the node with the most devices first.
        let by_node = |gang: &Gang| {
            let mut parts = gang.clone();
            parts.sort_by_key(|part| part.node);
            parts
        };
        if one.has_begun || num_ranks != expected || by_node(&one.gang) != by_node(gang) {
            let what = format!("{attempt} has {num_ranks} of {expected} processes on {gang:?}");
            return self.wrong("a gang is whole", what);
        }
        one.has_begun = true;
        one.live = (0..num_ranks).collect();
        for device in devices(gang) {
            let node = self.nodes.get(device.node.0).map(|(name, _, _)| name);
            let there = node.and_then(|name| self.machines.get(name)).copied().unwrap_or(0);
            if device.device >= there {
                let what = format!("{device:?} is not there");
                return self.wrong("plans can be followed", what);
            }
            if let Some(other) = self.used.insert(device, attempt) {
                let what = format!("{device:?} is used by {other} and {attempt}");
                self.wrong("one gang a device", what);
            }
        }
        let also = self.attempts.iter().any(|(id, one)| {
            *id != attempt
                && one.task == task
                && one.purpose == Purpose::Train
                && !one.live.is_empty()
        });
        // Processes that can't be killed may still be there. Then the task may go on without them.
        let is_abandoned = self.attempts.iter().any(|(id, one)| {
            *id != attempt && one.task == task && !one.live.is_empty() && one.end.is_some()
        });
        if purpose == Purpose::Train && also && !is_abandoned {
            self.wrong("one attempt a task", format!("{attempt} is not alone"));
        }
    }

    pub(super) fn loaded(&mut self, attempt: AttemptId, step: u64) {
        let Some(one) = self.attempts.get_mut(&attempt) else { return };
        one.loaded_step = Some(step);
        let on_disk = self.tasks[one.task.0].on_disk;
        if step < on_disk {
            let what = format!("{attempt} goes on from {step}, and {on_disk} were saved");
            self.wrong("no step is lost", what);
        }
    }

    pub(super) fn gone(&mut self, attempt: AttemptId, rank: u32) {
        let Some(one) = self.attempts.get_mut(&attempt) else { return };
        one.live.remove(&rank);
        if one.live.is_empty() {
            self.used.retain(|_, user| *user != attempt);
        }
    }

    fn attempt_ended(&mut self, id: AttemptId, end: &AttemptEnd, step: u64) {
        let Some(one) = self.attempts.get_mut(&id) else {
            return self.wrong("records name what there is", format!("{id} ended"));
        };
        if one.end.is_some() {
            return self.wrong("an attempt ends once", format!("{id}"));
        }
        one.end = Some(end.clone());
        let (task, purpose, is_alive) = (one.task, one.purpose, !one.live.is_empty());
        let (is_lost, has_begun, launch_failed) = (one.is_lost, one.has_begun, one.launch_failed);
        // The engine has not heard of the end of every rank.
        let is_unheard = one.num_exits < one.num_ranks;
        let said_end = one.said.iter().any(|report| {
            matches!(
                report,
                RankReport::Finished { .. }
                    | RankReport::Stopped { .. }
                    | RankReport::Trial { .. }
                    | RankReport::Inspected { .. }
            )
        });
        let (was_killed, cause) = (one.is_killed, one.cause);
        let book = &self.tasks[task.0];
        if purpose == Purpose::Train && step < book.checkpoint {
            let what = format!("{id} ends at {step}, and {} were saved", book.checkpoint);
            self.wrong("no step is lost", what);
        }
        if purpose == Purpose::Train && matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped) {
            // Its last report was also a checkpoint.
            self.tasks[task.0].checkpoint = step;
        }
        // Of the undead the driver is told next.
        if is_alive && purpose != Purpose::Inspection && !self.undead.contains(&id) {
            self.duties.push(Duty::SetAside(id));
        }
        self.note_left(id, end);
        self.check_words(id, end);
        self.check_is_told_of_others(id, end);
        self.check_done(id, end, step);
        self.check_not_failed(id, end);
        let is_true = match end {
            AttemptEnd::Finished | AttemptEnd::Stopped => said_end && !is_alive,
            AttemptEnd::Lost => is_lost || !has_begun,
            AttemptEnd::Killed => was_killed,
            AttemptEnd::Abandoned => is_alive || is_unheard,
            AttemptEnd::Failed { failure } => {
                let is_own_kill = was_killed && cause.is_none();
                (has_begun || launch_failed)
                    && cause.is_none_or(|cause| cause == failure.kind)
                    && !(is_own_kill && failure.kind == FailureKind::Died)
            }
        };
        if !is_true {
            self.wrong("records are true", format!("{id} ended: {end:?}"));
        }
        self.note_whether_early(id, end);
        self.note_failure(id, end);
        if purpose == Purpose::Train
            && self.tasks[task.0].ruling == Ruling::Stop
            && self.tasks[task.0].end.is_none()
            && !matches!(end, AttemptEnd::Lost)
        {
            self.duties.push(Duty::EndStopped(task));
        }
        let AttemptEnd::Failed { failure } = end else { return };
        // A failure that Saturn's own processes cause counts against no task.
        let is_forgiven = failure.kind == FailureKind::Saturn;
        let is_its_own = is_raised(failure.kind) && !self.tasks[task.0].has_worked;
        if purpose == Purpose::Inspection && !is_forgiven && !is_its_own {
            let group = self.tasks[task.0].group.clone();
            *self.failed_looks.entry(group).or_default() += 1;
        }
        if purpose == Purpose::Train && self.tasks[task.0].end.is_none() {
            if !is_forgiven && failure.kind != FailureKind::NoSpace {
                self.tasks[task.0].failures += 1;
            }
            self.duties.push(Duty::Recover(task));
        }
    }
}
